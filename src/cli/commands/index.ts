/** Every command there is: the explicit list that `infrabed --help` shows. */
import type { CommandModule } from 'yargs';
import { toYargs, type CliNoun, type Face } from '../command.js';
import { calendarCommand } from './calendar.js';
import { clockNoun } from './clock.js';
import { clusterNoun } from './cluster.js';
import { doctorCommand } from './doctor.js';
import { imageNoun } from './image.js';
import { leaseNoun } from './lease.js';
import { ledgerNoun } from './ledger.js';
import { nodeNoun } from './node.js';
import { reserveCommand } from './reserve.js';
import { resumeCommand } from './resume.js';
import { runCommand } from './run.js';
import { serveCommand } from './serve.js';
import { siteNoun } from './site.js';
import { slotsCommand } from './slots.js';
import { sweepCommand } from './sweep.js';
import { taskNoun } from './task.js';
import { trialNoun } from './trial.js';
import { userNoun } from './user.js';

export const commands: readonly ((face: Face) => CommandModule<object, never>)[] = [
  (face) => toYargs(runCommand, face),
  (face) => toYargs(reserveCommand, face),
  (face) => toYargs(slotsCommand, face),
  (face) => toYargs(calendarCommand, face),
  (face) => toYargs(resumeCommand, face),
  (face) => toYargs(doctorCommand, face),
  (face) => toYargs(serveCommand, face),
  (face) => toYargs(sweepCommand, face),
];

export const nouns: readonly CliNoun[] = [
  taskNoun,
  trialNoun,
  leaseNoun,
  nodeNoun,
  siteNoun,
  clusterNoun,
  imageNoun,
  ledgerNoun,
  userNoun,
  clockNoun,
];
