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

/** Memory that one sink, and all sinks of a store together, may take before a file takes over. */
const heldBytesOfSink = 3 * MiB;
const heldBytesOfAll = 24 * MiB;

/** Chunks smaller than this are copied, larger ones are held as they are. */
const copiedBytes = 8 * 1024;

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
  /** The bytes must not be changed afterwards. @throws InfrabedError IB_DISK_FULL. */
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
  /** Memory that the open sinks hold. */
  heldBytes = 0;
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
    return new EndsSink(this, join(this.dir, `.partial-${String(this.sinks)}`), wholeBytes, endBytes);
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
 * First in memory, as a head and a tail that loses its oldest part. When that takes too much, in a file: the head
 * lies at its start and behind it the rest goes round in a ring, so that it never grows beyond `wholeBytes`.
 */
class EndsSink implements ObjectSink {
  sizeBytes = 0;
  private readonly hash: Hash = createHash('sha256');
  private readonly ringBytes: number;
  private head: Buffer[] = [];
  private tail: Buffer[] = [];
  private headBytes = 0;
  private tailBytes = 0;
  private fd: number | undefined;
  private ended = false;

  constructor(
    private readonly store: ObjectStore,
    private readonly path: string,
    private readonly wholeBytes: number,
    private readonly endBytes: number,
  ) {
    this.ringBytes = wholeBytes - endBytes;
  }

  write(chunk: Uint8Array): void {
    if (this.ended || chunk.length === 0) return;
    this.hash.update(chunk);
    const at = this.sizeBytes;
    this.sizeBytes += chunk.length;
    if (this.fd === undefined) this.hold(own(chunk));
    else this.writeAt(at, chunk);
  }

  async end(): Promise<StoredObject> {
    this.ended = true;
    const sha256 = this.hash.digest('hex');
    const { sizeBytes, endBytes } = this;
    const nothing = { sha256, sizeBytes, storedHeadBytes: 0, storedTailBytes: 0, truncated: sizeBytes > 0 };
    if (sizeBytes === 0) return nothing;
    try {
      if (sizeBytes <= this.wholeBytes) {
        const kept = await this.store.keep(sha256, this.first(sizeBytes));
        return kept ? { ...nothing, storedHeadBytes: sizeBytes, truncated: false } : nothing;
      }
      if (!(await this.store.keep(`${sha256}.head`, this.first(endBytes)))) return nothing;
      const kept = await this.store.keep(`${sha256}.tail`, this.last(endBytes));
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
    this.release();
    if (this.fd === undefined) return;
    closeSync(this.fd);
    this.fd = undefined;
    rmSync(this.path, { force: true });
  }

  private release(): void {
    this.store.heldBytes -= this.headBytes + this.tailBytes;
    this.head = this.tail = [];
    this.headBytes = this.tailBytes = 0;
  }

  private hold(chunk: Buffer): void {
    const room = Math.min(chunk.length, this.endBytes - this.headBytes);
    if (room > 0) this.head.push(chunk.subarray(0, room));
    if (room < chunk.length) this.tail.push(chunk.subarray(room));
    this.headBytes += room;
    this.tailBytes += chunk.length - room;
    this.store.heldBytes += chunk.length;
    this.forget();
    const here = this.headBytes + this.tailBytes;
    if (here > heldBytesOfSink || this.store.heldBytes > heldBytesOfAll) this.moveToFile();
  }

  /** Drops what no end needs any more. */
  private forget(): void {
    if (this.sizeBytes <= this.wholeBytes) return;
    for (;;) {
      const oldest = this.tail[0];
      if (!oldest || this.tailBytes - oldest.length < this.endBytes) return;
      this.tail.shift();
      this.tailBytes -= oldest.length;
      this.store.heldBytes -= oldest.length;
    }
  }

  private moveToFile(): void {
    const [head, tail] = [Buffer.concat(this.head), Buffer.concat(this.tail)];
    try {
      this.fd = openSync(this.path, 'wx+', 0o600);
    } catch (error) {
      this.abandon();
      throw diskFault(error, this.store.dir);
    }
    this.release();
    this.writeAt(0, head);
    this.writeAt(this.sizeBytes - tail.length, tail);
  }

  private writeAt(offset: number, bytes: Uint8Array): void {
    try {
      for (const { position, at, length } of this.pieces(offset, bytes.length)) {
        if (this.fd === undefined) return;
        writeFully(this.fd, bytes.subarray(position - offset, position - offset + length), at);
      }
    } catch (error) {
      this.abandon();
      throw diskFault(error, this.store.dir);
    }
  }

  /** The stretch [offset, offset + length) of the content, cut where the ring turns; `at` is its place in the file. */
  private *pieces(
    offset: number,
    length: number,
  ): Generator<{ position: number; at: number; length: number }> {
    const stop = offset + length;
    let position = offset;
    while (position < stop) {
      const inRing = position >= this.endBytes;
      const turn = inRing ? (position - this.endBytes) % this.ringBytes : 0;
      const at = inRing ? this.endBytes + turn : position;
      const room = inRing ? this.ringBytes - turn : this.endBytes - position;
      const part = Math.min(room, stop - position);
      yield { position, at, length: part };
      position += part;
    }
  }

  private first(length: number): Buffer {
    if (this.fd !== undefined) return this.readAt(this.fd, 0, length);
    return Buffer.concat([...this.head, ...this.tail], length);
  }

  private last(length: number): Buffer {
    if (this.fd !== undefined) return this.readAt(this.fd, this.sizeBytes - length, length);
    return Buffer.concat(this.tail).subarray(-length);
  }

  private readAt(fd: number, offset: number, length: number): Buffer {
    const out = Buffer.alloc(length);
    for (const piece of this.pieces(offset, length)) {
      readSync(fd, out, piece.position - offset, piece.length, piece.at);
    }
    return out;
  }
}

/** Small pieces are copied, or each would keep alive the large buffer that it was cut from. */
function own(chunk: Uint8Array): Buffer {
  if (chunk.length < copiedBytes) return Buffer.from(chunk);
  return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
}

function writeFully(fd: number, bytes: Uint8Array, at: number): void {
  let done = 0;
  while (done < bytes.length) done += writeSync(fd, bytes, done, bytes.length - done, at + done);
}
