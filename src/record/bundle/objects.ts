/**
 * Content kept by its hash: standard input and output of commands, uploaded files.
 * Small content is kept whole, of long content the first and the last MiB; the hash is always of all of it.
 */
import { createHash, type Hash } from 'node:crypto';
import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { mkdir, open, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, InfrabedError } from '../../core/errors.js';

const MiB = 1024 * 1024;

/** Bytes that a sink keeps in memory before it writes them to its file. */
const bufferedBytes = 64 * 1024;

/** What is known of a content afterwards; it stands in ledger records. */
export interface StoredObject {
  /** SHA-256 of the whole content, lower-case hex. */
  sha256: string;
  sizeBytes: number;
  /** Bytes kept from the start: all of them, unless `truncated`. */
  storedHeadBytes: number;
  /** Bytes kept from the end; 0 where the head is the whole. */
  storedTailBytes: number;
  truncated: boolean;
}

export interface ObjectStoreLimits {
  /** Content up to this size is kept whole. Default 2 MiB. */
  wholeBytes: number;
  /** Kept from each end of longer content. Default 1 MiB. */
  endBytes: number;
  /** Of all objects together; beyond it only hashes are kept. Default 4 GiB. */
  totalBytes: number;
}

const defaults: ObjectStoreLimits = { wholeBytes: 2 * MiB, endBytes: MiB, totalBytes: 4096 * MiB };

/** Takes a stream of bytes in bounded memory. Writing is synchronous: it returns when the bytes are taken. */
export interface ObjectSink {
  /** Copies what it keeps. @throws InfrabedError IB_DISK_FULL. */
  write(chunk: Uint8Array): void;
  /** Stores the content under its hash. */
  end(): Promise<StoredObject>;
  /** Forgets everything; for faults. */
  abandon(): void;
  readonly sizeBytes: number;
}

/** The `objects` folder of a bundle: `<sha256>` for a whole, `<sha256>.head` and `<sha256>.tail` for the ends. */
export class ObjectStore {
  private readonly limits: ObjectStoreLimits;
  private readonly unsynced = new Set<string>();
  private usedBytes = 0;
  private sinks = 0;

  private constructor(
    readonly dir: string,
    limits: Partial<ObjectStoreLimits>,
  ) {
    this.limits = { ...defaults, ...limits };
  }

  static async open(dir: string, limits: Partial<ObjectStoreLimits> = {}): Promise<ObjectStore> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    return new ObjectStore(dir, limits);
  }

  async put(bytes: Uint8Array): Promise<StoredObject> {
    const sink = this.stream();
    sink.write(bytes);
    return sink.end();
  }

  /** A sink for content of unknown length; `wholeBytes` overrides the store's own. */
  stream(options: { wholeBytes?: number } = {}): ObjectSink {
    const { endBytes } = this.limits;
    const wholeBytes = Math.max(options.wholeBytes ?? this.limits.wholeBytes, 2 * endBytes);
    this.sinks += 1;
    return new FileSink(this, join(this.dir, `.partial-${String(this.sinks)}`), wholeBytes, endBytes);
  }

  /** Makes all objects durable. */
  async flush(): Promise<void> {
    for (const path of [...this.unsynced, this.dir]) {
      const file = await open(path, 'r');
      try {
        await file.sync();
      } finally {
        await file.close();
      }
      this.unsynced.delete(path);
    }
  }

  /** Keeps `bytes` as a file of that name. False when the store holds all that it may. */
  async keep(name: string, bytes: Uint8Array): Promise<boolean> {
    const path = join(this.dir, name);
    if (await exists(path)) return true;
    if (this.usedBytes + bytes.length > this.limits.totalBytes) return false;
    this.usedBytes += bytes.length;
    this.sinks += 1;
    const partial = join(this.dir, `.partial-${String(this.sinks)}`);
    try {
      await writeFile(partial, bytes, { mode: 0o600 });
      await rename(partial, path);
    } catch (error) {
      rmSync(partial, { force: true });
      throw diskFault(error, this.dir);
    }
    this.unsynced.add(path);
    return true;
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch {
    return false;
  }
}

function diskFault(error: unknown, dir: string): unknown {
  if (errnoOf(error) !== 'ENOSPC' && errnoOf(error) !== 'EDQUOT') return error;
  return new InfrabedError('IB_DISK_FULL', `No space is left for the record in ${dir}.`, {
    hint: 'Free space there, or point INFRABED_STATE_DIR at a larger disk.',
    cause: error,
  });
}

/**
 * The head lies at the start of the file; behind it, the rest goes round in a ring, so that the file never grows
 * beyond `wholeBytes` and still holds the last bytes.
 */
class FileSink implements ObjectSink {
  sizeBytes = 0;
  private readonly hash: Hash = createHash('sha256');
  private pending: Buffer[] = [];
  private pendingBytes = 0;
  /** Position in the content up to which the file has it. */
  private writtenBytes = 0;
  private fd: number | undefined;
  private ended = false;

  constructor(
    private readonly store: ObjectStore,
    private readonly path: string,
    private readonly wholeBytes: number,
    private readonly endBytes: number,
  ) {}

  write(chunk: Uint8Array): void {
    if (this.ended || chunk.length === 0) return;
    this.hash.update(chunk);
    this.sizeBytes += chunk.length;
    this.pending.push(Buffer.from(chunk));
    this.pendingBytes += chunk.length;
    if (this.pendingBytes >= bufferedBytes) this.spill();
  }

  async end(): Promise<StoredObject> {
    this.ended = true;
    const sha256 = this.hash.digest('hex');
    const { sizeBytes, endBytes } = this;
    const nothing = { sha256, sizeBytes, storedHeadBytes: 0, storedTailBytes: 0, truncated: sizeBytes > 0 };
    if (sizeBytes === 0) return nothing;
    try {
      if (sizeBytes <= this.wholeBytes) {
        const kept = await this.store.keep(sha256, this.read(0, sizeBytes));
        return kept ? { ...nothing, storedHeadBytes: sizeBytes, truncated: false } : nothing;
      }
      this.spill();
      if (!(await this.store.keep(`${sha256}.head`, this.read(0, endBytes)))) return nothing;
      const tail = this.read(sizeBytes - endBytes, endBytes);
      const kept = await this.store.keep(`${sha256}.tail`, tail);
      return { ...nothing, storedHeadBytes: endBytes, storedTailBytes: kept ? endBytes : 0 };
    } finally {
      this.drop();
    }
  }

  abandon(): void {
    this.ended = true;
    this.drop();
  }

  private drop(): void {
    this.pending = [];
    if (this.fd === undefined) return;
    closeSync(this.fd);
    this.fd = undefined;
    rmSync(this.path, { force: true });
  }

  private spill(): void {
    const bytes = this.takePending();
    try {
      this.fd ??= openSync(this.path, 'w+', 0o600);
      for (const [offset, part] of this.pieces(this.writtenBytes, bytes.length)) {
        const from = offset - this.writtenBytes;
        writeFully(this.fd, bytes.subarray(from, from + part.length), part.at);
      }
    } catch (error) {
      this.abandon();
      throw diskFault(error, this.store.dir);
    }
    this.writtenBytes += bytes.length;
  }

  private takePending(): Buffer {
    const bytes =
      this.pending.length === 1 ? (this.pending[0] ?? Buffer.alloc(0)) : Buffer.concat(this.pending);
    this.pending = [];
    this.pendingBytes = 0;
    return bytes;
  }

  /** The stretch [offset, offset + length) of the content, cut where the ring turns: [offset, place in the file]. */
  private *pieces(offset: number, length: number): Generator<[number, { at: number; length: number }]> {
    const ringBytes = this.wholeBytes - this.endBytes;
    let position = offset;
    const stop = offset + length;
    while (position < stop) {
      const inRing = position >= this.endBytes;
      const turn = inRing ? (position - this.endBytes) % ringBytes : 0;
      const at = inRing ? this.endBytes + turn : position;
      const room = inRing ? ringBytes - turn : this.endBytes - position;
      const part = Math.min(room, stop - position);
      yield [position, { at, length: part }];
      position += part;
    }
  }

  private read(offset: number, length: number): Buffer {
    if (this.fd === undefined) return this.takePending();
    if (this.pendingBytes > 0) this.spill();
    const out = Buffer.alloc(length);
    for (const [position, part] of this.pieces(offset, length)) {
      readSync(this.fd, out, position - offset, part.length, part.at);
    }
    return out;
  }
}

function writeFully(fd: number, bytes: Uint8Array, at: number): void {
  let done = 0;
  while (done < bytes.length) done += writeSync(fd, bytes, done, bytes.length - done, at + done);
}
