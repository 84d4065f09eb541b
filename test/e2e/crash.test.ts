// A controller that dies, is stopped or interrupted: whatever the instant, the next one picks up. The whole of it is `make crashtest`.
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import pLimit from 'p-limit';
import t, { type Test } from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { packageRoot } from '../../src/core/paths.js';
import { verifyBundleFiles } from '../../src/record/bundle/files.js';
import { verifyLedger } from '../../src/record/ledger/verify.js';
import { openStore } from '../../src/record/store/store.js';
import { killAndResume, undisturbed } from '../crash/kill-and-resume.js';
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

interface RunOptions {
  env?: Record<string, string>;
  /** Sees the progress, and may end the process. */
  onLine?: (line: string, child: ChildProcess) => void;
}

function startInfrabed(
  stateDir: string,
  args: readonly string[],
  options: RunOptions = {},
): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(process.execPath, ['--import=tsx', join(packageRoot, 'test/e2e/cli.ts'), ...args], {
    cwd: packageRoot,
    env: { ...process.env, INFRABED_STATE_DIR: stateDir, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended: Ended = { exitStatus: null, signal: null, stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (ended.stdout += chunk.toString()));
  let rest = '';
  child.stderr.on('data', (chunk: Buffer) => {
    ended.stderr += chunk.toString();
    const lines = (rest + chunk.toString()).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) options.onLine?.(line, child);
  });
  return {
    child,
    ended: new Promise((resolve) => {
      child.on('close', (exitStatus, signal) => resolve({ ...ended, exitStatus, signal }));
    }),
  };
}

/** Runs the command line as a process of its own. */
function infrabed(stateDir: string, args: readonly string[], onLine?: RunOptions['onLine']): Promise<Ended> {
  return startInfrabed(stateDir, args, onLine === undefined ? {} : { onLine }).ended;
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

/** One for each kind of thing that can be cut in two: lease, cluster, window, gate, power, seal, clean, release. */
const sample = [
  'store.commit.bookings+changes+clean_records+leases+marks+nodes+sites.after#1',
  'container.make.done#1',
  'agent.exited#1',
  'phase.running.begun#1',
  'container.off.done#1',
  'seal.sealed#1',
  'container.remove.done#1',
  'store.commit.bookings+changes+clean_records+clusters+leases+nodes.after#1',
];

void t.test(
  'killed at any of these points, a controller leaves nothing that the next one does not bring to its end',
  async (t) => {
    const { points, verdicts } = await undisturbed();
    const limit = pLimit(3);
    await Promise.all(
      sample.map((point) =>
        limit(async () => {
          t.ok(points.includes(point), `${point} is a point of a trial`);
          const { reached, problems, outcome, diedIn, stateDir } = await killAndResume(point, verdicts);
          t.ok(reached, `killed at ${point}`);
          t.same(problems, [], `${point}: died in ${String(diedIn)}, ended as ${String(outcome)}`);
          if (problems.length === 0) removeStateDir(stateDir);
          else t.comment(`kept: ${stateDir}`);
        }),
      ),
    );
  },
);

/** The one trial of a state folder. */
async function trialIn(stateDir: string): Promise<{ id: string; lease: string; bundle: string }> {
  const store = await openStore(stateDir);
  const row = await store.db.selectFrom('trials').selectAll().executeTakeFirstOrThrow();
  await store.close();
  return { id: row.id, lease: row.lease ?? '', bundle: row.bundle };
}

/** Time that passes while nobody waits: the lease ended that long ago. */
async function endLease(stateDir: string, lease: string, agoMs: number): Promise<void> {
  const store = await openStore(stateDir);
  const ends_at = Date.now() - agoMs;
  await store.db
    .updateTable('leases')
    .set({ ends_at, starts_at: ends_at - 60_000 })
    .where('id', '=', lease)
    .execute();
  await store.db.deleteFrom('bookings').where('lease', '=', lease).execute();
  await store.close();
}

const isStopped = (pid: number): boolean => / T /.test(readFileSync(`/proc/${String(pid)}/stat`, 'utf8'));

void t.test(
  'a controller that was stopped past the end of its lease changes nothing when it wakes',
  async (t) => {
    const stateDir = newStateDir();
    const { child, ended } = startInfrabed(stateDir, ['run', task], {
      env: { INFRABED_FAILPOINT: 'stop:phase.immediate.begun#1' },
    });
    await waitFor('the controller to stop', () => (isStopped(child.pid ?? 0) ? true : undefined), {
      timeoutMs: 600_000,
      intervalMs: 200,
    });
    const { id, lease, bundle } = await trialIn(stateDir);
    await endLease(stateDir, lease, 3_600_000);
    const swept = await infrabed(stateDir, ['sweep', '--json']);
    t.equal(swept.exitStatus, 0, swept.stderr);
    t.match(jsonLines(swept.stdout)[0], {
      trials: [{ trial: id, phase: null, ended: 'cancelled' }],
      failed: [],
    });
    const record = readFileSync(join(bundle, 'ledger.jsonl'), 'utf8');
    const manifest = readFileSync(join(bundle, 'bundle.json'), 'utf8');
    child.kill('SIGCONT');
    const woken = await ended;
    t.equal(woken.exitStatus, 3);
    t.match(woken.stderr, /IB_LEASE_CONFLICT/);
    t.equal(readFileSync(join(bundle, 'ledger.jsonl'), 'utf8'), record, 'the record is as it was');
    t.equal(readFileSync(join(bundle, 'bundle.json'), 'utf8'), manifest, 'and so is the manifest');
    t.match(await verifyLedger(bundle), { ok: true });
    const [listed] = jsonLines((await infrabed(stateDir, ['trial', 'list', '--json'])).stdout);
    t.match(listed, { trial: id, outcome: 'cancelled' });
    await nothingLeft(t, stateDir);
    removeStateDir(stateDir);
  },
);

void t.test("a person's lease that ends while a trial runs on it ends the trial in order", async (t) => {
  const stateDir = newStateDir();
  const reserved = await infrabed(stateDir, [
    'reserve',
    '--nodes',
    '3',
    '--for',
    '2h',
    '--why',
    'test',
    '--json',
  ]);
  t.equal(reserved.exitStatus, 0, reserved.stderr);
  const lease = String(jsonLines(reserved.stdout)[0]?.['id']);
  let over: Promise<void> | undefined;
  const ended = await infrabed(stateDir, ['run', task, '--lease', lease, '--json'], (line) => {
    if (line.startsWith('immediate ...')) over ??= endLease(stateDir, lease, 0);
  });
  await over;
  t.equal(ended.exitStatus, 3, ended.stderr);
  t.match(jsonLines(ended.stdout)[0], { outcome: 'cancelled' });
  t.match(ended.stderr, /IB_LEASE_ENDED/);
  const { bundle } = await trialIn(stateDir);
  t.match(JSON.parse(readFileSync(join(bundle, 'bundle.json'), 'utf8')), {
    ending: 'cancelled',
    error: { code: 'IB_LEASE_ENDED' },
  });
  t.match(await verifyLedger(bundle), { ok: true });
  t.same((await verifyBundleFiles(bundle)).problems, [], 'the bundle was saved and sealed');
  t.equal((await infrabed(stateDir, ['sweep'])).exitStatus, 0, 'whatever is due is done at the next start');
  await nothingLeft(t, stateDir);
  removeStateDir(stateDir);
});

void t.test("a trial on a person's lease leaves it to them, with its nodes clean", async (t) => {
  const stateDir = newStateDir();
  const reserved = await infrabed(stateDir, [
    'reserve',
    '--nodes',
    '3',
    '--for',
    '2h',
    '--why',
    'test',
    '--json',
  ]);
  const lease = String(jsonLines(reserved.stdout)[0]?.['id']);
  const ended = await infrabed(stateDir, ['run', task, '--lease', lease, '--json']);
  t.match(jsonLines(ended.stdout)[0], { outcome: 'resolved' }, ended.stderr);
  const store = await openStore(stateDir);
  t.match(await store.db.selectFrom('leases').selectAll().where('id', '=', lease).execute(), [
    { state: 'active', controller: null },
  ]);
  const nodes = await store.db.selectFrom('nodes').select('state').where('lease', '=', lease).execute();
  t.same(
    nodes.map(({ state }) => state),
    ['leased', 'leased', 'leased'],
  );
  const cleaned = await store.db.selectFrom('clean_records').selectAll().where('lease', '=', lease).execute();
  t.same(
    cleaned.map(({ method }) => method),
    ['container-destroyed', 'container-destroyed'],
    'of the nodes it used',
  );
  await store.close();
  t.equal((await infrabed(stateDir, ['lease', 'release', lease, '--yes'])).exitStatus, 0);
  await nothingLeft(t, stateDir);
  removeStateDir(stateDir);
});

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
