/**
 * What a fault-free control trial of a task changes by itself, recorded once a task and image:
 * `<stateDir>/controls/<task hash>-<image hash>.json`.
 */
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import { driftChangeSchema } from '../../record/bundle/schema.js';
import type { DriftChange } from './drift.js';

const controlSchema = z.strictObject({
  version: z.literal(1),
  taskHash: z.string(),
  imageHash: z.string(),
  /** Epoch milliseconds. */
  recordedAt: z.number(),
  changes: z.array(driftChangeSchema),
});
export type ControlRecord = z.output<typeof controlSchema>;

export interface ControlKey {
  taskHash: string;
  imageHash: string;
}

function controlFile(stateDir: string, key: ControlKey): string {
  return join(stateDir, 'controls', `${key.taskHash.slice(0, 32)}-${key.imageHash.slice(0, 32)}.json`);
}

/** The record, or undefined where none was made. @throws InfrabedError IB_STATE_DIR for a file of another shape. */
export async function readControl(stateDir: string, key: ControlKey): Promise<ControlRecord | undefined> {
  const path = controlFile(stateDir, key);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw new InfrabedError('IB_STATE_DIR', `The control record ${path} cannot be read.`, { cause: error });
  }
  try {
    return controlSchema.parse(JSON.parse(text));
  } catch (error) {
    throw new InfrabedError('IB_STATE_DIR', `The control record ${path} is damaged.`, {
      hint: 'Delete the file; the next trial of the task records it anew.',
      cause: error,
    });
  }
}

/** Writes the record whole or not at all; a record that was there is replaced. */
export async function writeControl(
  stateDir: string,
  key: ControlKey,
  changes: readonly DriftChange[],
  recordedAt: number,
): Promise<void> {
  const path = controlFile(stateDir, key);
  const temporary = `${path}.${String(process.pid)}.tmp`;
  const record: ControlRecord = { version: 1, ...key, recordedAt, changes: mergeChanges(changes) };
  try {
    await mkdir(join(stateDir, 'controls'), { recursive: true, mode: 0o700 });
    await writeFile(temporary, JSON.stringify(record, null, 1) + '\n');
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    const full = errnoOf(error) === 'ENOSPC';
    throw new InfrabedError(
      full ? 'IB_DISK_FULL' : 'IB_STATE_DIR',
      `The control record ${path} cannot be written.`,
      {
        cause: error,
      },
    );
  }
}

/** One entry a node, subject and direction, though several gates saw it. */
function mergeChanges(changes: readonly DriftChange[]): DriftChange[] {
  const seen = new Map<string, DriftChange>();
  for (const change of changes) {
    const key = [change.node, change.kind, change.subject, change.change].join('\0');
    if (!seen.has(key)) seen.set(key, change);
  }
  return [...seen.values()];
}
