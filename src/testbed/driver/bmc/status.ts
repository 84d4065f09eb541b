/** Whether a BMC is up, as its supervisor writes it down. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { waitFor, type Clock } from '../../../core/clock.js';
import { InfrabedError, errnoOf, isInfrabedError } from '../../../core/errors.js';
import { lastLines } from '../../../core/exec.js';

const statusSchema = z.object({
  state: z.enum(['starting', 'ready', 'ended']),
  /** Of ipmi_sim. */
  pid: z.number().nullable(),
  /** How often it was started by this supervisor. */
  starts: z.number(),
  atMs: z.number(),
});

export type BmcStatus = z.infer<typeof statusSchema>;

/** undefined: its supervisor has not got to it yet. */
export async function bmcStatus(folder: string): Promise<BmcStatus | undefined> {
  const text = await readIfThere(join(folder, 'status.json'));
  return text === '' ? undefined : statusSchema.parse(JSON.parse(text));
}

/** Ends when its port answers. @throws InfrabedError IB_BMC_UNREACHABLE with the last words of ipmi_sim. */
export async function waitForBmc(
  folder: string,
  options: { timeoutMs: number; clock?: Clock; signal?: AbortSignal },
): Promise<BmcStatus> {
  const isReady = async (): Promise<BmcStatus | undefined> => {
    const status = await bmcStatus(folder);
    return status?.state === 'ready' ? status : undefined;
  };
  try {
    return await waitFor('the BMC to answer', isReady, { ...options, intervalMs: 20 });
  } catch (cause) {
    if (!isInfrabedError(cause, 'IB_TIMEOUT')) throw cause;
    const words = lastLines(await readIfThere(join(folder, 'ipmi_sim.log')), 3);
    throw new InfrabedError('IB_BMC_UNREACHABLE', `A virtual BMC did not come up: ${words}`, {
      hint: `Its logs are in ${folder}.`,
      cause,
    });
  }
}

async function readIfThere(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return '';
    throw error;
  }
}
