/**
 * Writes the ledger of one trial. A record is in the file when `record` returns, so a killed controller loses
 * nothing; it is synced to disk in batches, so only a power cut of the host may cost the last few.
 */
import { closeSync, fdatasync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { access } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { diskError, syncFolder, writeFileOnce } from '../../core/disk.js';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { canonicalJson } from '../../core/ids.js';
import type { Clock } from '../../core/clock.js';
import type { Journal, JournalEntry } from '../../core/journal.js';
import type { Redactor } from '../../core/log.js';
import { toLine } from './chain.js';
import type { Seal } from './record.js';
import { findEnd } from './resume.js';
import { signText, type SiteKey } from './site-key.js';

const sync = promisify(fdatasync);

export interface LedgerOptions {
  trial: string;
  clock: Clock;
  redactor: Redactor;
  /** How long a record may wait to be synced. Default 50. */
  batchMs?: number;
  /** Told at once when a batch could not be synced; the next `record` or `flush` throws the same error. */
  onError?: (error: InfrabedError) => void;
}

/** Name of the seal, beside the ledger. */
export const sealName = 'ledger.seal.json';

export class LedgerWriter implements Journal {
  private synced: number;
  private syncing: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;
  /** The reason why nothing more can be written. */
  private failure: InfrabedError | undefined;
  private closed = false;

  private constructor(
    private readonly file: string,
    private readonly descriptor: number,
    private readonly options: LedgerOptions,
    private count: number,
    private lastHash: string,
    private sizeBytes: number,
  ) {
    this.synced = sizeBytes;
  }

  /**
   * Opens a ledger, continuing one that is there: a last line that a crash cut off is dropped, and a record
   * (`ledger.torn`) says so.
   * @throws InfrabedError IB_LEDGER_INVALID when its end cannot be continued (damaged, sealed, another trial's).
   */
  static async open(file: string, options: LedgerOptions): Promise<LedgerWriter> {
    if (await isThere(join(dirname(file), sealName))) {
      throw new InfrabedError(
        'IB_LEDGER_INVALID',
        `The ledger ${file} is sealed: nothing can be added to it.`,
      );
    }
    let descriptor: number | undefined;
    try {
      descriptor = openSync(file, 'a+', 0o600);
      const end = findEnd(descriptor, file, options.trial);
      if (end.tornBytes > 0) ftruncateSync(descriptor, end.sizeBytes);
      const writer = new LedgerWriter(file, descriptor, options, end.count, end.lastHash, end.sizeBytes);
      if (end.tornBytes > 0) writer.recordTorn(end.tornBytes);
      await syncFolder(dirname(file));
      return writer;
    } catch (error) {
      if (descriptor !== undefined) closeSync(descriptor);
      throw diskError(error, `open the ledger ${file}`, file);
    }
  }

  /** Number of records. */
  get length(): number {
    return this.count;
  }

  /** Hash of the last record. */
  get head(): string {
    return this.lastHash;
  }

  /**
   * Adds a record. It is in the file when this returns.
   * @throws InfrabedError IB_DISK_FULL (the ledger stays whole, and writing can go on once there is room) or
   *   IB_LEDGER_INVALID after close, or for a payload that is no JSON.
   */
  record(entry: JournalEntry): void {
    this.throwIfUnfit();
    const { line, hash } = this.chain(entry);
    this.append(Buffer.from(`${line}\n`));
    this.count += 1;
    this.lastHash = hash;
    this.scheduleSync();
  }

  /** Ends when every record so far is on disk. */
  async flush(): Promise<void> {
    this.throwIfFailed();
    while (this.synced < this.sizeBytes) {
      await this.syncNow();
      this.throwIfFailed();
    }
  }

  /** Writes and signs head and count beside the ledger, and closes it for good. */
  async seal(key: SiteKey): Promise<Seal> {
    await this.flush();
    const content = {
      version: 1 as const,
      trial: this.options.trial,
      count: this.count,
      head: this.lastHash,
      sealedAt: this.options.clock.now(),
      publicKey: key.publicKey,
    };
    const seal: Seal = { ...content, signature: signText(key, canonicalJson(content)) };
    await writeFileOnce(join(dirname(this.file), sealName), `${JSON.stringify(seal, null, 2)}\n`);
    await this.close();
    return seal;
  }

  /** Syncs what is left and closes the file. Calling it again does nothing. */
  async close(): Promise<void> {
    if (this.closed) return;
    try {
      await this.flush();
    } finally {
      this.closed = true;
      clearTimeout(this.timer);
      await this.syncing;
      closeSync(this.descriptor);
    }
  }

  private chain(entry: JournalEntry): { line: string; hash: string } {
    try {
      return toLine({
        seq: this.count,
        at: this.options.clock.now(),
        trial: this.options.trial,
        actor: entry.actor,
        node: entry.node,
        kind: entry.kind,
        payload: this.options.redactor.redactDeep(entry.payload),
        prev: this.lastHash,
      });
    } catch (error) {
      throw new InfrabedError('IB_INTERNAL', `A "${entry.kind}" record is no JSON: ${messageOf(error)}.`, {
        cause: error,
      });
    }
  }

  private append(bytes: Buffer): void {
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(this.descriptor, bytes, written);
      this.sizeBytes += bytes.length;
    } catch (error) {
      this.takeBack(written);
      throw diskError(error, `write to the ledger ${this.file}`, this.file);
    }
  }

  /** Removes the part of a line that still fitted on the disk. */
  private takeBack(written: number): void {
    if (written === 0) return;
    try {
      ftruncateSync(this.descriptor, this.sizeBytes);
    } catch (error) {
      this.failure = diskError(error, `take back half a record from ${this.file}`, this.file);
    }
  }

  private scheduleSync(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.syncNow();
    }, this.options.batchMs ?? 50).unref();
  }

  /** Never rejects: an error stays in `failure`, since after a failed sync the kernel may have dropped the data. */
  private syncNow(): Promise<void> {
    this.syncing ??= this.syncOnce().finally(() => {
      this.syncing = undefined;
    });
    return this.syncing;
  }

  private async syncOnce(): Promise<void> {
    const target = this.sizeBytes;
    try {
      await sync(this.descriptor);
      this.synced = target;
    } catch (error) {
      this.failure = diskError(error, `sync the ledger ${this.file}`, this.file);
      this.options.onError?.(this.failure);
    }
  }

  private throwIfUnfit(): void {
    if (this.closed) throw new InfrabedError('IB_LEDGER_INVALID', `The ledger ${this.file} is closed.`);
    this.throwIfFailed();
  }

  private throwIfFailed(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  private recordTorn(droppedBytes: number): void {
    this.record({ kind: 'ledger.torn', actor: 'controller', node: null, payload: { droppedBytes } });
  }
}

async function isThere(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false;
  }
}
