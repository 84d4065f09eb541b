/** What a controller that goes on with another's bundle does with the evidence it finds there. */
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryName, writeFileAtomic } from '../../core/disk.js';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import { bundleFiles, evidenceSchema, type EvidenceRecord } from './schema.js';

/**
 * Puts copies in the place of the files that a controller keeps open while it writes: one that was only stopped, and
 * wakes, then writes into files that nobody sees any more.
 */
export async function disown(dir: string): Promise<void> {
  for (const name of [bundleFiles.ledger, bundleFiles.evidence]) {
    try {
      await writeFileAtomic(join(dir, name), await readFile(join(dir, name)), 0o600);
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
  }
}

/** Removes what was being written and is not at its place yet: nothing refers to it, and a sealed bundle must not hold it. */
export async function dropHalfFiles(dir: string): Promise<void> {
  const task = join(dir, bundleFiles.task);
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && temporaryName.test(entry.name) && !path.startsWith(task)) await rm(path);
  }
}

interface Line {
  text: string;
  record: EvidenceRecord;
}

/**
 * Takes the looks of a gate that was not finished out of what is graded, into a file of their own: the gate is made
 * again from its start. Call it before the bundle is opened again. Returns how many there were.
 * @throws InfrabedError IB_BUNDLE_INVALID for a line that is no evidence, IB_DISK_FULL.
 */
export async function setAside(dir: string, moment: EvidenceRecord['moment']): Promise<number> {
  const lines = await wholeLines(join(dir, bundleFiles.evidence));
  const interrupted = lines.filter(({ record }) => record.moment === moment);
  if (interrupted.length === 0) return 0;
  const path = join(dir, bundleFiles.interrupted);
  // A crash between the two writes leaves lines in both files: the next time they are known by their text.
  const before = (await wholeLines(path)).map(({ text }) => text);
  const all = [...new Set([...before, ...interrupted.map(({ text }) => text)])];
  await writeFileAtomic(path, asText(all), 0o600);
  const kept = lines.filter(({ record }) => record.moment !== moment).map(({ text }) => text);
  await writeFileAtomic(join(dir, bundleFiles.evidence), asText(kept), 0o600);
  return interrupted.length;
}

/** By check of a moment: the number of the last look, and when that was over. */
export async function lastLooks(
  dir: string,
  moment: EvidenceRecord['moment'],
): Promise<Map<string, { probe: number; endedAt: number }>> {
  const last = new Map<string, { probe: number; endedAt: number }>();
  for (const { record } of await wholeLines(join(dir, bundleFiles.evidence))) {
    if (record.moment !== moment || record.probe < (last.get(record.check)?.probe ?? 0)) continue;
    last.set(record.check, { probe: record.probe, endedAt: record.at + record.durationMs });
  }
  return last;
}

function asText(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}

/** A last line without its end was cut off by the crash, and says nothing. */
async function wholeLines(path: string): Promise<Line[]> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
  return text
    .split('\n')
    .slice(0, -1)
    .map((line, index) => ({ text: line, record: parse(line, path, index + 1) }));
}

function parse(line: string, path: string, number: number): EvidenceRecord {
  try {
    return evidenceSchema.parse(JSON.parse(line));
  } catch (cause) {
    throw new InfrabedError('IB_BUNDLE_INVALID', `${path}:${String(number)} is no evidence.`, { cause });
  }
}
