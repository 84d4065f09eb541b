/** What outlives a cluster's folder, so that a clean record can say what had been there: kept beside the cluster's fence. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../../core/errors.js';

const pastSchema = z.object({
  imageHash: z.string(),
  generation: z.number(),
  uidBase: z.number(),
  nodes: z.record(z.string(), z.object({ hostKey: z.string(), lastBootId: z.string().nullable() })),
});

export type Past = z.infer<typeof pastSchema>;

/** The folder of a cluster's fence: lock, generation and past. It stays when the cluster goes. */
export const fenceFolder = (stateFolder: string, id: string): string => join(stateFolder, 'fences', id);

/** undefined where no cluster of that id was ever made here, or it was long ago. */
export async function pastOf(stateFolder: string, id: string): Promise<Past | undefined> {
  try {
    const text = await readFile(join(fenceFolder(stateFolder, id), 'past.json'), 'utf8');
    return pastSchema.parse(JSON.parse(text));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
