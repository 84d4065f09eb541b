/** What outlives the folder of a cluster of virtual machines: kept beside its fence, for the clean record. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../../core/errors.js';
import { fenceFolder } from '../container/fence.js';

const pastSchema = z.object({
  imageHash: z.string(),
  /** The last that had the cluster. */
  generation: z.number(),
  /** Host keys by node. */
  hostKeys: z.record(z.string(), z.string()),
});

/** undefined where no cluster of that id was ever made here. */
export async function pastVms(folder: string, id: string): Promise<z.infer<typeof pastSchema> | undefined> {
  try {
    return pastSchema.parse(JSON.parse(await readFile(join(fenceFolder(folder, id), 'past.json'), 'utf8')));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
