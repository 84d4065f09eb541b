/** Control groups of version 2 as the proof of what runs: populated or not, all processes, kill at once, removal. */
import { readFile, readdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
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
