/**
 * Kills a real controller at one failpoint of a real trial, lets a new one go on, and looks at all that must hold then.
 * Each has a state folder of its own, so that several can go on side by side.
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../src/core/paths.js';
import { verifyBundleFiles } from '../../src/record/bundle/files.js';
import { bundleFiles } from '../../src/record/bundle/schema.js';
import { verifyLedger } from '../../src/record/ledger/verify.js';
import { openStore, type Store } from '../../src/record/store/store.js';
import { loadScore } from '../../src/review/score/grade.js';
import { powerActs } from '../../src/testbed/driver/container/power-log.js';
import { interruptionOf, type Interruption } from '../../src/trial/run/interrupted.js';
import { leftovers, newStateDir, removeStateDir } from '../e2e/trial-harness.js';

export const task = join(packageRoot, 'test/e2e/fixtures/steady');

export interface Ended {
  exitStatus: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** The command line as a process of its own. */
export function infrabed(
  stateDir: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  const built = process.env['INFRABED_CRASH_BUILT'] === '1';
  const program = built ? ['bin/infrabed.mjs'] : ['--import=tsx', 'test/e2e/cli.ts'];
  const child = spawn(process.execPath, [...program, ...args], {
    cwd: packageRoot,
    env: { ...process.env, INFRABED_STATE_DIR: stateDir, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended: Ended = { exitStatus: null, signal: null, stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (ended.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (ended.stderr += chunk.toString()));
  return new Promise((resolve) => {
    child.on('close', (exitStatus, signal) => resolve({ ...ended, exitStatus, signal }));
  });
}

/** Verdicts by check and gate, and the outcome: what must not depend on whether a controller died. */
export type Verdicts = Readonly<Record<string, string>>;

async function verdictsOf(bundle: string): Promise<Verdicts> {
  const score = await loadScore(bundle);
  if (score === undefined) return { outcome: 'no score' };
  const checks = score.checks.map(({ id, gate, verdict }) => [`${id} at ${gate}`, verdict]);
  return { outcome: score.outcome, ...(Object.fromEntries(checks) as Record<string, string>) };
}

export interface Undisturbed {
  /** `NAME#N`, in the order in which the points were passed. */
  points: string[];
  verdicts: Verdicts;
}

/** One trial that nobody kills. @throws Error when it is not resolved: nothing can be held against it then. */
export async function undisturbed(): Promise<Undisturbed> {
  const stateDir = newStateDir();
  const log = join(stateDir, 'points.log');
  const ended = await infrabed(stateDir, ['run', task], { INFRABED_FAILPOINT_LOG: log });
  const [trial] = await trialsOf(stateDir);
  const verdicts = trial === undefined ? {} : await verdictsOf(trial.bundle);
  if (verdicts['outcome'] !== 'resolved')
    throw new Error(`the undisturbed trial in ${stateDir} was not resolved:\n${ended.stderr}`);
  const points = readFileSync(log, 'utf8').trim().split('\n');
  removeStateDir(stateDir);
  return { points, verdicts };
}

export interface Killed {
  point: string;
  stateDir: string;
  /** False when the trial ended without passing the point: what is polled differs from run to run. */
  reached: boolean;
  /** What the last line about phases said when the controller died; null before any trial was written down. */
  diedIn: string | null;
  outcome: string | null;
  problems: string[];
  /** Points that the controllers that went on passed. */
  pointsAfter: string[];
}

/**
 * @param point where the first controller is killed.
 * @param second where the one that goes on is killed too, before a third one finishes.
 */
export async function killAndResume(point: string, expected: Verdicts, second?: string): Promise<Killed> {
  const stateDir = newStateDir();
  const log = join(stateDir, 'after.log');
  const killed = await infrabed(stateDir, ['run', task], { INFRABED_FAILPOINT: `kill:${point}` });
  const reached = killed.signal === 'SIGKILL';
  const before = await interruptionIn(stateDir);
  if (second !== undefined) await infrabed(stateDir, ['resume'], { INFRABED_FAILPOINT: `kill:${second}` });
  const resumed = await infrabed(stateDir, ['resume', '--json'], { INFRABED_FAILPOINT_LOG: log });
  const problems = second === undefined && reached ? saidWrong(resumed, before) : [];
  const again = await infrabed(stateDir, ['resume', '--json']);
  if (again.exitStatus !== 0 || again.stdout !== '' || again.stderr !== '')
    problems.push(`another start still found something to do: ${again.stdout}${again.stderr}`);
  problems.push(...(await whatIsWrong(stateDir, { before, expected, reached, twice: second !== undefined })));
  const [trial] = await trialsOf(stateDir);
  return {
    point: second === undefined ? point : `${point}, then ${second}`,
    stateDir,
    reached,
    diedIn: before === undefined ? null : before.phase,
    outcome: trial?.outcome ?? null,
    problems,
    pointsAfter: existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : [],
  };
}

/** What the new controller said is no defect of ours, and names the trial that died. */
function saidWrong({ exitStatus, stderr }: Ended, before: Interruption | undefined): string[] {
  const problems: string[] = [];
  if (exitStatus !== 0) problems.push(`resume ended with ${String(exitStatus)}: ${stderr}`);
  if (/IB_INTERNAL|IB_STORE/.test(stderr)) problems.push(`resume met a defect: ${stderr}`);
  if (before !== undefined && !stderr.includes(before.phase))
    problems.push(`resume does not say in which phase the controller died: ${stderr}`);
  return problems;
}

interface TrialRow {
  id: string;
  bundle: string;
  state: string;
  outcome: string | null;
}

async function withStore<T>(stateDir: string, look: (store: Store) => Promise<T>): Promise<T> {
  const store = await openStore(stateDir);
  try {
    return await look(store);
  } finally {
    await store.close();
  }
}

function trialsOf(stateDir: string): Promise<TrialRow[]> {
  return withStore(stateDir, ({ db }) =>
    db.selectFrom('trials').select(['id', 'bundle', 'state', 'outcome']).execute(),
  );
}

function interruptionIn(stateDir: string): Promise<Interruption | undefined> {
  return withStore(stateDir, async (store) => {
    const row = await store.db.selectFrom('trials').selectAll().executeTakeFirst();
    return row?.state === 'running' ? interruptionOf(store, row) : undefined;
  });
}

interface Looking {
  before: Interruption | undefined;
  expected: Verdicts;
  reached: boolean;
  twice: boolean;
}

async function whatIsWrong(stateDir: string, looking: Looking): Promise<string[]> {
  const trials = await trialsOf(stateDir);
  const problems = [
    ...leftovers(stateDir),
    ...(await withStore(stateDir, stillHeld)),
    ...(await doubledPower(stateDir)),
    ...(await withStore(stateDir, (store) => wrongNotices(store, trials))),
  ];
  for (const trial of trials) {
    problems.push(...wrongEnd(trial, looking), ...(await wrongRecord(trial)));
    const verdicts = await verdictsOf(trial.bundle);
    if (trial.outcome === 'resolved' && JSON.stringify(verdicts) !== JSON.stringify(looking.expected))
      problems.push(`other verdicts than undisturbed: ${JSON.stringify(verdicts)}`);
  }
  return problems;
}

/** Finished or infra_error: which of the two, where the table says so. */
function wrongEnd({ id, state, outcome }: TrialRow, { before, reached, twice }: Looking): string[] {
  const problems: string[] = [];
  if (state !== 'ended') problems.push(`${id} is still ${state}`);
  if (outcome !== 'resolved' && outcome !== 'infra_error') problems.push(`${id} ended as ${String(outcome)}`);
  if (!reached && outcome !== 'resolved')
    problems.push(`${id} was not killed and ended as ${String(outcome)}`);
  if (before === undefined) return problems;
  if (before.phase === 'agent' && outcome !== 'infra_error')
    problems.push(`${id} was killed in the agent's window and ended as ${String(outcome)}`);
  const wanted = before.what === 'infra_error' ? 'infra_error' : 'resolved';
  // Killed a second time, it may meet a phase that cannot be made again.
  if (outcome !== wanted && !(twice && outcome === 'infra_error'))
    problems.push(`${id} died in ${before.phase} (${before.what}) and ended as ${String(outcome)}`);
  return problems;
}

async function wrongRecord({ id, bundle }: TrialRow): Promise<string[]> {
  if (!existsSync(join(bundle, bundleFiles.manifest))) return [`the bundle of ${id} has no manifest`];
  const { ok, problems } = await verifyLedger(bundle);
  const files = await verifyBundleFiles(bundle);
  return [
    ...(ok ? [] : problems.map(({ problem }) => `ledger of ${id}: ${problem}`)),
    ...files.problems.map((problem) => `bundle of ${id}: ${problem}`),
  ];
}

/** A node that may be lent has its proof: the database sees to that. */
async function stillHeld({ db }: Store): Promise<string[]> {
  const leases = await db
    .selectFrom('leases')
    .select(['id', 'state'])
    .where('state', '!=', 'ended')
    .execute();
  const nodes = await db
    .selectFrom('nodes')
    .select(['name', 'state', 'lease'])
    .where((is) => is.or([is('state', 'not in', ['available', 'quarantined']), is('lease', 'is not', null)]))
    .execute();
  const clusters = await db.selectFrom('clusters').select('id').execute();
  const controllers = await db.selectFrom('controllers').select('id').execute();
  return [
    ...leases.map(({ id, state }) => `the lease ${id} is ${state}`),
    ...nodes.map(({ name, state, lease }) => `${name} is ${state} under ${String(lease)}`),
    ...clusters.map(({ id }) => `the cluster ${id} is in the store`),
    ...controllers.map(({ id }) => `the controller ${id} is in the store`),
  ];
}

async function wrongNotices({ db }: Store, trials: readonly TrialRow[]): Promise<string[]> {
  const rows = await db.selectFrom('notices').select('subject').where('kind', '=', 'trial.ended').execute();
  const told = rows.map(({ subject }) => subject).sort();
  const ended = trials.map(({ id }) => id).sort();
  return JSON.stringify(told) === JSON.stringify(ended) ? [] : [`notices of ends: ${told.join(', ')}`];
}

/** A node is switched on once and cycled once, whoever does it, and never twice in a row. */
async function doubledPower(stateDir: string): Promise<string[]> {
  const begun = (await powerActs(stateDir)).filter(({ state }) => state === 'begin');
  const problems: string[] = [];
  for (const key of new Set(begun.map(({ cluster, node }) => `${cluster} ${node}`))) {
    const acts = begun.filter(({ cluster, node }) => `${cluster} ${node}` === key).map(({ act }) => act);
    if (acts.filter((act) => act === 'on').length > 2)
      problems.push(`${key} was switched on more than twice`);
    if (acts.some((act, index) => act === 'on' && acts[index - 1] === 'on'))
      problems.push(`${key} was switched on twice in a row`);
  }
  return problems;
}
