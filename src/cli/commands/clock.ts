/** `infrabed clock`: what to do when the clock of the machine went back. */
import { clockAccept } from '../../web/api/leases.js';
import { toYargs, type CliCommand, type CliNoun } from '../command.js';
import { perform } from '../perform.js';
import { formatTime } from '../times.js';

const accept: CliCommand<{ json: boolean }> = {
  command: 'accept',
  describe: 'say that the clock is right although it went back; reservations wait for that',
  builder: (yargs) =>
    yargs
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object' })
      .example('$0 clock accept', 'after a wrong clock was set right'),
  handler: async ({ json }, face) => {
    const { before, now } = await perform(face, clockAccept, {});
    if (json) face.printJson({ before, now });
    else
      face.print(
        `from now on it is ${formatTime(Date.parse(now))}; before, ${formatTime(Date.parse(before))} was seen`,
      );
  },
};

export const clockNoun: CliNoun = {
  noun: 'clock',
  describe: 'the clock that reservations go by',
  verbs: (face) => [toYargs(accept, face)],
};
