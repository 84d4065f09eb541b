/** admission.json beside a task: what was run, what came out, and by which hashes it is known to be still true. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../../core/disk.js';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import type { TaskPackage } from '../../trial/task/schema.js';
import { checkersHash } from './checkers-hash.js';

const failedCheck = z.strictObject({ id: z.string(), gate: z.string(), verdict: z.enum(['fail', 'error']) });

const admissionRunSchema = z.strictObject({
  agent: z.string(),
  outcome: z.string(),
  reward: z.number(),
  effective: z.number(),
  resolved: z.boolean(),
  failed: z.array(failedCheck),
  seconds: z.number(),
});
export type AdmissionRun = z.output<typeof admissionRunSchema>;

const admissionSchema = z.strictObject({
  version: z.literal(1),
  task: z.string(),
  admitted: z.boolean(),
  /** Empty when admitted; otherwise one sentence for each clause that is not met. */
  problems: z.array(z.string()),
  date: z.string(),
  hashes: z.strictObject({ task: z.string(), checkers: z.string(), image: z.string() }),
  versions: z.record(z.string(), z.string()),
  repeat: z.number().int(),
  /** Share of the reference solution's runs that did not resolve the task. */
  flakeRate: z.number(),
  /** Findings about the reference solution: not measured before there is a risk monitor (docs/decisions/0002). */
  risk: z.literal('not measured'),
  /** What the search of nodes and journals for strings of bootstrap, solution and checks looked for and found. */
  traces: z.strictObject({ searched: z.number().int(), found: z.array(z.string()) }),
  runs: z.array(admissionRunSchema),
});
export type Admission = z.output<typeof admissionSchema>;

const admissionFile = (task: TaskPackage): string => join(task.dir, 'admission.json');

export async function saveAdmission(task: TaskPackage, admission: Admission): Promise<string> {
  const path = admissionFile(task);
  await writeFileAtomic(path, `${JSON.stringify(admissionSchema.parse(admission), null, 2)}\n`);
  return path;
}

export interface Standing {
  admitted: boolean;
  /** One sentence: since when, or why not. */
  why: string;
}

/**
 * Whether the task counts. With the hash of the image that a trial runs on, an admission on another image is not one.
 * @throws InfrabedError IB_ADMISSION for a damaged file.
 */
export async function loadAdmission(task: TaskPackage, imageHash?: string): Promise<Standing> {
  let text: string;
  try {
    text = await readFile(admissionFile(task), 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    return { admitted: false, why: 'It was never admitted.' };
  }
  const admission = parse(task, text);
  if (!admission.admitted) return { admitted: false, why: `It failed admission on ${admission.date}.` };
  if (admission.hashes.task !== task.hash)
    return { admitted: false, why: 'The package changed since its admission.' };
  if (admission.hashes.checkers !== (await checkersHash(task))) {
    return { admitted: false, why: 'Checkers that it uses changed since its admission.' };
  }
  if (imageHash !== undefined && admission.hashes.image !== imageHash) {
    return { admitted: false, why: 'It was admitted on another image (package manifest).' };
  }
  return { admitted: true, why: `It was admitted on ${admission.date}.` };
}

function parse(task: TaskPackage, text: string): Admission {
  try {
    return admissionSchema.parse(JSON.parse(text));
  } catch (error) {
    throw new InfrabedError('IB_ADMISSION', `${admissionFile(task)} is damaged: ${messageOf(error)}`, {
      hint: 'Run "infrabed task admit" again, or delete the file.',
      cause: error,
    });
  }
}
