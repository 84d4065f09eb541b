/** A range of 65,536 user ids of the host for each cluster, shared with no other cluster of this machine. */
import { readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../../core/errors.js';
import { runtimeDir } from '../../../core/paths.js';

export const rangeSize = 65_536;
/** 0x70000000 to 0x7fff0000: above what systemd, useradd and container engines hand out (systemd's UIDS-GIDS). */
const firstRange = 0x7000;
const lastRange = 0x7ffe;

/**
 * Where ranges are claimed, and which there are: a file made exclusively (by make_cluster.py) is a claim, and holds its
 * owner, the cluster's folder. All state folders of the machine share the registry.
 */
export const uidRegistry = {
  folder: join(runtimeDir, 'uid-ranges'),
  first: firstRange,
  last: lastRange,
  size: rangeSize,
};

const registry = (): string => uidRegistry.folder;

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

/** Who has claimed the range that begins there, if anybody. */
export const rangeOwnerOf = (uidBase: number): Promise<string | undefined> =>
  rangeOwner(join(registry(), String(uidBase / rangeSize)));

async function rangeOwner(path: string): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
