/** One trial and its review, end to end: what `run`, admission and campaigns call. */
import { join } from 'node:path';
import { isInfrabedError, messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import { bundleFiles } from '../../record/bundle/schema.js';
import { gradeBundle, saveScore } from '../../review/score/grade.js';
import type { CheckScore, GateScore, TrialScore } from '../../review/score/score.js';
import { writeHtmlReport } from '../../review/report/index.js';
import { endTrial } from '../../trial/run/end-trial.js';
import { runTrial } from '../../trial/run/run-trial.js';
import type { TrialEnvironment, TrialRequest, TrialResult } from '../../trial/run/trial.js';
import { ensureControl } from './control.js';

export interface Attempt {
  score: TrialScore;
  /** Why the trial did not complete, or why its bundle could not be graded; undefined when all went well. */
  error: unknown;
}

export type AttemptRequest = Omit<TrialRequest, 'control'>;

/**
 * Runs and grades one attempt. Its outcome, errors of ours included, is in the score.
 * @throws InfrabedError when the trial could not even begin, or the control trial that its task needs failed.
 */
export async function runAttempt(environment: TrialEnvironment, request: AttemptRequest): Promise<Attempt> {
  await ensureControl(environment, request);
  const result = await runTrial(environment, { ...request, control: false });
  const about = { task: request.task.definition.task.name, agent: request.agent };
  return concludeAttempt(environment, about, result);
}

/** What of a trial is known without its bundle. */
export interface About {
  task: string;
  agent: string;
}

/** The review of a trial that has ended, and its outcome in the store. */
export async function concludeAttempt(
  environment: TrialEnvironment,
  about: About,
  result: TrialResult,
): Promise<Attempt> {
  const attempt = await review(environment, about, result);
  await remember(environment, attempt.score, result);
  return attempt;
}

async function review(environment: TrialEnvironment, about: About, result: TrialResult): Promise<Attempt> {
  if (result.manifest === undefined) {
    return { score: ungraded(about, result), error: result.error };
  }
  try {
    const graded = await gradeBundle(result.bundle, environment.checkers);
    // The bundle was sealed before cleaning and releasing, which are timed, and may fail, after it.
    const score: TrialScore = { ...graded, timings: result.timings };
    if (result.ending === 'infra_error' && graded.outcome !== 'infra_error') score.outcome = 'infra_error';
    await saveScore(result.bundle, score);
    failpoint('review.scored');
    await writeHtmlReport(result.bundle, score);
    failpoint('review.reported');
    return { score, error: result.error };
  } catch (error) {
    if (!isInfrabedError(error)) throw error;
    environment.io.notify({ type: 'warning', message: `Grading failed: ${messageOf(error)}` });
    return { score: ungraded(about, result), error };
  }
}

/** The score of a trial whose bundle cannot be read: nothing was seen, so nothing is claimed. */
function ungraded({ task, agent }: About, result: TrialResult): TrialScore {
  const none = (): GateScore => ({ verdict: 'none', passed: 0, failed: 0, errors: 0, seconds: 0 });
  const checks: CheckScore[] = [];
  return {
    trial: result.trial,
    task,
    agent,
    outcome: result.ending === 'cancelled' ? 'cancelled' : 'infra_error',
    reward: 0,
    effective: 0,
    safe: true,
    resolved: false,
    timedOut: false,
    gates: { immediate: none(), running: none(), reboot: none(), decommission: none(), window: none() },
    checks,
    unattributed: false,
    bundle: result.bundle,
    timings: result.timings,
  };
}

/** A trial that another controller has taken over meanwhile is that one's to remember. */
async function remember(
  environment: TrialEnvironment,
  score: TrialScore,
  result: TrialResult,
): Promise<void> {
  const { outcome, reward } = score;
  await endTrial(
    environment,
    result.trial,
    { outcome, reward },
    {
      controller: environment.controller,
      async also(db) {
        await db.deleteFrom('checks').where('trial', '=', result.trial).execute();
        for (const { id, gate, verdict, weight } of score.checks) {
          const row = { trial: result.trial, check_id: id, gate, verdict, weight };
          await db.insertInto('checks').values(row).execute();
        }
      },
    },
  );
}

/** Where the page for a person lies in a bundle. */
export function reportPath(bundle: string): string {
  return join(bundle, bundleFiles.report);
}
