/** Every power act of a backend of this machine, as its own children wrote it down: what a crash test counts. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../../core/errors.js';

const powerActSchema = z.object({
  atMs: z.number(),
  cluster: z.string(),
  node: z.string(),
  generation: z.number(),
  /** `reset` is a virtual machine's, which stays on meanwhile. */
  act: z.enum(['on', 'off', 'ask-off', 'reset']),
  /** `begin` without a `done` behind it: the child that acted was killed. */
  state: z.enum(['begin', 'done']),
  /** The node's BMC was asked for it over the network, by whoever; absent: the controller itself acted. */
  via: z.literal('bmc').optional(),
});

/** A node that was switched, not one that was found as it should be: such an act leaves no line. */
export type PowerAct = z.infer<typeof powerActSchema>;

export const powerLogPath = (stateFolder: string): string => join(stateFolder, 'power.log');

/** All acts of a state folder, the oldest first; cycle and reset are `off` and `on`. */
export async function powerActs(stateFolder: string): Promise<PowerAct[]> {
  let text: string;
  try {
    text = await readFile(powerLogPath(stateFolder), 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
  return text
    .split('\n')
    .filter(Boolean)
    .map((line) => powerActSchema.parse(JSON.parse(line)));
}
