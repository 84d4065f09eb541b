/** `infrabed resume`: trials whose controller died are gone on with, to their end. */
import { InfrabedError } from '../../core/errors.js';
import { printable } from '../../core/printable.js';
import { leftTrials, resumeAttempt, type LeftTrial } from '../../study/attempt/resume.js';
import type { TrialEnvironment } from '../../trial/run/trial.js';
import { asRoot } from '../as-root.js';
import type { CliCommand, Face } from '../command.js';
import { openController } from '../controller.js';
import { showScore } from '../show-score.js';

interface ResumeArguments {
  trial: string | undefined;
  json: boolean;
  'dry-run': boolean;
}

export const resumeCommand: CliCommand<ResumeArguments> = {
  command: 'resume [trial]',
  describe: 'go on with trials whose controller died, from the gate they had reached; the others have ended',
  builder: (yargs) =>
    yargs
      .positional('trial', { type: 'string', describe: 'only this one' })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a trial' })
      .option('dry-run', {
        type: 'boolean',
        default: false,
        describe: 'only show what would be gone on with',
      })
      .example('$0 resume --dry-run', 'what a crash left that can be gone on with')
      .example('$0 resume', 'all of it, one after the other'),
  handler: async (args, face) => {
    if (asRoot(face)) return;
    const controller = await openController(face);
    try {
      const { environment } = controller;
      const left = await wanted(environment, args.trial);
      if (left.length === 0 && !args.json) face.print('There is no trial to go on with.');
      for (const one of left) {
        if (face.signal.aborted) break;
        if (args['dry-run']) announce(one, args.json, face);
        else await goOn(environment, one, args.json, face);
      }
    } finally {
      await controller.close();
    }
  },
};

async function wanted(environment: TrialEnvironment, trial: string | undefined): Promise<LeftTrial[]> {
  const left = await leftTrials(environment);
  if (trial === undefined) return left;
  const found = left.filter((one) => one.trial === trial);
  if (found.length > 0) return found;
  const row = await environment.store.db
    .selectFrom('trials')
    .select(['state', 'outcome'])
    .where('id', '=', trial)
    .executeTakeFirst();
  if (row === undefined) {
    throw new InfrabedError('IB_TRIAL_UNKNOWN', `There is no trial "${trial}".`, {
      hint: 'Run "infrabed resume --dry-run" to see what can be gone on with.',
    });
  }
  const how =
    row.state === 'running' ? 'its controller still runs' : `it ended as ${row.outcome ?? 'sealed'}`;
  throw new InfrabedError('IB_USAGE', `There is nothing to go on with in ${trial}: ${how}.`);
}

function announce(left: LeftTrial, json: boolean, face: Face): void {
  if (json) {
    face.printJson(left);
    return;
  }
  const { trial, task, agent, phase, what, from } = left;
  const how =
    what === 'grade'
      ? 'is sealed, and would be graded'
      : `died in ${phase ?? '?'}, and would go on with ${from ?? '?'}`;
  face.print(`${trial}  ${printable(task)}  ${printable(agent)}  ${how}`);
}

async function goOn(
  environment: TrialEnvironment,
  left: LeftTrial,
  json: boolean,
  face: Face,
): Promise<void> {
  const attempt = await resumeAttempt(environment, left, face.signal);
  if (attempt === undefined) {
    face.io.notify({ type: 'info', message: `Another controller goes on with ${left.trial}.` });
    return;
  }
  showScore(attempt.score, json, face);
  if (attempt.error !== undefined) face.explain(attempt.error);
}
