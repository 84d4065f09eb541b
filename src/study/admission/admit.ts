/** Runs what admission asks for, on fresh nodes each time, and writes down whether the task is fit to count. */
import pLimit from 'p-limit';
import { throwIfAborted } from '../../core/clock.js';
import { silentHost } from '../../core/io.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';
import { lintTask } from '../../trial/task/lint.js';
import type { TaskPackage } from '../../trial/task/schema.js';
import type { TrialEnvironment } from '../../trial/run/trial.js';
import { imageLayers } from '../../trial/run/set-up.js';
import { runAttempt } from '../attempt/attempt.js';
import { ensureControl } from '../attempt/control.js';
import { saveAdmission, type Admission, type AdmissionRun } from './admission-file.js';
import { checkersHash } from './checkers-hash.js';
import { brokenClauses, flakeRate } from './criteria.js';
import { searchTraces, taskNeedles } from './traces.js';

export interface AdmissionOptions {
  environment: TrialEnvironment;
  task: TaskPackage;
  /** Runs of the reference solution. */
  repeat: number;
  /** Trials side by side. */
  parallel: number;
  signal: AbortSignal;
  onRun: (run: AdmissionRun, done: number, total: number) => void;
}

/**
 * Admits a task or says why not; either way admission.json is written beside it.
 * @throws InfrabedError IB_CANCELLED, or when trials cannot be run at all.
 */
export async function admit(options: AdmissionOptions): Promise<{ admission: Admission; path: string }> {
  const { environment, task, repeat, signal } = options;
  // Taken before the first trial: what changes meanwhile must not count as admitted.
  const hashes = {
    task: task.hash,
    checkers: await checkersHash(task),
    image: await environment.backend.prepareImage(imageLayers(task), environment.io, signal),
  };
  await ensureControl(environment, { task, signal, admitted: false });
  const needles = await taskNeedles(task.dir);
  const { runs, traces } = await runAll(options, needles);
  const lint = (await lintTask(task, environment.checkers))
    .filter(({ severity }) => severity === 'error')
    .map(({ message }) => message);
  const problems = brokenClauses({ definition: task.definition, runs, repeat, lint, traces });
  const admission: Admission = {
    version: 1,
    task: task.definition.task.name,
    admitted: problems.length === 0,
    problems,
    date: new Date(environment.clock.now()).toISOString().slice(0, 10),
    hashes,
    versions: { infrabed: environment.version, node: process.version },
    repeat,
    flakeRate: flakeRate(runs),
    risk: 'not measured',
    traces: { searched: needles.length, found: traces },
    runs,
  };
  return { admission, path: await saveAdmission(task, admission) };
}

/** Every trial of the plan. When one cannot be run at all, the others are ended in order before that is told. */
async function runAll(
  options: AdmissionOptions,
  needles: readonly string[],
): Promise<{ runs: AdmissionRun[]; traces: string[] }> {
  const { task, repeat, signal } = options;
  const agents = plan(task, repeat);
  const traces = new Set<string>();
  const giveUp = new AbortController();
  const together = { ...options, signal: AbortSignal.any([signal, giveUp.signal]) };
  const limit = pLimit(options.parallel);
  let done = 0;
  const results = await Promise.allSettled(
    agents.map((agent, index) =>
      limit(async () => {
        throwIfAborted(together.signal);
        try {
          const run = await trial(together, agent, index, async (cluster) => {
            if (agent === 'noop')
              for (const trace of await tracesOn(cluster, task, needles)) traces.add(trace);
          });
          options.onRun(run, ++done, agents.length);
          return run;
        } catch (error) {
          giveUp.abort(error);
          throw error;
        }
      }),
    ),
  );
  throwIfAborted(signal);
  if (giveUp.signal.aborted) throw giveUp.signal.reason;
  const runs = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  return { runs, traces: [...traces] };
}

async function tracesOn(cluster: Cluster, task: TaskPackage, needles: readonly string[]): Promise<string[]> {
  const nodes = task.definition.environment.nodes.filter((node) => node.agent);
  const found = await Promise.all(nodes.map((node) => searchTraces(cluster, node.name, needles)));
  return found.flat();
}

/** Reference solutions, idle run and every mutant; the order says what is learned first. */
function plan(task: TaskPackage, repeat: number): string[] {
  return [
    'oracle',
    'noop',
    'oracle:alternative',
    ...task.definition.mutants.map((mutant) => `mutant:${mutant.name}`),
    ...Array.from({ length: repeat - 1 }, () => 'oracle'),
  ];
}

type BeforeAgent = NonNullable<Parameters<typeof runAttempt>[1]['beforeAgent']>;

async function trial(
  { environment, task, signal }: AdmissionOptions,
  agent: string,
  index: number,
  beforeAgent: BeforeAgent,
): Promise<AdmissionRun> {
  const startedAt = environment.clock.now();
  const { score } = await runAttempt(
    // Trials side by side would talk over each other; admission tells the outcome of each.
    { ...environment, io: silentHost },
    {
      task,
      admitted: false,
      agent,
      attempt: index + 1,
      network: 'none',
      keep: false,
      agentPaths: [],
      signal,
      beforeAgent,
    },
  );
  return {
    agent,
    outcome: score.outcome,
    reward: score.reward,
    effective: score.effective,
    resolved: score.resolved,
    failed: score.checks
      .filter((check) => check.verdict !== 'pass')
      .map(({ id, gate, verdict }) => ({ id, gate, verdict: verdict === 'error' ? 'error' : 'fail' })),
    seconds: Math.round((environment.clock.now() - startedAt) / 1000),
  };
}
