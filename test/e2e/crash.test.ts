import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import pLimit from 'p-limit';
import t, { type Test } from 'tap';
import { packageRoot } from '../../src/core/paths.js';
import { phaseNames, type PhaseName } from '../../src/record/bundle/schema.js';
import { verifyLedger } from '../../src/record/ledger/verify.js';
import { afterCrash } from '../../src/trial/run/phases.js';
import { heldNodes, leftovers, newStateDir, openEnvironment, removeStateDir } from './trial-harness.js';
import { needsRoot } from './needs-root.js';

needsRoot(t);
t.setTimeout(1_200_000);

const task = join(packageRoot, 'test/e2e/fixtures/goal');

interface Ended {
  exitStatus: number | null;
  signal: string | null;
  stdout: string;
  stderr: string;
}

/** Runs the command line as a process of its own; `onLine` sees its progress and may end it. */
function infrabed(
  stateDir: string,
  args: readonly string[],
  onLine: (line: string, child: ChildProcess) => void = () => undefined,
): Promise<Ended> {
  const child = spawn(process.execPath, ['--import=tsx', join(packageRoot, 'test/e2e/cli.ts'), ...args], {
    cwd: packageRoot,
    env: { ...process.env, INFRABED_STATE_DIR: stateDir },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended: Ended = { exitStatus: null, signal: null, stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (ended.stdout += chunk.toString()));
  let rest = '';
  child.stderr.on('data', (chunk: Buffer) => {
    ended.stderr += chunk.toString();
    const lines = (rest + chunk.toString()).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) onLine(line, child);
  });
  return new Promise((resolve) => {
    child.on('close', (exitStatus, signal) => resolve({ ...ended, exitStatus, signal }));
  });
}

const jsonLines = (text: string): Record<string, unknown>[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Record<string, unknown>);

async function nothingLeft(t: Test, stateDir: string): Promise<void> {
  const environment = await openEnvironment(stateDir);
  t.same(await heldNodes(environment), [], 'every node can be lent');
  await environment.store.close();
  t.same(leftovers(stateDir), [], 'nothing is left on the machine');
}

/** Phases so short that the trial may be over before the kill comes. */
const brief: ReadonlySet<PhaseName> = new Set(['clean', 'release']);

/** Kills the controller in the middle of a phase, then sweeps, and looks at what is left. */
async function killedIn(phase: PhaseName, t: Test): Promise<void> {
  const stateDir = newStateDir();
  const killed = await infrabed(stateDir, ['run', task, '--agent', 'oracle'], (line, child) => {
    if (line.startsWith(`${phase} ...`)) setTimeout(() => child.kill('SIGKILL'), 60);
  });
  const swept = await infrabed(stateDir, ['sweep', '--json']);
  t.equal(swept.exitStatus, 0, swept.stderr);
  const [found] = jsonLines(swept.stdout) as [
    { trials: { phase: string; ended: string }[]; failed: string[] },
  ];
  const [trial] = jsonLines((await infrabed(stateDir, ['trial', 'list', '--json'])).stdout);
  t.same(found.failed, []);
  t.ok(killed.signal === 'SIGKILL' || brief.has(phase), 'the kill came in time');
  if (killed.signal === 'SIGKILL') {
    t.equal(found.trials.length, 1, 'the sweep says which trial died');
    const diedIn = found.trials[0]?.phase as PhaseName;
    t.ok(phaseNames.indexOf(diedIn) >= phaseNames.indexOf(phase), `it died in ${diedIn}`);
    t.equal(found.trials[0]?.ended, afterCrash(diedIn));
    t.equal(trial?.['outcome'], afterCrash(diedIn) === 'infra_error' ? 'infra_error' : null);
  } else {
    t.equal(trial?.['outcome'], 'resolved', 'the phase was over before the kill came');
  }
  t.match(await verifyLedger(String(trial?.['bundle'])), { ok: true }, 'its record verifies');
  await nothingLeft(t, stateDir);
  removeStateDir(stateDir);
}

// Three controllers at a time, each with a state folder of its own.
const limit = pLimit(3);

void t.test(
  'a controller killed in any phase leaves nothing that the next start does not clean up',
  { jobs: 13 },
  (t) => {
    for (const phase of phaseNames) void t.test(`killed in ${phase}`, (t) => limit(() => killedIn(phase, t)));
    t.end();
  },
);

void t.test('of two runs at once, Ctrl-C ends the one as cancelled and leaves the other alone', async (t) => {
  const stateDir = newStateDir();
  let second: Promise<Ended> | undefined;
  // The second one starts, and so looks for leftovers, while the first makes its cluster.
  const first = await infrabed(stateDir, ['run', task, '--json'], (line, child) => {
    if (line.startsWith('lease ...')) second ??= infrabed(stateDir, ['run', task, '--json']);
    if (line.startsWith('running ...')) child.kill('SIGINT');
  });
  t.equal(first.exitStatus, 3);
  t.match(jsonLines(first.stdout)[0], { outcome: 'cancelled', task: 'infrabed-test/goal' });
  const other = await second;
  t.equal(other?.exitStatus, 0, other?.stderr ?? 'the second run was started');
  t.match(jsonLines(other?.stdout ?? '')[0], { outcome: 'resolved', reward: 1 });
  await nothingLeft(t, stateDir);
  removeStateDir(stateDir);
});

void t.test('a second Ctrl-C leaves at once, and says what is left and how to remove it', async (t) => {
  const stateDir = newStateDir();
  const ended = await infrabed(stateDir, ['run', task], (line, child) => {
    if (!line.startsWith('immediate ...')) return;
    child.kill('SIGINT');
    setTimeout(() => child.kill('SIGINT'), 30);
  });
  t.equal(ended.exitStatus, 3);
  t.match(ended.stderr, /Left at once\. Still there:\n {2}the cluster \S+ of t-\S+, in /);
  t.match(ended.stderr, /infrabed sweep/);
  t.equal((await infrabed(stateDir, ['sweep'])).exitStatus, 0);
  await nothingLeft(t, stateDir);
  removeStateDir(stateDir);
});

void t.test(
  'wrong usage, a broken task and an unknown agent end with status 2 before anything is begun',
  async (t) => {
    const stateDir = newStateDir();
    for (const [args, code] of [
      [['run'], 'IB_USAGE'],
      [['run', 'no-such-task'], 'IB_TASK_UNKNOWN'],
      [['run', task, '--agent', 'robot'], 'IB_AGENT_UNKNOWN'],
      [['run', task, '--attempts', '0'], 'IB_USAGE'],
      [['frobnicate'], 'IB_USAGE'],
      [['trial', 'show', 't-none'], 'IB_TRIAL_UNKNOWN'],
    ] as const) {
      const ended = await infrabed(stateDir, args);
      t.equal(ended.exitStatus, 2, args.join(' '));
      t.match(ended.stderr, new RegExp(`^${code}: `, 'm'), args.join(' '));
      t.notMatch(ended.stderr, /\n\s+at /, 'no stack');
    }
    removeStateDir(stateDir);
  },
);
