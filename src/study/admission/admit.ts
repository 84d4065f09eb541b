/** Runs what admission asks for, on fresh nodes each time, and writes down whether the task is fit to count. */
import pLimit from 'p-limit';
import { throwIfAborted } from '../../core/clock.js';
import { silentHost } from '../../core/io.js';
import { lintTask } from '../../trial/task/lint.js';
import type { TaskPackage } from '../../trial/task/schema.js';
import type { TrialEnvironment } from '../../trial/run/trial.js';
import { imageLayers } from '../../trial/run/set-up.js';
import { runAttempt } from '../attempt/attempt.js';
import { ensureControl } from '../attempt/control.js';
import { checkersHash, saveAdmission, type Admission, type AdmissionRun } from './admission-file.js';
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
  const { environment, task, repeat, parallel, signal } = options;
  const image = await environment.backend.prepareImage(imageLayers(task), environment.io, signal);
  await ensureControl(environment, { task, signal, admitted: false });
  const agents = plan(task, repeat);
  const needles = await taskNeedles(task.dir);
  const traces = new Set<string>();
  const limit = pLimit(parallel);
  let done = 0;
  const runs = await Promise.all(
    agents.map((agent, index) =>
      limit(async () => {
        const run = await trial(options, agent, index, async (cluster) => {
          if (agent !== 'noop') return;
          for (const node of task.definition.environment.nodes.filter((each) => each.agent)) {
            for (const trace of await searchTraces(cluster, node.name, needles)) traces.add(trace);
          }
        });
        options.onRun(run, ++done, agents.length);
        return run;
      }),
    ),
  );
  throwIfAborted(signal);
  const lint = (await lintTask(task, environment.checkers))
    .filter(({ severity }) => severity === 'error')
    .map(({ message }) => message);
  const problems = brokenClauses({ definition: task.definition, runs, repeat, lint, traces: [...traces] });
  const admission: Admission = {
    version: 1,
    task: task.definition.task.name,
    admitted: problems.length === 0,
    problems,
    date: new Date(environment.clock.now()).toISOString().slice(0, 10),
    hashes: { task: task.hash, checkers: await checkersHash(), image },
    versions: { infrabed: environment.version, node: process.version },
    repeat,
    flakeRate: flakeRate(runs),
    risk: 'not measured',
    traces: { searched: needles.length, found: [...traces] },
    runs,
  };
  return { admission, path: await saveAdmission(task, admission) };
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
