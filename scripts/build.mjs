// Compiles src/ and checkers/ to dist/. Nothing is done where dist/ is newer than every source, and the old dist/ stays
// in use until the new one is whole: a command in another terminal must not find half of it.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const stamp = join(root, 'dist', '.built');

/** Newest modification time, in milliseconds, of a file or of all below a folder (removals change the folder's). */
function newest(path) {
  const about = statSync(path);
  if (!about.isDirectory()) return about.mtimeMs;
  return Math.max(about.mtimeMs, ...readdirSync(path).map((name) => newest(join(path, name))));
}

const inputs = [
  'src',
  'checkers',
  'tsconfig.json',
  'tsconfig.build.json',
  'package-lock.json',
  'scripts/build.mjs',
];
const newestInput = Math.max(...inputs.map((input) => newest(join(root, input))));
if (existsSync(stamp) && statSync(stamp).mtimeMs > newestInput) process.exit(0);

const fresh = join(root, `dist.new-${process.pid}`);
const old = join(root, `dist.old-${process.pid}`);
const startedAt = new Date();
const result = spawnSync(
  process.execPath,
  [join(root, 'node_modules/typescript/bin/tsc'), '-p', 'tsconfig.build.json', '--outDir', fresh],
  { cwd: root, stdio: 'inherit' },
);
if (result.status === 0) {
  writeFileSync(join(fresh, '.built'), `${startedAt.toISOString()}\n`);
  if (existsSync(join(root, 'dist'))) renameSync(join(root, 'dist'), old);
  renameSync(fresh, join(root, 'dist'));
}
rmSync(fresh, { recursive: true, force: true });
rmSync(old, { recursive: true, force: true });
process.exit(result.status ?? 1);
