/** What runs on the nodes when the window opens, and the end of what logins left behind when it closes. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { InfrabedError, messageOf } from '../../core/errors.js';
import type { Journal } from '../../core/journal.js';
import { asset } from '../../core/paths.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';

export const unitSnapshotSchema = z.object({
  units: z.array(z.object({ Id: z.string() })),
  at: z.number(),
  uptime: z.number(),
});
export type UnitSnapshot = z.output<typeof unitSnapshotSchema>;

const process = z.object({ pid: z.number(), command: z.string(), cgroup: z.string().optional() });
const closedSchema = z.object({
  killedUnits: z.array(z.string()),
  killedProcesses: z.array(process),
  stillActive: z.array(z.string()),
  newUnits: z.array(z.string()),
  newProcesses: z.array(process),
  /** Why systemd could not be asked; the processes were told apart by their control groups then. */
  silence: z.string().optional(),
});
export type ClosedNode = z.output<typeof closedSchema>;

/** Also for an emulated machine, on which a script takes ten seconds to start. */
const timeoutMs = 180_000;

async function nodeUnits(cluster: Cluster, node: string, ...args: readonly string[]): Promise<unknown> {
  const script = await readFile(asset('src/trial/run/node-units.py'), 'utf8');
  const result = await cluster.exec(node, {
    argv: ['/usr/bin/python3', '-I', '-', ...args],
    stdin: script,
    timeoutMs,
  });
  if (result.exitCode !== 0) {
    throw new InfrabedError(
      'IB_NODE_FAILED',
      `The units of ${node} could not be read: ${result.stderr.trim()}`,
    );
  }
  return JSON.parse(result.stdout);
}

/** Units that run on a node now. @throws InfrabedError IB_NODE_FAILED, IB_NODE_UNREACHABLE. */
export async function snapshotUnits(cluster: Cluster, node: string): Promise<UnitSnapshot> {
  return unitSnapshotSchema.parse(await nodeUnits(cluster, node, 'list'));
}

/**
 * Ends on every node what was started by a login since its snapshot. Returns one sentence for each node that could
 * not be asked any more: that is written down, and the gates find out whose doing it is.
 */
export async function closeNodes(
  cluster: Cluster,
  snapshots: ReadonlyMap<string, UnitSnapshot>,
  journal: Journal,
): Promise<string[]> {
  const silent: string[] = [];
  await Promise.all(
    [...snapshots].map(async ([node, snapshot]) => {
      const record = (payload: Record<string, unknown>): void => {
        journal.record({ kind: 'node.close', actor: 'controller', node, payload });
      };
      try {
        record(closedSchema.parse(await nodeUnits(cluster, node, 'close', JSON.stringify(snapshot))));
      } catch (error) {
        record({ failed: messageOf(error) });
        silent.push(
          `What logins left running on ${node} could not be ended before grading: ${messageOf(error)}`,
        );
      }
    }),
  );
  return silent;
}
