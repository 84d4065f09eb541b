/** `infrabed sweep`: what controllers that died left on this machine is removed, and named. */
import { systemClock } from '../../core/clock.js';
import { stateDir } from '../../core/paths.js';
import { loadSiteKey } from '../../record/ledger/site-key.js';
import { openStore } from '../../record/store/store.js';
import { backends } from '../../testbed/driver/index.js';
import { describeRecovery, recover } from '../../trial/run/recover.js';
import { asRoot } from '../as-root.js';
import type { CliCommand } from '../command.js';
import { version } from '../version.js';

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
    const dir = stateDir();
    const store = await openStore(dir);
    try {
      const backend = backends.container({ stateDir: dir, clock: systemClock });
      const siteKey = await loadSiteKey(dir);
      const recovery = await recover({
        store,
        backend,
        stateDir: dir,
        siteKey,
        clock: systemClock,
        version: version(),
      });
      if (recovery.failed.length > 0) face.exitStatus = 3;
      if (args.json) {
        face.printJson(recovery);
        return;
      }
      const lines = describeRecovery(recovery);
      for (const line of lines.length > 0 ? lines : ['Nothing was left behind.']) face.print(line);
    } finally {
      await store.close();
    }
  },
};
