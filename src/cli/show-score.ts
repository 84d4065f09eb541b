/** A trial's score on standard output, and the exit status that goes with it. */
import { terminalReport } from '../review/report/index.js';
import type { TrialScore } from '../review/score/score.js';
import { reportPath } from '../study/attempt/attempt.js';
import type { Face } from './command.js';

const notGraded: ReadonlySet<string> = new Set(['infra_error', 'verifier_error', 'cancelled']);

/** The scorecard of one trial, or what there is where it was not graded. */
export function showScore(
  score: TrialScore,
  json: boolean,
  face: Face,
  options: { onServer?: boolean } = {},
): void {
  if (notGraded.has(score.outcome)) face.exitStatus = 3;
  if (json) {
    face.printJson(score);
    return;
  }
  if (['infra_error', 'cancelled'].includes(score.outcome)) {
    // Of gates that were not reached there is nothing to show, and nothing is claimed.
    face.print(`${score.task}  ${score.agent}  ${score.trial}: ${score.outcome}`);
    face.print(`what was gathered: ${score.bundle}`);
    face.print('');
    return;
  }
  for (const line of terminalReport(score, { colour: face.interactive, columns: face.columns }))
    face.print(line);
  face.print(
    options.onServer === true
      ? `report: infrabed trial report ${score.trial} --format html > ${score.trial}.html`
      : `report: ${reportPath(score.bundle)}`,
  );
  face.print('');
}
