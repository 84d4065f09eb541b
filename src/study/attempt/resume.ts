/** Trials that a dead controller left: gone on with, or graded where only that is left to do. */
import { isInfrabedError } from '../../core/errors.js';
import { readManifest } from '../../record/bundle/reader.js';
import { interruptionOf, type InterruptedTrial } from '../../trial/run/interrupted.js';
import { abandonedTrials, type RecoveryOptions } from '../../trial/run/recover.js';
import { claimTrial, resumeTrial } from '../../trial/run/resume.js';
import type { TrialEnvironment, TrialResult } from '../../trial/run/trial.js';
import { concludeAttempt, type Attempt } from './attempt.js';

/** A trial that waits for somebody to go on with it. */
export interface LeftTrial {
  trial: string;
  task: string;
  agent: string;
  /** The phase its controller died in, or null where it is sealed and only not graded. */
  phase: string | null;
  /** `resume`: from the phase `from` on. `grade`: its bundle is whole. */
  what: 'resume' | 'grade';
  from: string | null;
}

/** Oldest first. What cannot be gone on with was ended by `recover` before. */
export async function leftTrials(options: Pick<RecoveryOptions, 'store' | 'clock'>): Promise<LeftTrial[]> {
  const left: LeftTrial[] = [];
  for (const row of await abandonedTrials(options)) {
    const { what, from, phase } = await interruptionOf(options.store, row);
    if (what === 'resume') left.push({ ...named(row), phase, what, from });
  }
  for (const row of await ungradedTrials(options)) {
    left.push({ ...named(row), phase: null, what: 'grade', from: null });
  }
  return left.sort((one, other) => one.trial.localeCompare(other.trial));
}

function named(row: InterruptedTrial): Pick<LeftTrial, 'trial' | 'task' | 'agent'> {
  return { trial: row.id, task: row.task, agent: row.agent };
}

/** Ended by recovery, which has no checkers to judge by. A control trial is not graded: it is made again. */
function ungradedTrials({ store }: Pick<RecoveryOptions, 'store'>): Promise<InterruptedTrial[]> {
  return store.db
    .selectFrom('trials')
    .selectAll()
    .where('state', '=', 'ended')
    .where('outcome', 'is', null)
    .where('agent', '!=', 'control')
    .execute();
}

/**
 * Takes one over and brings it to its end: gates, seal, clean, release, score and report.
 * @returns undefined when another controller was faster.
 */
export async function resumeAttempt(
  environment: TrialEnvironment,
  { trial, what, task, agent }: LeftTrial,
  signal: AbortSignal,
): Promise<Attempt | undefined> {
  const { store } = environment;
  const row = await store.db
    .selectFrom('trials')
    .selectAll()
    .where('id', '=', trial)
    .executeTakeFirstOrThrow();
  let result: TrialResult;
  try {
    result =
      what === 'resume' ? await resumeTrial(environment, row, signal) : await sealedResult(environment, row);
  } catch (error) {
    if (isInfrabedError(error, 'IB_LEASE_CONFLICT')) return undefined;
    throw error;
  }
  return concludeAttempt(environment, { task, agent }, result);
}

async function sealedResult(environment: TrialEnvironment, row: InterruptedTrial): Promise<TrialResult> {
  const manifest = await readManifest(row.bundle);
  await claimTrial(environment, row);
  const { ending, timings } = manifest;
  return { trial: row.id, bundle: row.bundle, manifest, ending, error: undefined, timings, changes: [] };
}

/** All that wait, one after the other; `onEnd` hears of each that was brought to its end here. */
export async function resumeAll(
  environment: TrialEnvironment,
  options: {
    signal: AbortSignal;
    onBegin?: (left: LeftTrial) => void;
    onEnd: (left: LeftTrial, attempt: Attempt) => void;
  },
): Promise<void> {
  for (const left of await leftTrials(environment)) {
    if (options.signal.aborted) return;
    options.onBegin?.(left);
    const attempt = await resumeAttempt(environment, left, options.signal);
    if (attempt !== undefined) options.onEnd(left, attempt);
  }
}
