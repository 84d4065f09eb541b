/** What a command that acts does first with trials that a dead controller left: it goes on with them. */
import { resumeAll } from '../study/attempt/resume.js';
import type { TrialEnvironment } from '../trial/run/trial.js';
import type { Face } from './command.js';

/** What becomes of them is said as progress: it is not what the command was asked for. */
export async function goOnWithLeft(environment: TrialEnvironment, face: Face): Promise<void> {
  const say = (message: string): void => face.io.notify({ type: 'info', message });
  await resumeAll(environment, {
    signal: face.signal,
    onBegin: ({ trial, task, what, from }) =>
      say(
        what === 'grade'
          ? `${trial} (${task}) was sealed and not graded: grading it`
          : `${trial} (${task}) was broken off: going on with it from ${from ?? 'its last phase'}`,
      ),
    onEnd: ({ trial }, { score, error }) => {
      say(`${trial}: ${score.outcome}, reward ${String(Math.round(score.reward * 1000) / 1000)}`);
      if (error !== undefined) face.explain(error);
    },
  });
}
