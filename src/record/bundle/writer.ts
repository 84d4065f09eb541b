/**
 * Writes the folder a trial leaves. Evidence is appended as it comes and is in the file when the call returns;
 * the manifest comes last and at once, so that its presence says that the bundle is whole.
 */
import { closeSync, fdatasync, fstatSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { cp, mkdir, open, readdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { diskError, syncFolder, writeFileAtomic, writeFileOnce } from '../../core/disk.js';
import { InfrabedError } from '../../core/errors.js';
import { dropHalfFiles } from './interrupted.js';
import { ObjectStore } from './objects.js';
import {
  bundleFiles,
  driftFileSchema,
  evidenceSchema,
  manifestSchema,
  type DriftFile,
  type EvidenceRecord,
  type Manifest,
} from './schema.js';

const sync = promisify(fdatasync);

/** Kept of the end of a node's console log. */
const consoleBytes = 4 * 1024 * 1024;

export class BundleWriter {
  private failure: InfrabedError | undefined;
  private closed = false;

  private constructor(
    readonly dir: string,
    private readonly evidenceFile: number,
    readonly objects: ObjectStore,
  ) {}

  /**
   * A new bundle in a folder that is not there yet or is empty.
   * @throws InfrabedError IB_STATE_DIR (not writable, not empty) or IB_DISK_FULL.
   */
  static async create(dir: string): Promise<BundleWriter> {
    try {
      await mkdir(dir, { recursive: true, mode: 0o700 });
      if ((await readdir(dir)).length > 0) {
        throw new InfrabedError('IB_STATE_DIR', `The folder ${dir} for the bundle is not empty.`);
      }
    } catch (error) {
      throw diskError(error, `make the bundle ${dir}`, dir);
    }
    return BundleWriter.open(dir);
  }

  /**
   * Goes on with the bundle of a trial whose controller was killed; half a line of evidence and half-written files are
   * dropped.
   * @throws InfrabedError IB_BUNDLE_INVALID when it is complete already.
   */
  static async resume(dir: string): Promise<BundleWriter> {
    try {
      if ((await readdir(dir)).includes(bundleFiles.manifest)) {
        throw new InfrabedError(
          'IB_BUNDLE_INVALID',
          `The bundle ${dir} is complete: nothing can be added to it.`,
        );
      }
      await dropTornLine(join(dir, bundleFiles.evidence));
      await dropHalfFiles(dir);
    } catch (error) {
      throw diskError(error, `go on with the bundle ${dir}`, dir);
    }
    return BundleWriter.open(dir);
  }

  private static async open(dir: string): Promise<BundleWriter> {
    try {
      for (const folder of [
        bundleFiles.facts,
        bundleFiles.sessions,
        bundleFiles.console,
        bundleFiles.agent,
      ]) {
        await mkdir(join(dir, folder), { recursive: true, mode: 0o700 });
      }
      const objects = await ObjectStore.open(join(dir, bundleFiles.objects));
      return new BundleWriter(dir, openSync(join(dir, bundleFiles.evidence), 'a', 0o600), objects);
    } catch (error) {
      throw diskError(error, `make the bundle ${dir}`, dir);
    }
  }

  /** An absolute path inside the bundle. */
  path(...parts: string[]): string {
    return join(this.dir, ...parts);
  }

  /** Where the ledger of this trial is to be written. */
  get ledgerFile(): string {
    return this.path(bundleFiles.ledger);
  }

  /** Where the agent's standard output and error go. */
  get agentDir(): string {
    return this.path(bundleFiles.agent);
  }

  /** Where sessions are recorded as asciicast (`NAME.cast`). */
  get sessionsDir(): string {
    return this.path(bundleFiles.sessions);
  }

  /**
   * Appends one look of one check. It is in the file when this returns.
   * @throws InfrabedError IB_DISK_FULL; the lines written before stay whole.
   */
  evidence(record: EvidenceRecord): void {
    this.throwIfUnfit();
    const line = Buffer.from(`${JSON.stringify(evidenceSchema.parse(record))}\n`);
    const sizeBytes = fstatSync(this.evidenceFile).size;
    let written = 0;
    try {
      while (written < line.length) written += writeSync(this.evidenceFile, line, written);
    } catch (error) {
      if (written > 0) this.takeBack(sizeBytes);
      throw diskError(error, `write evidence to ${this.dir}`, this.dir);
    }
  }

  /** Ends when evidence and contents so far are on disk. */
  async flush(): Promise<void> {
    this.throwIfUnfit();
    try {
      await sync(this.evidenceFile);
      await this.objects.flush();
    } catch (error) {
      this.failure = diskError(error, `sync the bundle ${this.dir}`, this.dir);
      throw this.failure;
    }
  }

  /** Facts of a node at a moment: facts/MOMENT/NODE.json. */
  async facts(moment: string, node: string, facts: unknown): Promise<void> {
    await this.json([bundleFiles.facts, moment, `${node}.json`], facts);
  }

  async drift(drift: DriftFile): Promise<void> {
    await this.json([bundleFiles.drift], driftFileSchema.parse(drift));
  }

  /** The package as it was when the trial began: what a review judges by. */
  async task(packageDir: string): Promise<void> {
    try {
      await cp(packageDir, this.path(bundleFiles.task), { recursive: true, verbatimSymlinks: true });
    } catch (error) {
      throw diskError(error, `copy the task into ${this.dir}`, this.dir);
    }
  }

  /** Takes the end of a node's console log over into the bundle. */
  async console(node: string, logPath: string): Promise<void> {
    const target = this.path(bundleFiles.console, `${node}.log`);
    await writeFileAtomic(target, await endOf(logPath));
  }

  /** Any other file of the bundle, as JSON. */
  async json(parts: readonly string[], value: unknown): Promise<void> {
    const path = this.path(...parts);
    try {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    } catch (error) {
      throw diskError(error, `write ${path}`, path);
    }
    await writeFileAtomic(path, `${JSON.stringify(value, null, 2)}\n`);
  }

  /** The last thing written: everything before it is made durable first. The writer is closed afterwards. */
  async finish(manifest: Manifest): Promise<void> {
    const text = manifestText(manifest);
    await this.flush();
    await syncFolder(this.dir);
    await writeFileOnce(this.path(bundleFiles.manifest), text);
    this.close();
  }

  /** Closes without a manifest; calling it again does nothing. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    closeSync(this.evidenceFile);
  }

  /** Removes the part of a line that still fitted on the disk. */
  private takeBack(sizeBytes: number): void {
    try {
      ftruncateSync(this.evidenceFile, sizeBytes);
    } catch (error) {
      this.failure = diskError(error, `take back half a line of evidence in ${this.dir}`, this.dir);
    }
  }

  private throwIfUnfit(): void {
    if (this.closed) throw new InfrabedError('IB_INTERNAL', `The bundle ${this.dir} is closed.`);
    if (this.failure !== undefined) throw this.failure;
  }
}

/** bundle.json to the byte, so that its hash can be sealed before it is written. */
export function manifestText(manifest: Manifest): string {
  return `${JSON.stringify(manifestSchema.parse(manifest), null, 2)}\n`;
}

async function dropTornLine(path: string): Promise<void> {
  const content = await readFile(path);
  const end = content.lastIndexOf(0x0a) + 1;
  if (end === content.length) return;
  const handle = await open(path, 'r+');
  try {
    await handle.truncate(end);
  } finally {
    await handle.close();
  }
}

async function endOf(path: string): Promise<Buffer> {
  const handle = await open(path, 'r');
  try {
    const { size } = await handle.stat();
    const length = Math.min(size, consoleBytes);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, size - length);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}
