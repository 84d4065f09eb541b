/** A range of 65,536 user ids of the host for each cluster, shared with no other cluster of this machine. */
import { mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, errnoOf } from '../../../core/errors.js';
import { runtimeDir } from '../../../core/paths.js';

export const rangeSize = 65_536;
/** 0x70000000 to 0x7fff0000: above what systemd, useradd and container engines hand out (systemd's UIDS-GIDS). */
const firstRange = 0x7000;
const lastRange = 0x7ffe;

const registry = (): string => join(runtimeDir, 'uid-ranges');
const slotPath = (uidBase: number): string => join(registry(), String(uidBase / rangeSize));

/**
 * Takes a free range for the owner (the cluster's folder): a file made exclusively is the claim, so two processes
 * never get the same. All state folders of the machine share the registry.
 * @throws InfrabedError IB_HOST_UNFIT when all ranges are taken.
 */
export async function takeUidRange(owner: string): Promise<number> {
  await mkdir(registry(), { recursive: true, mode: 0o755 });
  const taken = new Set(await readdir(registry()));
  for (let slot = firstRange; slot <= lastRange; slot += 1) {
    if (taken.has(String(slot))) continue;
    try {
      await writeFile(join(registry(), String(slot)), `${owner}\n`, { flag: 'wx' });
      return slot * rangeSize;
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error;
    }
  }
  throw new InfrabedError('IB_HOST_UNFIT', 'All user id ranges of this machine are taken.', {
    hint: 'Run "infrabed sweep" with each state folder in use.',
  });
}

/** Gives a range back, if it is the owner's. */
export async function releaseUidRange(uidBase: number, owner: string): Promise<void> {
  if ((await rangeOwner(slotPath(uidBase))) === owner) await rm(slotPath(uidBase), { force: true });
}

/** Claims by owners for which `isGone` holds are removed; returns their owners. */
export async function sweepUidRanges(isGone: (owner: string) => boolean): Promise<string[]> {
  const removed: string[] = [];
  let slots: string[];
  try {
    slots = await readdir(registry());
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return removed;
    throw error;
  }
  for (const slot of slots) {
    const owner = await rangeOwner(join(registry(), slot));
    if (owner === undefined || !isGone(owner)) continue;
    await rm(join(registry(), slot), { force: true });
    removed.push(owner);
  }
  return removed;
}

/** Cluster folders that hold a range, whatever their state folder. */
export async function rangeOwners(): Promise<string[]> {
  let slots: string[];
  try {
    slots = await readdir(registry());
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
  const owners = await Promise.all(slots.map((slot) => rangeOwner(join(registry(), slot))));
  return owners.filter((owner): owner is string => owner !== undefined && owner !== '');
}

async function rangeOwner(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
