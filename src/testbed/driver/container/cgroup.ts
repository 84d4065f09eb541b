/** Control groups of version 2 as the proof of what runs: populated or not, all processes, kill at once, removal. */
import { mkdir, readFile, readdir, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { waitFor } from '../../../core/clock.js';
import { InfrabedError, errnoOf } from '../../../core/errors.js';

/** True if any process is in the group or below it; false if none or if the group is not there. */
export async function isPopulated(group: string): Promise<boolean> {
  try {
    const events = await readFile(join(group, 'cgroup.events'), 'utf8');
    return /^populated 1$/m.test(events);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENODEV') return false;
    throw error;
  }
}

/** Kills everything in the group at once; not even a fork gets away (Linux 5.14). */
export async function killGroup(group: string): Promise<void> {
  try {
    await writeFile(join(group, 'cgroup.kill'), '1');
  } catch (error) {
    // ENOENT: no such group, so nothing runs in it.
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error;
  }
}

/** Kills the group and ends when it is empty. @throws InfrabedError IB_POWER if it does not empty. */
export async function emptyGroup(group: string, timeoutMs = 10_000): Promise<void> {
  await killGroup(group);
  try {
    await waitFor(`${group} to be empty`, async () => ((await isPopulated(group)) ? undefined : true), {
      timeoutMs,
      intervalMs: 5,
    });
  } catch (cause) {
    throw new InfrabedError('IB_POWER', `Processes in ${group} did not end although they were killed.`, {
      hint: 'They hang in the kernel, usually on a disk or a network file system: see "ps -eo pid,stat,wchan,args".',
      cause,
    });
  }
}

/** Folders of the groups below, the deepest first, and the group itself last. */
async function withDescendants(group: string): Promise<string[]> {
  let entries;
  try {
    entries = await readdir(group, { withFileTypes: true });
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENODEV') return [];
    throw error;
  }
  const below = await Promise.all(
    entries.filter((entry) => entry.isDirectory()).map((entry) => withDescendants(join(group, entry.name))),
  );
  return [...below.flat(), group];
}

/** Process ids in the group and below, as this process sees them. */
export async function groupPids(group: string): Promise<number[]> {
  const lists = await Promise.all(
    (await withDescendants(group)).map(async (folder) => {
      try {
        const text = await readFile(join(folder, 'cgroup.procs'), 'utf8');
        return text.split('\n').filter(Boolean).map(Number);
      } catch (error) {
        // Gone since we listed it, or a threaded group, whose processes its parent lists.
        if (['ENOENT', 'ENODEV', 'EOPNOTSUPP'].includes(errnoOf(error) ?? '')) return [];
        throw error;
      }
    }),
  );
  return lists.flat();
}

/** Removes an empty group and those below it. */
export async function removeGroup(group: string): Promise<void> {
  for (const folder of await withDescendants(group)) {
    try {
      await rmdir(folder);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENODEV') throw error;
    }
  }
}

/** As much as systemd's own default for a container; a fork bomb on a node must not take the host with it. */
const maxProcesses = 16_384;

/**
 * Limits the processes of a group that our own supervisor is about to enter, on the hierarchy that counts them.
 * Returns false where this kernel's groups cannot.
 */
export async function limitProcesses(groups: readonly string[], root: string): Promise<boolean> {
  for (const group of groups) await mkdir(group, { recursive: true });
  for (const group of groups) {
    try {
      if (group.startsWith(`${root}/`)) await delegatePids(group, root);
      await writeFile(join(group, 'pids.max'), String(maxProcesses));
      return true;
    } catch (error) {
      // ENOENT, EACCES, EPERM: the counter is not in this hierarchy; EBUSY, EOPNOTSUPP: it cannot be handed down.
      if (!['ENOENT', 'EACCES', 'EPERM', 'EBUSY', 'EOPNOTSUPP'].includes(errnoOf(error) ?? '')) throw error;
    }
  }
  return false;
}

/** Version 2 hands the counter down from group to group. */
async function delegatePids(group: string, root: string): Promise<void> {
  const parents: string[] = [];
  for (let folder = dirname(group); folder.length >= root.length; folder = dirname(folder))
    parents.unshift(folder);
  for (const folder of parents) await writeFile(join(folder, 'cgroup.subtree_control'), '+pids');
}
