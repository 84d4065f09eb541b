/** Holds the files of a bundle against the hashes that its ledger took down before it was sealed. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { readLedger } from '../ledger/reader.js';
import { bundleFiles } from './schema.js';

/** Kind of the ledger record that lists path and SHA-256 of every file, as its payload's `files`. */
export const bundleFilesKind = 'bundle.files';

/** Written by the ledger itself, or by reviews after the seal. */
const afterwards: ReadonlySet<string> = new Set([
  bundleFiles.ledger,
  bundleFiles.seal,
  bundleFiles.manifest,
  bundleFiles.score,
  bundleFiles.report,
]);

const payloadSchema = z.looseObject({ files: z.record(z.string(), z.string()) });

export interface FileCheck {
  /** false when the ledger lists no files (the trial did not come to its end). */
  listed: boolean;
  /** Files that were compared. */
  count: number;
  /** One sentence each: which file was altered, is missing, or was added. */
  problems: string[];
}

/** SHA-256 of every file of a bundle that is not written after the seal, by path relative to the bundle. */
export async function hashBundleFiles(dir: string): Promise<Record<string, string>> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(dir, join(entry.parentPath, entry.name)))
    .filter((path) => !afterwards.has(path))
    .sort();
  const hashes: Record<string, string> = {};
  for (const path of paths) hashes[path] = await hashFile(join(dir, path));
  return hashes;
}

async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

/** What the verified ledger says of the bundle's files, against the files. */
export async function verifyBundleFiles(dir: string): Promise<FileCheck> {
  const listed = await listedFiles(dir);
  if (listed === undefined) return { listed: false, count: 0, problems: [] };
  const found = await hashBundleFiles(dir);
  if (listed.has(bundleFiles.manifest))
    found[bundleFiles.manifest] = await hashFile(join(dir, bundleFiles.manifest));
  const problems: string[] = [];
  for (const [path, hash] of listed) {
    if (found[path] === undefined) problems.push(`${path} is missing`);
    else if (found[path] !== hash)
      problems.push(`${path} was altered: it does not have the hash in the ledger`);
  }
  for (const path of Object.keys(found))
    if (!listed.has(path)) problems.push(`${path} was added after the seal`);
  return { listed: true, count: listed.size, problems };
}

async function listedFiles(dir: string): Promise<Map<string, string> | undefined> {
  let last: Map<string, string> | undefined;
  for await (const record of readLedger(join(dir, bundleFiles.ledger))) {
    if (record.kind !== bundleFilesKind) continue;
    const payload = payloadSchema.safeParse(record.payload);
    if (payload.success) last = new Map(Object.entries(payload.data.files));
  }
  return last;
}
