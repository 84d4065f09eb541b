/** The kernel's limit on inotify instances, which is the first to be used up where many nodes run at once. */
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../../core/errors.js';
import type { IoHost } from '../../../core/io.js';
import { slice, type CgroupLayout } from './host.js';

/** A booted node holds about eight; all nodes count against root of the host, whoever's uids they have. */
export const inotifyPerNode = 8;
/** For the host's own programs. */
const reserve = 64;
const raisedTo = 1024;
const limitPath = '/proc/sys/fs/inotify/max_user_instances';

export const inotifyAdvice =
  'echo fs.inotify.max_user_instances=1024 > /etc/sysctl.d/60-infrabed.conf && sysctl --system';

/** How many instances are needed for this many nodes. */
export const inotifyNeeded = (nodes: number): number => nodes * inotifyPerNode + reserve;

/** Raises the limit if the new nodes, with those there are, would come near it; says so, or why it could not. */
export async function makeRoomForWatches(newNodes: number, layout: CgroupLayout, io: IoHost): Promise<void> {
  const limit = Number(await readFile(limitPath, 'utf8'));
  const needed = inotifyNeeded(newNodes + (await runningNodes(layout)));
  if (limit >= needed) return;
  const target = Math.max(raisedTo, needed);
  try {
    await writeFile(limitPath, String(target));
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
    const message = `fs.inotify.max_user_instances is ${String(limit)}, about ${String(needed)} are needed: nodes may fail to boot. To raise it: ${inotifyAdvice}`;
    io.notify({ type: 'warning', message });
    return;
  }
  const message = `fs.inotify.max_user_instances was raised from ${String(limit)} to ${String(target)} until the next boot of this machine.`;
  io.notify({ type: 'info', message });
}

/** Nodes of all state folders on this machine. */
async function runningNodes({ unified }: CgroupLayout): Promise<number> {
  if (unified === undefined) return 0;
  const units = (await folders(join(unified, slice))).filter((name) => name.endsWith('.service')).length;
  const clusters = await folders(join(unified, 'infrabed'));
  const own = await Promise.all(
    clusters.map(async (name) => (await folders(join(unified, 'infrabed', name))).length),
  );
  return own.reduce((sum, count) => sum + count, units);
}

async function folders(path: string): Promise<string[]> {
  try {
    const entries = await readdir(path, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}
