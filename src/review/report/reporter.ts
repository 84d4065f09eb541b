/** What every reporter is: a trial's score, and the bundle it names, made into one text. */
import type { TrialScore } from '../score/score.js';

export interface RenderOptions {
  /** The text goes to a terminal that shows colours. */
  colour: boolean;
  /** Width of that terminal. */
  columns?: number;
}

export interface Reporter {
  readonly format: string;
  /** @throws InfrabedError IB_BUNDLE_INVALID where it reads the bundle and cannot. */
  render(score: TrialScore, options: RenderOptions): Promise<string>;
}
