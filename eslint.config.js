// Type-aware rules, and the import directions of docs/architecture.md: a room may import only what stands below it.
import eslint from '@eslint/js';
import globals from 'globals';
import tseslint from 'typescript-eslint';
import { importX, createNodeResolver } from 'eslint-plugin-import-x';

// From top to bottom. A room may import from itself and from rooms further down, never from further up.
const rooms = [
  'src/cli',
  'src/web/api',
  'checkers',
  'src/study/admission',
  'src/study/attempt',
  'src/review/report',
  'src/review/score',
  'src/trial/run',
  'src/trial/gate',
  'src/trial/agent',
  'src/trial/gateway',
  'src/trial/drift',
  'src/trial/task',
  'src/testbed/lease',
  'src/testbed/cluster',
  'src/testbed/facts',
  'src/testbed/provision',
  'src/testbed/node',
  'src/testbed/driver',
  'src/testbed/ssh',
  'src/testbed/inventory',
  'src/record/bundle',
  'src/record/notice',
  'src/record/ledger',
  'src/record/store',
  'src/core',
];
const zones = rooms.flatMap((room, index) =>
  rooms.slice(0, index).map((above) => ({
    target: `./${room}`,
    from: `./${above}`,
    message: `${room} stands below ${above}: imports go down only (docs/architecture.md).`,
  })),
);
// A review draws its conclusions from the bundle: of trial it knows the shapes, never what runs.
for (const room of ['run', 'agent', 'gateway']) {
  zones.push({ target: './src/review', from: `./src/trial/${room}`, message: 'A review needs no cluster.' });
}
zones.push({ target: './src/review', from: './src/testbed', message: 'A review needs no cluster.' });
// Checkers know the checker interface and the cluster handle.
for (const wing of ['cli', 'study', 'review', 'trial/run', 'trial/agent', 'trial/gateway']) {
  zones.push({
    target: './checkers',
    from: `./src/${wing}`,
    message: 'A checker only looks at the cluster.',
  });
}

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'tasks/**', '.tap'] },
  eslint.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: {
          allowDefaultProject: ['eslint.config.js', 'bin/*.mjs', 'scripts/*.mjs', 'bench/*.mjs'],
        },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    plugins: { 'import-x': importX },
    settings: {
      'import-x/resolver-next': [
        createNodeResolver({ extensions: ['.ts', '.js', '.mjs'], extensionAlias: { '.js': ['.ts', '.js'] } }),
      ],
    },
    rules: {
      'import-x/no-restricted-paths': ['error', { zones }],
      'import-x/no-cycle': 'error',
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
    },
  },
  {
    // Only the faces know the checkers.
    files: ['src/**'],
    ignores: ['src/cli/**'],
    rules: {
      'no-restricted-imports': [
        'error',
        { patterns: [{ group: ['**/checkers/*'], message: 'Only src/cli hands checkers down.' }] },
      ],
    },
  },
  {
    files: ['src/**'],
    rules: { 'no-console': 'error' },
  },
  {
    files: ['test/**', 'bench/**'],
    rules: {
      '@typescript-eslint/no-floating-promises': 'off',
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
  {
    files: ['**/*.js', '**/*.mjs'],
    extends: [tseslint.configs.disableTypeChecked],
    languageOptions: { globals: globals.node },
  },
);
