/** Processes of the host that belong to a cluster: found by mark, by command line and by owner. */
import { readFile, readdir, stat } from 'node:fs/promises';
import { errnoOf } from '../../../core/errors.js';
import { isClusterId } from './cluster-state.js';
import { rangeSize } from './uid-range.js';

/** In the environment of every process that acts on a cluster: `INFRABED_CLUSTER=TAG-ID:GENERATION`. */
export const markName = 'INFRABED_CLUSTER';

export interface HostProcess {
  pid: number;
  command: string[];
  environment: string[];
  uid: number;
}

/** All that can be read now; one that ends meanwhile is left out. */
export async function hostProcesses(): Promise<HostProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(pids.map(readProcess));
  return found.filter((one): one is HostProcess => one !== undefined);
}

async function readProcess(pid: number): Promise<HostProcess | undefined> {
  const place = `/proc/${String(pid)}`;
  const words = async (name: string): Promise<string[]> =>
    (await readFile(`${place}/${name}`, 'utf8')).split('\0').filter(Boolean);
  try {
    const { uid } = await stat(place);
    return { pid, uid, command: await words('cmdline'), environment: await words('environ') };
  } catch (error) {
    // Ended, or a zombie, or not ours to read: none of them acts on a cluster.
    if (['ENOENT', 'ESRCH', 'EACCES', 'EPERM'].includes(errnoOf(error) ?? '')) return undefined;
    throw error;
  }
}

/** The highest generation of each cluster of a state folder for which a process acts. */
export function markedGenerations(processes: readonly HostProcess[], tag: string): Map<string, number> {
  const found = new Map<string, number>();
  const prefix = `${markName}=${tag}-`;
  for (const word of processes.flatMap(({ environment }) => environment)) {
    const [, id = '', number] =
      (word.startsWith(prefix) && /^(.+):(\d+)$/.exec(word.slice(prefix.length))) || [];
    if (number !== undefined && isClusterId(id)) found.set(id, Math.max(found.get(id) ?? 0, Number(number)));
  }
  return found;
}

/** Pids of what acts on the cluster, keeps its nodes, or is owned by its users. */
export function processesOf(
  processes: readonly HostProcess[],
  cluster: { tag: string; id: string; folder: string; uidBase?: number },
): number[] {
  const mark = `${markName}=${cluster.tag}-${cluster.id}:`;
  const { uidBase } = cluster;
  const isOf = (one: HostProcess): boolean =>
    one.environment.some((word) => word.startsWith(mark)) ||
    one.command.some((word) => word === cluster.folder || word.startsWith(`${cluster.folder}/`)) ||
    (uidBase !== undefined && one.uid >= uidBase && one.uid < uidBase + rangeSize);
  return processes.filter(isOf).map(({ pid }) => pid);
}
