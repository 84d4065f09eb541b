/** What outlives a cluster's folder, so that a clean record can say what had been there: kept beside the cluster's fence. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../../core/errors.js';
import { fenceFolder } from './fence.js';

const pastSchema = z.object({
  imageHash: z.string(),
  /** The last that had the cluster. */
  generation: z.number(),
  uidBase: z.number(),
  /** Host keys by node. */
  hostKeys: z.record(z.string(), z.string()),
});

export type Past = z.infer<typeof pastSchema>;

/** undefined where no cluster of that id was ever made here, or it was long ago. */
export async function pastOf(stateFolder: string, id: string): Promise<Past | undefined> {
  const text = await readIfThere(join(fenceFolder(stateFolder, id), 'past.json'));
  return text === undefined ? undefined : pastSchema.parse(JSON.parse(text));
}

/** The last boot of a node that was seen before it was switched off. */
export async function lastBootOf(stateFolder: string, id: string, node: string): Promise<string | null> {
  return (await readIfThere(join(fenceFolder(stateFolder, id), `boot.${node}`)))?.trim() ?? null;
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
