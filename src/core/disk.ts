/** Files that are either wholly there or not at all, and what to say when the disk refuses. */
import { randomBytes } from 'node:crypto';
import { link, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf, InfrabedError, isInfrabedError, messageOf } from './errors.js';

/** errno names that mean that no more can be written here (quota and file size limits are full disks too). */
const fullDisk: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EFBIG']);

/** The InfrabedError for a failed file operation; `action` completes "Could not ...". */
export function diskError(error: unknown, action: string, path: string): InfrabedError {
  if (isInfrabedError(error)) return error;
  if (fullDisk.has(errnoOf(error) ?? '')) {
    return new InfrabedError('IB_DISK_FULL', `Could not ${action}: the disk that holds ${path} is full.`, {
      hint: 'Free space there (df -h shows where) and run the trial again.',
      cause: error,
      details: { path, errno: errnoOf(error) },
    });
  }
  return new InfrabedError('IB_STATE_DIR', `Could not ${action}: ${messageOf(error)}.`, {
    hint: 'Check owner, mode and health of the file system.',
    cause: error,
    details: { path, errno: errnoOf(error) ?? null },
  });
}

/**
 * Writes a file beside its place, syncs it and moves it there: readers see the old one or the new one.
 * @throws InfrabedError IB_DISK_FULL or IB_STATE_DIR.
 */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  mode = 0o644,
): Promise<void> {
  await writeBeside(path, content, mode, (temporary) => rename(temporary, path));
}

/**
 * The same for a file that is written once and never replaced: of two processes that think it is theirs, one gets it.
 * @throws InfrabedError IB_STATE_DIR where it is there already, IB_DISK_FULL.
 */
export async function writeFileOnce(path: string, content: string | Uint8Array, mode = 0o644): Promise<void> {
  await writeBeside(path, content, mode, async (temporary) => {
    await link(temporary, path);
    await rm(temporary);
  });
}

/** How a file is called until it is whole. */
export const temporaryName = /\.[0-9a-f]{8}\.tmp$/;

async function writeBeside(
  path: string,
  content: string | Uint8Array,
  mode: number,
  place: (temporary: string) => Promise<void>,
): Promise<void> {
  const temporary = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    const handle = await open(temporary, 'wx', mode);
    try {
      await handle.writeFile(content);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await place(temporary);
    await syncFolder(dirname(path));
  } catch (error) {
    // What cannot be removed either is a lesser evil than hiding the first error.
    await rm(temporary, { force: true }).catch(() => undefined);
    throw diskError(error, `write ${path}`, path);
  }
}

/** Makes names in a folder durable: a synced file whose name was not synced may be gone after a power cut. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
