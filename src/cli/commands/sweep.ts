/** `infrabed sweep`: what controllers that died left on this machine is removed, and named. */
import { silentHost } from '../../core/io.js';
import { describeRecovery } from '../../trial/run/recover.js';
import { asRoot } from '../as-root.js';
import type { CliCommand } from '../command.js';
import { openDesk } from '../desk.js';

interface SweepArguments {
  json: boolean;
}

export const sweepCommand: CliCommand<SweepArguments> = {
  command: 'sweep',
  describe: 'remove what crashed runs left behind: namespaces, mounts, control groups, processes, folders',
  builder: (yargs) =>
    yargs
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'one JSON object: trials, removed, failed',
      })
      .example('$0 sweep', 'clusters of running trials and kept clusters stay'),
  async handler(args, face) {
    if (asRoot(face)) return;
    const opened = await openDesk({ ...face, io: silentHost }, { recovery: false });
    const recovery = await opened.recover();
    await opened.close();
    if (recovery.failed.length > 0) face.exitStatus = 3;
    if (args.json) {
      face.printJson(recovery);
      return;
    }
    const lines = describeRecovery(recovery);
    for (const line of lines.length > 0 ? lines : ['Nothing was left behind.']) face.print(line);
  },
};
