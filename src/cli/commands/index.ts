/** Every command there is: the explicit list that `infrabed --help` shows. */
import type { CommandModule } from 'yargs';
import { toYargs, type CliNoun, type Face } from '../command.js';
import { clusterNoun } from './cluster.js';
import { doctorCommand } from './doctor.js';
import { imageNoun } from './image.js';
import { ledgerNoun } from './ledger.js';
import { runCommand } from './run.js';
import { serveCommand } from './serve.js';
import { sweepCommand } from './sweep.js';
import { taskNoun } from './task.js';
import { trialNoun } from './trial.js';
import { userNoun } from './user.js';

export const commands: readonly ((face: Face) => CommandModule<object, never>)[] = [
  (face) => toYargs(runCommand, face),
  (face) => toYargs(doctorCommand, face),
  (face) => toYargs(serveCommand, face),
  (face) => toYargs(sweepCommand, face),
];

export const nouns: readonly CliNoun[] = [taskNoun, trialNoun, clusterNoun, imageNoun, ledgerNoun, userNoun];
