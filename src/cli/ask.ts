/** What destroys something says first what it would do, then asks; without a terminal it takes --yes. */
import type { Argv } from 'yargs';
import { InfrabedError } from '../core/errors.js';
import type { Face } from './command.js';

export interface AskArguments {
  'dry-run': boolean;
  yes: boolean;
}

export function withAsk<A>(yargs: Argv<A>): Argv<A & AskArguments> {
  return yargs
    .option('dry-run', { type: 'boolean', default: false, describe: 'only say what would be done' })
    .option('yes', { type: 'boolean', default: false, describe: 'do not ask' });
}

export interface Consent {
  /** Stable name of the question. */
  id: string;
  /** What would be done, e.g. `clean local/n01`. */
  does: string;
  question: string;
  /** What is said where the answer is no, e.g. `Nothing was cleaned.` */
  refused: string;
}

/**
 * Says what would be done and asks; false after --dry-run.
 * @throws InfrabedError IB_USAGE when the answer is no, or nobody is there to be asked.
 */
export async function consent(face: Face, args: AskArguments, asked: Consent): Promise<boolean> {
  if (args['dry-run']) {
    face.print(`would ${asked.does}`);
    return false;
  }
  if (args.yes || (await face.io.ask({ id: asked.id, message: asked.question, default: false }))) return true;
  throw new InfrabedError('IB_USAGE', asked.refused, { hint: 'Give --yes to do it without a question.' });
}
