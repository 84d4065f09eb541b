/** Task packages: what is wrong is named by file, line and key; the linter finds what is weak; a new package is neither. */
import { chmod, cp, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import { checkers } from '../../checkers/index.js';
import { InfrabedError } from '../../src/core/errors.js';
import { asset } from '../../src/core/paths.js';
import { effectiveChecks, rebootNodeNames } from '../../src/trial/task/effective-checks.js';
import { findTask, listTasks, taskFolders } from '../../src/trial/task/find.js';
import { lintTask } from '../../src/trial/task/lint.js';
import { loadTask } from '../../src/trial/task/load.js';
import { newTask } from '../../src/trial/task/new.js';
import { knownKeys } from '../../src/trial/task/schema-problems.js';
import { nearestOf } from '../../src/trial/task/problem.js';
import { indexLines, lineOf } from '../../src/trial/task/toml-lines.js';

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'task-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** A new package, with some of its files changed: null removes one, a function edits it. */
async function packageWith(
  t: Test,
  changes: Record<string, string | null | ((text: string) => string)> = {},
): Promise<string> {
  const dir = await newTask({
    name: 'page-port',
    layer: 'L2',
    organisation: 'local',
    parent: await folder(t),
  });
  for (const [file, change] of Object.entries(changes)) {
    const path = join(dir, file);
    if (change === null) {
      await rm(path, { recursive: true });
      continue;
    }
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, typeof change === 'string' ? change : change(await readFile(path, 'utf8')));
  }
  return dir;
}

async function problemsOf(dir: string): Promise<string[]> {
  try {
    await loadTask(dir, { checkers });
    return [];
  } catch (error) {
    if (!(error instanceof InfrabedError) || error.code !== 'IB_TASK_INVALID') throw error;
    return error.message
      .split('\n')
      .slice(1)
      .map((line) => line.trim());
  }
}

async function findingsOf(dir: string): Promise<string[]> {
  const findings = await lintTask(await loadTask(dir, { checkers }), checkers);
  return findings.map(({ rule, file, line }) => `${rule} ${file}${line === null ? '' : `:${String(line)}`}`);
}

const toml = (edit: (text: string) => string): Record<string, (text: string) => string> => ({
  'task.toml': edit,
});
const lineIn = async (dir: string, file: string, text: string): Promise<number> =>
  (await readFile(join(dir, file), 'utf8')).split('\n').findIndex((line) => line.includes(text)) + 1;

t.test('a new package loads, passes lint and is executable where it has to be', async (t) => {
  const dir = await packageWith(t);
  const task = await loadTask(dir, { checkers });
  t.match(task, { dir, shortName: 'page-port', foreign: false, definition: { metadata: { layer: 'L2' } } });
  t.match(task.hash, /^[0-9a-f]{64}$/);
  t.same(await findingsOf(dir), []);
  for (const file of ['solution/solve.sh', 'environment/bootstrap.sh', 'mutants/copies-left/solve.sh'])
    t.equal((await stat(join(dir, file))).mode & 0o111, 0o111, file);
  await t.rejects(newTask({ name: 'page-port', layer: 'L2', organisation: 'local', parent: dirname(dir) }), {
    code: 'IB_USAGE',
  });
  await t.rejects(newTask({ name: 'Page Port', layer: 'L2', organisation: 'local', parent: dir }), {
    code: 'IB_USAGE',
  });
});

t.test('the tasks that come with infrabed load and pass lint', async (t) => {
  const { tasks, broken } = await listTasks([asset('tasks')], { checkers });
  t.same(broken, []);
  for (const task of tasks) t.same(await lintTask(task, checkers), [], task.shortName);
});

t.test('a malformed task.toml is named with its line', async (t) => {
  const dir = await packageWith(
    t,
    toml((text) => text.replace('timeout_sec = 600', 'timeout_sec = = 600')),
  );
  const line = await lineIn(dir, 'task.toml', '= = 600');
  t.match(await problemsOf(dir), [new RegExp(`^task.toml:${String(line)}: is not TOML: .*column`)]);
});

t.test(
  'everything that is wrong is told at once, with what was expected and what may be meant',
  async (t) => {
    const dir = await packageWith(
      t,
      toml((text) =>
        text
          .replace('layer = "L2"', 'layer = "L7"')
          .replace('stage = "maintain"', 'stage = "maintian"')
          .replace('timeout_sec = 600', 'timout_sec = 600')
          .replace('weight = 3', 'wieght = 3')
          .replace('settle_sec = 3', 'settle_sec = -3')
          .replace('"runtime-override"', '"Runtime Override"'),
      ),
    );
    const problems = await problemsOf(dir);
    const expected: [string, RegExp][] = [
      ['layer = "L7"', /metadata\.layer: expected one of "L1", .*got "L7"/],
      ['stage = "maintian"', /metadata\.stage: .*did you mean "maintain"\?/],
      ['[agent]', /agent\.timeout_sec: is missing \(there is "timout_sec"/],
      ['wieght = 3', /checks\[0\]\.wieght: is not a key of this table \(did you mean "weight"\?\)/],
      ['settle_sec = -3', /lifecycle\.reboot\.settle_sec: expected at least 0, got -3/],
      ['name = "Runtime Override"', /mutants\[0\]\.name: expected lower-case letters/],
    ];
    t.equal(problems.length, expected.length);
    for (const [text, pattern] of expected) {
      const line = await lineIn(dir, 'task.toml', text);
      t.ok(
        problems.some((one) => pattern.test(one) && one.startsWith(`task.toml:${String(line)}:`)),
        `${text} in line ${String(line)}`,
      );
    }
  },
);

t.test('names of things that are not there', async (t) => {
  const cases: [string, Parameters<typeof packageWith>[1], RegExp][] = [
    [
      'an unknown checker',
      toml((x) => x.replace('"http-probe"', '"http-porbe"')),
      /checks\[0\]\.uses: there is no checker "http-porbe" \(did you mean "http-probe"\?\)/,
    ],
    [
      'a check on a node that is not there',
      toml((x) => x.replace('on = "node1"', 'on = "node7"')),
      /checks\[0\]\.on: there is no node "node7"/,
    ],
    [
      'a parameter that names one',
      toml((x) => x.replace('to = "node0"', 'to = "nod0"')),
      /checks\[0\]\.with\.to: there is no node "nod0" \(did you mean "node0"\?\)/,
    ],
    [
      'a parameter that the checker does not have',
      toml((x) => x.replace('port = 8080', 'prot = 8080')),
      /checks\[0\]\.with\.prot: is not a key .*did you mean "port"/,
    ],
    [
      'a duplicate id',
      toml((x) => x.replace('"service-enabled"', '"page-answers"')),
      /checks\[1\]\.id: "page-answers" is already checks\[0\]\.id/,
    ],
    [
      'a mutant that names an unknown check',
      toml((x) => x.replace('"no-copies"]', '"no-copeis"]')),
      /mutants\[1\]\.caught_by\[1\]: there is no check "no-copeis" \(did you mean "no-copies"\?\)/,
    ],
    [
      'a mutant without a script',
      { 'mutants/copies-left': null },
      /mutants\[1\]\.name: there is no file mutants\/copies-left\/solve\.sh/,
    ],
    ['no solution', { 'solution/solve.sh': null }, /^solution\/solve\.sh: is missing/],
    ['no instruction', { 'instruction.md': ' \n' }, /^instruction\.md: is missing or empty/],
    [
      'a node to reboot that is not there',
      toml((x) => x.replace('nodes = ["node0"]', 'nodes = ["node0", "node5"]')),
      /lifecycle\.reboot\.nodes\[1\]: there is no node "node5"/,
    ],
    [
      'an allowance on no node',
      toml((x) => x.replace('node = "node0"', 'node = "node9"')),
      /risk\.allow\[0\]\.node: there is no node "node9"/,
    ],
    [
      'a scored check without a weight',
      toml((x) => x.replace('weight = 3\n', '')),
      /"page-answers" is scored and needs a weight/,
    ],
    [
      'a guard with a weight',
      toml((x) => x.replace('kind = "guard"', 'kind = "guard"\nweight = 1')),
      /checks\[1\]\.weight: a check of kind "guard" carries no weight/,
    ],
    [
      'a citation of nowhere',
      toml((x) => x.replace('node0:/root/RUNBOOK.md: Close', 'the runbook says: Close')),
      /checks\[2\]\.cites: expected "instruction.md: /,
    ],
    [
      'a local checker that is not there',
      toml((x) => x.replace('uses = "http-probe"', 'uses = "./checks/page.mjs"')),
      /checks\[0\]\.uses: there is no file checks\/page\.mjs/,
    ],
    [
      'no scored check',
      toml((x) => x.replace(/weight = \d/g, 'kind = "guard"')),
      /no check of kind "scored"/,
    ],
    [
      'a slow disk that is not there',
      toml((x) =>
        x.replace(
          'roles = ["server"]',
          'roles = ["server"]\ndisks_mib = [64, 64]\ndisk_iops_sec = { data2 = 9 }',
        ),
      ),
      /nodes\[0\]\.disk_iops_sec\.data2: there is no disk "data2" on node0, which has data0, data1/,
    ],
    [
      'a slow disk of a node without disks',
      toml((x) => x.replace('roles = ["server"]', 'roles = ["server"]\ndisk_iops_sec = { data0 = 9 }')),
      /disk_iops_sec\.data0: there is no disk "data0" on node0, which has no data disk \(disks_mib\)/,
    ],
    [
      'a disk that lets nothing through',
      toml((x) =>
        x.replace(
          'roles = ["server"]',
          'roles = ["server"]\ndisks_mib = [64]\ndisk_iops_sec = { data0 = 0 }',
        ),
      ),
      /disk_iops_sec\.data0: /,
    ],
    [
      'no node for the agent',
      toml((x) => x.replace('roles = ["server"]', 'roles = ["server"]\nagent = false')),
      /none of the nodes can be reached/,
    ],
  ];
  for (const [what, changes, expected] of cases) {
    const problems = await problemsOf(await packageWith(t, changes));
    t.ok(
      problems.some((one) => expected.test(one)),
      `${what}: ${problems.join(' | ')}`,
    );
  }
});

t.test('lines are found through arrays of tables, long values, strings and dotted keys', (t) => {
  const lines = indexLines(
    [
      'a.b = 1',
      'text = """',
      '[not.a.table]',
      'x = 1',
      '"""',
      '[[list]]',
      'k = [',
      '  "]", # ]',
      '  { y = 1 },',
      ']',
      'z = 2',
      '[list.inner]',
      "'odd key' = 3",
      '[[list]]',
      'k = 4',
      '[ deep . er ]',
      'v = { a = 1 }',
    ].join('\n'),
  );
  t.equal(lineOf(lines, ['a', 'b']), 1);
  t.equal(lineOf(lines, ['not', 'a']), 1, 'nothing of that name');
  t.equal(lineOf(lines, ['list', 0, 'z']), 11);
  t.equal(lineOf(lines, ['list', 0, 'k', 1]), 7);
  t.equal(lineOf(lines, ['list', 0, 'inner', 'odd key']), 13);
  t.equal(lineOf(lines, ['list', 1, 'k']), 15);
  t.equal(lineOf(lines, ['list', 1, 'missing']), 14);
  t.equal(lineOf(lines, ['deep', 'er', 'v', 'a']), 17);
  t.equal(nearestOf('jorunal', ['journal', 'journey']), 'journal');
  t.equal(nearestOf('xyz', ['journal']), undefined);
  t.end();
});

t.test('the hash covers contents, names and modes, and not the admission', async (t) => {
  const dir = await packageWith(t);
  const hash = async (): Promise<string> => (await loadTask(dir)).hash;
  const before = await hash();
  await writeFile(join(dir, 'admission.json'), '{}');
  t.equal(await hash(), before);
  const other = join(await folder(t), 'elsewhere');
  await cp(dir, other, { recursive: true });
  t.equal((await loadTask(other)).hash, before, 'wherever it lies');
  await chmod(join(dir, 'solution/solve.sh'), 0o644);
  const changed = await hash();
  t.not(changed, before);
  await writeFile(join(dir, 'extra'), '');
  t.not(await hash(), changed);
});

t.test('what the linter finds', async (t) => {
  const shell = (script: string, expectation = ''): Record<string, string | ((text: string) => string)> => ({
    'checks/x.sh': script,
    'task.toml': (text) =>
      text.replace(
        /uses = "unit-state"\non = "node0"\nwith = .*/,
        `uses = "shell"\non = "node0"\nwith = { script = "checks/x.sh"${expectation} }`,
      ),
  });
  const bash = '#!/bin/bash\nset -eu\n';
  const cases: [string, Parameters<typeof packageWith>[1], string][] = [
    [
      'a script that is judged by its status alone',
      shell(`${bash}systemctl is-active x\n`),
      'exit-code-only checks/x.sh',
    ],
    ['a script that can only pass', shell(`${bash}echo '{"pass": true}'\n`), 'always-true checks/x.sh'],
    [
      'an error that is swallowed',
      shell(`${bash}grep x /etc/y || true\n`, ', expect_stdout = "x"'),
      'swallowed-error checks/x.sh:3',
    ],
    [
      'a message that is thrown away',
      shell(`${bash}id bob 2>/dev/null\n`, ', expect_stdout = "x"'),
      'swallowed-error checks/x.sh:3',
    ],
    [
      'a log searched from its beginning',
      shell(`${bash}journalctl -u x | grep -c y\n`, ', expect_stdout = "0"'),
      'unbounded-log-search checks/x.sh:3',
    ],
    [
      'a pattern that matches anything',
      shell(`${bash}date\n`, ', expect_stdout_matches = ".*"'),
      'always-true task.toml',
    ],
    [
      'a duty nobody was told of',
      toml((x) => x.replace(/cites = .*Close.*\n/, '')),
      'uncited-residue task.toml',
    ],
    [
      'a citation that stands nowhere',
      toml((x) => x.replace('Close the incident by', 'Always close incidents by')),
      'citation-not-found task.toml',
    ],
    [
      'a gate that nothing looks at',
      toml((x) => x.replace('"running", "reboot"', '"reboot"')),
      'gate-not-covered task.toml',
    ],
    [
      'an allowance that no solution needs',
      toml((x) => x.replace('"status-page.service"\nwhy', '"postgresql"\nwhy')),
      'unused-allowance task.toml',
    ],
    [
      'too few traps',
      toml((x) => x.replace('trap = "surface-status"', 'trap = "residue"')),
      'few-traps task.toml',
    ],
    [
      'no mutant of a late trap',
      toml((x) => x.replace(/trap = "(not-persistent|residue)"\ncaught/g, 'trap = "peer-damage"\ncaught')),
      'no-late-mutant task.toml',
    ],
    [
      'a late mutant that is caught at once',
      toml((x) => x.replace('gates = ["immediate", "running", "reboot"]', 'gates = ["immediate"]')),
      'late-mutant-caught-early task.toml',
    ],
    [
      'no alternative solution',
      { 'solution/alternative': null },
      'no-alternative solution/alternative/solve.sh',
    ],
    [
      'a script that goes on after errors',
      { 'solution/solve.sh': (x) => x.replace('set -euo pipefail', '').replace('set -euo pipefail', '') },
      'no-set-e solution/solve.sh:1',
    ],
    [
      'a key that is nearly one',
      toml((x) => x.replace('source = [', 'sources = [')),
      'misspelt-key task.toml',
    ],
    ['no source', toml((x) => x.replace(/^source = .*\n/m, '')), 'no-source task.toml'],
    [
      'differences at every probe',
      toml((x) =>
        x.replace('gates = ["decommission"]\nuses = "no-drift"', 'gates = ["running"]\nuses = "no-drift"'),
      ),
      'drift-in-probes task.toml',
    ],
  ];
  for (const [what, changes, expected] of cases) {
    const findings = await findingsOf(await packageWith(t, changes));
    t.ok(
      findings.some((one) => one.startsWith(expected)),
      `${what}: ${findings.join(' | ')}`,
    );
  }
  const stiff = await packageWith(t);
  await chmod(join(stiff, 'mutants/marker-only/solve.sh'), 0o644);
  t.same(await findingsOf(stiff), ['not-executable mutants/marker-only/solve.sh']);
  const excused = shell(
    `${bash}grep -c x /etc/y || true # lint-ok: a count of 0 is an answer\n`,
    ', expect_stdout = "0"',
  );
  t.same(await findingsOf(await packageWith(t, excused)), []);
});

t.test('docs/writing-tasks.md names every rule of the linter and every key of a check', async (t) => {
  const document = await readFile(asset('docs/writing-tasks.md'), 'utf8');
  const sources = ['lint', 'lint-checks', 'lint-scripts', 'lint-traps'].map((name) =>
    readFile(asset(`src/trial/task/${name}.ts`), 'utf8'),
  );
  const rules = (await Promise.all(sources)).flatMap((text) => [
    ...text.matchAll(/(?:\bat|weak|report)\(\s*'([a-z-]+)'|rule: '([a-z-]+)'/g),
  ]);
  t.ok(rules.length > 15);
  for (const [, first, second] of rules) t.match(document, `\`${String(first ?? second)}\``);
  for (const key of knownKeys(['checks', 0])) t.match(document, `\`${key}\``);
});

t.test('every task gets the guard that its nodes can be logged in to, unless it has its own', async (t) => {
  const { definition } = await loadTask(await packageWith(t));
  const guard = effectiveChecks(definition).at(-1)!;
  t.match(guard, { id: 'nodes-reachable', kind: 'guard', on: 'node0', with: { nodes: ['node0'] } });
  t.same(guard.gates, ['immediate', 'running', 'reboot', 'decommission']);
  t.same(rebootNodeNames(definition), ['node0']);
  const own = await packageWith(
    t,
    toml((text) => text.replaceAll('"service-enabled"', '"nodes-reachable"')),
  );
  const checks = effectiveChecks((await loadTask(own)).definition);
  t.equal(checks.filter(({ id }) => id === 'nodes-reachable').length, 1);
});

t.test(
  'a package that brings only tests/test.sh runs as it is, and what was filled in is said',
  async (t) => {
    const dir = join(await folder(t), 'Some_Harbor.Task');
    await mkdir(join(dir, 'tests'), { recursive: true });
    await writeFile(join(dir, 'tests/test.sh'), '#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n');
    await writeFile(join(dir, 'instruction.md'), '# Make it work\n');
    await writeFile(
      join(dir, 'task.toml'),
      'version = "1.0"\n[metadata]\nauthor_name = "x"\ndifficulty = "hard"\n[verifier]\ntimeout_sec = 120.0\n[agent]\ntimeout_sec = 300.0\n[environment]\ncpus = 2\n',
    );
    const task = await loadTask(dir, { checkers });
    t.match(task, {
      foreign: true,
      shortName: 'some-harbor-task',
      definition: {
        metadata: { difficulty: 'hard' },
        agent: { timeout_sec: 300 },
        checks: [
          { id: 'harbor-test', gates: ['immediate'], uses: 'harbor-test', on: 'node0', timeout_sec: 120 },
        ],
      },
    });
    t.ok(task.assumed?.some((one) => one.startsWith('nodes = ')));
    t.same(
      (await lintTask(task, checkers)).map(({ rule, severity }) => [rule, severity]),
      [['foreign-package', 'warning']],
    );
  },
);

t.test('tasks are found by path, by folder and by name', async (t) => {
  const dir = await packageWith(t);
  const folders = [dirname(dir)];
  for (const name of [dir, 'page-port', 'local/page-port'])
    t.equal((await findTask(name, folders)).dir, dir, name);
  await t.rejects(findTask('page-prot', folders), {
    code: 'IB_TASK_UNKNOWN',
    message: /did you mean "page-port"\?/,
  });
  await t.rejects(findTask(join(dir, 'solution'), folders), {
    code: 'IB_TASK_UNKNOWN',
    message: /has no task.toml/,
  });
  await mkdir(join(dirname(dir), 'broken'));
  await writeFile(join(dirname(dir), 'broken/task.toml'), 'x = ');
  const { tasks, broken } = await listTasks(folders);
  t.same(
    [tasks.map(({ shortName }) => shortName), broken.map((one) => one.dir)],
    [['page-port'], [join(dirname(dir), 'broken')]],
  );
  t.same(taskFolders({ INFRABED_TASKS: '/a:b' }, '/c'), ['/a', '/c/b', '/c/tasks', asset('tasks')]);
});
