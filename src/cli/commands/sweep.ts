/** `infrabed sweep`: what controllers that died left on this machine is removed, and named. */
import { silentHost } from '../../core/io.js';
import { messageOf } from '../../core/errors.js';
import { cleanDue } from '../../testbed/lease/clean-node.js';
import { describeRecovery, type Recovery } from '../../trial/run/recover.js';
import type { Desk } from '../../web/api/operation.js';
import { asRoot } from '../as-root.js';
import type { CliCommand, Face } from '../command.js';
import { openDesk } from '../desk.js';

interface SweepArguments {
  json: boolean;
}

interface Cleaned {
  node: string;
  /** What went wrong, or null. */
  error: string | null;
}

/** Nodes that a crash left half-clean are cleaned and proven so, where there are any. */
async function cleanLeft(desk: Desk, face: Face): Promise<Cleaned[]> {
  const ground = { ...desk, io: face.io, controller: await desk.controller() };
  const outcomes = await cleanDue(ground);
  return outcomes.map(({ node, error }) => ({ node, error: error === undefined ? null : messageOf(error) }));
}

export const sweepCommand: CliCommand<SweepArguments> = {
  command: 'sweep',
  describe:
    'remove what crashed runs left behind: namespaces, mounts, control groups, processes, folders; clean their nodes',
  builder: (yargs) =>
    yargs
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'one JSON object: trials, removed, failed, cleaned',
      })
      .example('$0 sweep', 'clusters of running trials and kept clusters stay'),
  async handler(args, face) {
    if (asRoot(face)) return;
    const opened = await openDesk({ ...face, io: silentHost }, { recovery: false, goOn: true });
    let recovery: Recovery;
    let cleaned: Cleaned[];
    try {
      recovery = await opened.recover();
      cleaned = await cleanLeft(opened.desk, face);
    } finally {
      await opened.close();
    }
    if (recovery.failed.length > 0 || cleaned.some(({ error }) => error !== null)) face.exitStatus = 3;
    if (args.json) {
      face.printJson({ ...recovery, cleaned });
      return;
    }
    const lines = [
      ...describeRecovery(recovery),
      ...cleaned.map(({ node, error }) => (error === null ? `Cleaned: ${node}.` : `${node}: ${error}`)),
    ];
    for (const line of lines.length > 0 ? lines : ['Nothing was left behind.']) face.print(line);
  },
};
