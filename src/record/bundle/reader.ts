/** Reads a bundle and holds every file of it against its schema: what comes out can be trusted in shape. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { z } from 'zod';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import { linesOf } from '../ledger/lines.js';
import {
  bundleFiles,
  driftFileSchema,
  evidenceSchema,
  manifestSchema,
  type DriftFile,
  type EvidenceRecord,
  type Manifest,
} from './schema.js';

export interface Bundle {
  /** Absolute. */
  dir: string;
  manifest: Manifest;
  /** In the order in which it was gathered. */
  evidence: EvidenceRecord[];
  /** null when the trial ended before facts were compared. */
  drift: DriftFile | null;
}

/** @throws InfrabedError IB_BUNDLE_INVALID with file, line, key and what was expected there. */
export async function readBundle(dir: string): Promise<Bundle> {
  const absolute = resolve(dir);
  const manifest = await readManifest(absolute);
  const drift = await readJson(join(absolute, bundleFiles.drift), driftFileSchema, 'optional');
  return { dir: absolute, manifest, evidence: await readEvidence(absolute), drift: drift ?? null };
}

/** @throws InfrabedError IB_BUNDLE_INVALID. */
export async function readManifest(dir: string): Promise<Manifest> {
  const manifest = await readJson(join(dir, bundleFiles.manifest), manifestSchema, 'optional');
  if (manifest !== undefined) return manifest;
  throw new InfrabedError(
    'IB_BUNDLE_INVALID',
    `${dir} has no ${bundleFiles.manifest}: it is no bundle, or its trial did not end.`,
    {
      hint: 'Name the folder that a trial left ("infrabed trial list" shows them).',
    },
  );
}

/** Reads one JSON file of a bundle; undefined where an optional one is not there. */
export async function readJson<T>(
  path: string,
  schema: z.ZodType<T>,
  presence?: 'optional',
): Promise<T | undefined> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (presence === 'optional' && errnoOf(error) === 'ENOENT') return undefined;
    throw unreadable(path, error);
  }
  return check(path, undefined, text, schema);
}

async function readEvidence(dir: string): Promise<EvidenceRecord[]> {
  const path = join(dir, bundleFiles.evidence);
  const records: EvidenceRecord[] = [];
  let number = 0;
  try {
    for await (const lines of linesOf(path)) {
      for (const line of lines) {
        number += 1;
        if (!line.complete) throw invalid(path, number, 'the line has no end: the file was cut off');
        records.push(check(path, number, line.bytes.toString('utf8'), evidenceSchema));
      }
    }
  } catch (error) {
    throw error instanceof InfrabedError ? error : unreadable(path, error);
  }
  return records;
}

function check<T>(path: string, line: number | undefined, text: string, schema: z.ZodType<T>): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(path, line, messageOf(error));
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const key = issue?.path.map(String).join('.') ?? '';
  throw invalid(
    path,
    line,
    `${key === '' ? '' : `${key}: `}${issue?.message ?? 'it does not fit the schema'}`,
  );
}

function invalid(path: string, line: number | undefined, what: string): InfrabedError {
  const place = line === undefined ? path : `${path}:${String(line)}`;
  return new InfrabedError('IB_BUNDLE_INVALID', `${place}: ${what}.`, {
    hint: 'The bundle was altered or cut off after it was written; take it from its source again.',
    details: { path, line: line ?? null },
  });
}

function unreadable(path: string, error: unknown): InfrabedError {
  const what = errnoOf(error) === 'ENOENT' ? 'this file of the bundle is missing' : messageOf(error);
  return new InfrabedError('IB_BUNDLE_INVALID', `${path}: ${what}.`, { cause: error, details: { path } });
}
