/** Tries what making a node takes: layers that are whole, a namespace and a control group, room on the disk. */
import { mkdir, readdir, statfs } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { throwIfAborted } from '../../../core/clock.js';
import { InfrabedError, errnoOf, isInfrabedError, messageOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import type { ProbeResult } from '../driver.js';
import { removeGroup } from './cgroup.js';
import { clusterNames, hierarchies, stateTag } from './host.js';
import type { ClusterContext } from './cluster.js';
import type { ImageCache } from './image-cache.js';
import { removeNetwork } from './network.js';

/** A node takes 10 to 100 MB; with less than this a boot may fail halfway. */
const leastFreeBytes = 500e6;

/** What stands in the way of a new node, or nothing. What it makes for the trial it removes. */
export async function probeHost(
  context: ClusterContext,
  cache: ImageCache,
  signal?: AbortSignal,
): Promise<ProbeResult> {
  try {
    await roomOnDisk(context.stateFolder);
    await layersAreWhole(cache);
    throwIfAborted(signal);
    // Named like those of a cluster, so that a sweep finds what a killed probe leaves.
    const id = `probe.${randomBytes(4).toString('hex')}`;
    const names = clusterNames(await stateTag(context.stateFolder), id);
    await namespaceCanBeMade(names.netns);
    await groupsCanBeMade(context, names.group);
    throwIfAborted(signal);
    return { ok: true };
  } catch (error) {
    throwIfAborted(signal);
    const code = isInfrabedError(error) ? error.code : 'IB_HOST_UNFIT';
    return { ok: false, code, message: messageOf(error) };
  }
}

async function roomOnDisk(folder: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize >= leastFreeBytes) return;
  const freeMb = Math.floor((bavail * bsize) / 1e6);
  throw new InfrabedError('IB_DISK_FULL', `Only ${String(freeMb)} MB are free for ${folder}.`);
}

/** A layer that is recorded but has lost its files would boot to nothing. */
async function layersAreWhole(cache: ImageCache): Promise<void> {
  for (const record of await cache.list()) {
    const root = join(cache.folderOf(record), 'root');
    const entries = await names(root);
    // A further layer may have changed nothing; the bottom one never.
    if (entries !== undefined && (entries.length > 0 || record.below.length > 0)) continue;
    throw new InfrabedError('IB_IMAGE_BUILD', `The layer ${record.name} has lost its files (${root}).`, {
      hint: 'Run "infrabed image prune", then "infrabed image build".',
    });
  }
}

async function names(folder: string): Promise<string[] | undefined> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

async function namespaceCanBeMade(name: string): Promise<void> {
  await run('ip', ['netns', 'add', name]);
  await removeNetwork(name);
}

async function groupsCanBeMade({ layout }: ClusterContext, below: string): Promise<void> {
  if (layout.unified === undefined)
    throw new InfrabedError('IB_HOST_UNFIT', 'There is no cgroup2 file system on this machine.');
  for (const root of hierarchies(layout)) {
    await mkdir(join(root, below), { recursive: true });
    await removeGroup(join(root, below));
  }
}
