/** One node as the other files of this room see it: where its files, groups, console and network are. */
import { open, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../../core/errors.js';
import type { ClusterState, NodeState } from './cluster-state.js';
import { clusterFolder, nodeFolder } from './cluster-state.js';
import { holdingOf, type Holding } from './fence.js';
import { groupPids } from './cgroup.js';
import { clusterNames, nodeGroups, type CgroupLayout, type ClusterNames, type NodeGroups } from './host.js';

export interface NodePlace {
  cluster: ClusterState;
  node: NodeState;
  /** For which generation of the lease this handle acts. */
  holding: Holding;
  names: ClusterNames;
  groups: NodeGroups;
  /** Holds upper, work, merged, console.log, events, desired. */
  folder: string;
  clusterFolder: string;
  consolePath: string;
}

export function nodePlace(
  stateFolder: string,
  layout: CgroupLayout,
  cluster: ClusterState,
  node: NodeState,
): NodePlace {
  const names = clusterNames(cluster.tag, cluster.id);
  const folder = nodeFolder(stateFolder, cluster.id, node.name);
  return {
    cluster,
    node,
    holding: holdingOf(stateFolder, cluster),
    names,
    groups: nodeGroups(layout, cluster.mode, names, node.name),
    folder,
    clusterFolder: clusterFolder(stateFolder, cluster.id),
    consolePath: join(folder, 'console.log'),
  };
}

/** The end of a file, at most `maxBytes`; empty if it is not there. */
export async function fileTail(path: string, maxBytes: number): Promise<string> {
  try {
    const { size } = await stat(path);
    const handle = await open(path, 'r');
    try {
      const length = Math.min(size, maxBytes);
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, size - length);
      return buffer.subarray(0, bytesRead).toString('utf8');
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return '';
    throw error;
  }
}

/** A process that cannot be taken for a later one of the same number. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since the host's boot (field 22 of /proc/PID/stat). */
  startTicks: number;
}

/**
 * The node's init: the one process of its payload that is number 1 one process namespace below ours.
 * Found by the host's own view, so nothing on the node can take its place.
 */
export async function findInit(groups: NodeGroups): Promise<ProcessIdentity | undefined> {
  for (const pid of await groupPids(join(groups.unified, 'payload'))) {
    try {
      const status = await readFile(`/proc/${String(pid)}/status`, 'utf8');
      const numbers = /^NSpid:\s+(.*)$/m.exec(status)?.[1]?.trim().split(/\s+/) ?? [];
      if (numbers.length !== 2 || numbers[1] !== '1' || /^State:\s+Z/m.test(status)) continue;
      return { pid, startTicks: startTicksOf(await readFile(`/proc/${String(pid)}/stat`, 'utf8')) };
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ESRCH') throw error;
    }
  }
  return undefined;
}

function startTicksOf(statLine: string): number {
  // The command name, in parentheses, may hold spaces and parentheses of its own.
  const fields = statLine.slice(statLine.lastIndexOf(')') + 2).split(' ');
  return Number(fields[19]);
}
