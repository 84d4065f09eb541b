/** Every command there is: the explicit list that `infrabed --help` shows. */
import type { CommandModule } from 'yargs';
import type { CliNoun, Face } from '../command.js';

export const commands: readonly ((face: Face) => CommandModule<object, never>)[] = [];

export const nouns: readonly CliNoun[] = [];
