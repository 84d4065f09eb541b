/** Pieces of a bundle's files for a page: capped, and never through a link that somebody put there. */
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../core/errors.js';

/** What a ledger record says of a stored content (record/bundle/objects). */
export const storedObjectSchema = z.looseObject({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  sizeBytes: z.number(),
  storedHeadBytes: z.number(),
  storedTailBytes: z.number(),
  truncated: z.boolean(),
});
export type Stored = z.output<typeof storedObjectSchema>;

export interface Excerpt {
  sha256: string;
  sizeBytes: number;
  /** Beginning and, of a long content, end. */
  text: string;
  /** Bytes that the page does not show, 0 for a whole content. */
  leftOutBytes: number;
}

const headBytes = 6 * 1024;
const tailBytes = 2 * 1024;

/** What all excerpts of one page together may take. */
export class Budget {
  constructor(private leftBytes: number) {}

  /** True when so much was still left; it is then taken. */
  take(bytes: number): boolean {
    if (bytes > this.leftBytes) return false;
    this.leftBytes -= bytes;
    return true;
  }
}

/** Beginning and end of a stored content. */
export async function excerptOf(objectsDir: string, stored: Stored, budget: Budget): Promise<Excerpt> {
  const { sha256, sizeBytes } = stored;
  const wanted = Math.min(sizeBytes, headBytes + tailBytes);
  if (sizeBytes === 0 || !budget.take(wanted))
    return { sha256, sizeBytes, text: '', leftOutBytes: sizeBytes };
  const names = stored.truncated ? [`${sha256}.head`, `${sha256}.tail`] : [sha256, sha256];
  const whole = sizeBytes <= headBytes + tailBytes;
  const head = await readPart(join(objectsDir, names[0] ?? ''), 'start', whole ? sizeBytes : headBytes);
  const tail = whole ? Buffer.alloc(0) : await readPart(join(objectsDir, names[1] ?? ''), 'end', tailBytes);
  if (head === undefined || tail === undefined) {
    return { sha256, sizeBytes, text: '(this content is not in the bundle)', leftOutBytes: sizeBytes };
  }
  const leftOutBytes = Math.max(0, sizeBytes - head.length - tail.length);
  const gap = leftOutBytes === 0 ? '' : `\n[... ${String(leftOutBytes)} bytes are not shown ...]\n`;
  return { sha256, sizeBytes, text: head.toString('utf8') + gap + tail.toString('utf8'), leftOutBytes };
}

/** Bytes of one end of a regular file; undefined where there is none. A link is not followed. */
export async function readPart(
  path: string,
  end: 'start' | 'end',
  maxBytes: number,
): Promise<Buffer | undefined> {
  let handle: FileHandle;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    if (['ENOENT', 'ELOOP', 'ENXIO', 'ENOTDIR', 'EACCES'].includes(errnoOf(error) ?? '')) return undefined;
    throw error;
  }
  try {
    const state = await handle.stat();
    if (!state.isFile()) return undefined;
    const length = Math.min(state.size, maxBytes);
    const position = end === 'start' ? 0 : state.size - length;
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, position);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}
