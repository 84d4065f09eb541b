import {
  appendFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { checkers } from '../../checkers/index.js';
import { packageRoot } from '../../src/core/paths.js';
import {
  loadAdmission,
  saveAdmission,
  type Admission,
  type AdmissionRun,
} from '../../src/study/admission/admission-file.js';
import { checkersHash, checkerSources } from '../../src/study/admission/checkers-hash.js';
import { brokenClauses, flakeRate } from '../../src/study/admission/criteria.js';
import { needlesOf, taskNeedles } from '../../src/study/admission/traces.js';
import { loadTask } from '../../src/trial/task/load.js';
import { taskSchema, type TaskDefinition } from '../../src/trial/task/schema.js';

const check = (id: string, extra: Record<string, unknown> = {}): Record<string, unknown> => ({
  id,
  gates: ['immediate', 'reboot'],
  uses: 'shell',
  on: 'node0',
  weight: 1,
  class: 'functional',
  ...extra,
});

const definition: TaskDefinition = taskSchema.parse({
  schema_version: '1.1',
  task: { name: 'infrabed/x', description: 'x' },
  metadata: { layer: 'L2', stage: 'maintain', difficulty: 'easy' },
  agent: { timeout_sec: 1 },
  environment: { type: 'container-cluster', nodes: [{ name: 'node0' }] },
  checks: [check('works'), check('tidy', { gates: ['decommission'], class: 'cleanup' })],
  mutants: [
    { name: 'link-only', trap: 'not-persistent', caught_by: ['works'] },
    { name: 'backup', trap: 'residue', caught_by: ['tidy'] },
  ],
});

function run(
  agent: string,
  failed: [string, string][] = [],
  changes: Partial<AdmissionRun> = {},
): AdmissionRun {
  return {
    agent,
    outcome: failed.length === 0 ? 'resolved' : 'partial',
    reward: failed.length === 0 ? 1 : 0.4,
    effective: failed.length === 0 ? 1 : 0.4,
    resolved: failed.length === 0,
    failed: failed.map(([id, gate]) => ({ id, gate, verdict: 'fail' })),
    seconds: 1,
    ...changes,
  };
}

const good: AdmissionRun[] = [
  run('oracle'),
  run('oracle'),
  run('oracle:alternative'),
  run('noop', [
    ['works', 'immediate'],
    ['works', 'reboot'],
    ['tidy', 'decommission'],
  ]),
  run('mutant:link-only', [['works', 'reboot']]),
  run('mutant:backup', [['tidy', 'decommission']]),
];

const problems = (runs: AdmissionRun[], more: { lint?: string[]; traces?: string[] } = {}): string[] =>
  brokenClauses({ definition, runs, repeat: 2, lint: more.lint ?? [], traces: more.traces ?? [] });

const replaced = (agent: string, ...runs: AdmissionRun[]): AdmissionRun[] => [
  ...good.filter((one) => one.agent !== agent),
  ...runs,
];

t.test('a task whose runs all behave as claimed has no broken clause', (t) => {
  t.same(problems(good), []);
  t.equal(flakeRate(good), 0);
  t.end();
});

t.test('each clause of admission is found broken by itself', (t) => {
  const cases: [string, AdmissionRun[], RegExp][] = [
    [
      'a flaky reference',
      replaced('oracle', run('oracle'), run('oracle', [['works', 'reboot']])),
      /^oracle: resolved 1 of 2 runs \(failed: works@reboot\)/,
    ],
    [
      'a wrong alternative',
      replaced('oracle:alternative', run('oracle:alternative', [['tidy', 'decommission']])),
      /alternative: is another right fix, but failed tidy/,
    ],
    ['no alternative', replaced('oracle:alternative'), /alternative: was not run/],
    ['idleness that resolves', replaced('noop', run('noop')), /doing nothing resolves/],
    [
      'idleness that scores',
      replaced(
        'noop',
        run(
          'noop',
          [
            ['works', 'immediate'],
            ['tidy', 'decommission'],
          ],
          { reward: 0.5 },
        ),
      ),
      /scores 0\.50/,
    ],
    [
      'a mutant that is not caught',
      replaced('mutant:backup', run('mutant:backup')),
      /mutant:backup: is not caught by tidy/,
    ],
    [
      'a mutant caught by too much',
      replaced(
        'mutant:backup',
        run('mutant:backup', [
          ['tidy', 'decommission'],
          ['works', 'reboot'],
        ]),
      ),
      /also fails works, which it does not name/,
    ],
    [
      'a late trap seen early',
      replaced(
        'mutant:link-only',
        run('mutant:link-only', [
          ['works', 'immediate'],
          ['works', 'reboot'],
        ]),
      ),
      /late trap \(not-persistent\), but fails works at the immediate gate/,
    ],
    ['a mutant that was not run', replaced('mutant:backup'), /mutant:backup: was not run/],
    [
      'an error of ours',
      replaced(
        'noop',
        run(
          'noop',
          [
            ['works', 'immediate'],
            ['tidy', 'decommission'],
          ],
          { outcome: 'verifier_error' },
        ),
      ),
      /says nothing about the task/,
    ],
  ];
  for (const [name, runs, expected] of cases)
    t.ok(
      problems(runs).some((problem) => expected.test(problem)),
      name,
    );
  const never = good.map((one) => ({ ...one, failed: one.failed.filter(({ id }) => id !== 'tidy') }));
  t.ok(problems(never).includes('check tidy: failed in no run'));
  t.same(problems(good, { lint: ['weak'], traces: ['node0:/x: y'] }), [
    'lint: weak',
    'trace on a node: node0:/x: y',
  ]);
  t.equal(flakeRate(replaced('oracle', run('oracle'), run('oracle', [['works', 'reboot']]))), 0.5);
  t.equal(flakeRate([]), 1, 'what was not run is not known to be steady');
  t.end();
});

t.test('needles are the commands and comments of a script, not what it writes into files', (t) => {
  const script = [
    '#!/bin/bash',
    'set -euo pipefail and more than that',
    '# Explains the fault to whoever reads this.',
    "cat > /etc/thing.conf <<'EOF'",
    'this line is the content of a file',
    'EOF',
    'short one',
    'systemctl restart systemd-networkd.service',
  ].join('\n');
  t.same(needlesOf(script), [
    '# Explains the fault to whoever reads this.',
    "cat > /etc/thing.conf <<'EOF'",
    'systemctl restart systemd-networkd.service',
  ]);
  t.end();
});

t.test('every seed task has needles to look for', async (t) => {
  for (const name of readdirSync(join(packageRoot, 'tasks'))) {
    t.ok((await taskNeedles(join(packageRoot, 'tasks', name))).length > 20, name);
  }
});

t.test('an admission counts as long as package, checkers and image are the same', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'infrabed-admission-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  cpSync(join(packageRoot, 'test/e2e/fixtures/goal'), dir, { recursive: true });
  const task = await loadTask(dir);
  t.match(await loadAdmission(task), { admitted: false, why: /never admitted/ });
  const admission: Admission = {
    version: 1,
    task: task.definition.task.name,
    admitted: true,
    problems: [],
    date: '2026-01-02',
    hashes: { task: task.hash, checkers: await checkersHash(task), image: 'image-1' },
    versions: {},
    repeat: 1,
    flakeRate: 0,
    risk: 'not measured',
    traces: { searched: 1, found: [] },
    runs: [],
  };
  const path = await saveAdmission(task, admission);
  t.equal((await loadTask(dir)).hash, task.hash, 'the file itself is no part of the hash');
  t.match(await loadAdmission(task), { admitted: true });
  t.match(await loadAdmission(task, 'image-1'), { admitted: true });
  t.match(await loadAdmission(task, 'image-2'), { admitted: false, why: /another image/ });
  t.match(await loadAdmission({ ...task, hash: 'other' }), { admitted: false, why: /package changed/ });
  await saveAdmission(task, { ...admission, hashes: { ...admission.hashes, checkers: 'other' } });
  t.match(await loadAdmission(task), { admitted: false, why: /Checkers that it uses changed/ });
  await saveAdmission(task, { ...admission, admitted: false, problems: ['x'] });
  t.match(await loadAdmission(task), { admitted: false, why: /failed admission on 2026-01-02/ });
  writeFileSync(path, readFileSync(path, 'utf8').slice(0, 40));
  await t.rejects(loadAdmission(task), { code: 'IB_ADMISSION' });
});

t.test('an admission rests on the checkers that the task uses, and on no others', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'infrabed-checkers-'));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  cpSync(join(packageRoot, 'checkers'), dir, { recursive: true });
  const using = (uses: string): { definition: TaskDefinition } => ({
    definition: { ...definition, checks: definition.checks.map((one) => ({ ...one, uses })) },
  });
  const task = using('port-open');
  t.same(
    [...(await checkerSources(['port-open', './checks/own.mjs'], dir)).keys()],
    ['expectation.ts', 'node-script.ts', 'port-open.ts', 'scripts/tcp-probe.py'],
  );
  const before = await checkersHash(task, dir);
  t.not(await checkersHash(using('shell'), dir), before);

  writeFileSync(join(dir, 'brand-new.ts'), 'export const brandNew = 1;\n');
  appendFileSync(join(dir, 'index.ts'), '// one more checker\n');
  appendFileSync(join(dir, 'ping-path.ts'), '// changed\n');
  appendFileSync(join(dir, 'scripts/processes.py'), '# changed\n');
  t.equal(await checkersHash(task, dir), before, 'what it does not use may change');
  for (const file of ['port-open.ts', 'expectation.ts', 'scripts/tcp-probe.py', 'nodes-reachable.ts']) {
    const text = readFileSync(join(dir, file));
    appendFileSync(join(dir, file), '\n');
    t.not(await checkersHash(task, dir), before, `${file} counts, the guard of every task included`);
    writeFileSync(join(dir, file), text);
  }
  t.equal(await checkersHash(task, dir), before);
  await t.rejects(checkersHash(using('no-such-checker'), dir), { code: 'IB_CHECKER_UNKNOWN' });
});

t.test('every checker stands in a module of its name, with the scripts that it names', async (t) => {
  for (const name of checkers.keys()) t.ok((await checkerSources([name])).has(`${name}.ts`), name);
  const used = await checkerSources([...checkers.keys()]);
  const scripts = readdirSync(join(packageRoot, 'checkers/scripts'));
  for (const script of scripts) t.ok(used.has(`scripts/${script}`), `${script} belongs to a checker`);
});
