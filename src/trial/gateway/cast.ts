/** A terminal session as an asciicast v2 file: output, input and changes of size, each with its time. */
import { close, fsync, openSync, writeSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { promisify } from 'node:util';
import type { Clock } from '../../core/clock.js';
import { redactor } from '../../core/log.js';

/** `m` is a marker: a note of the recorder. */
type EventCode = 'o' | 'i' | 'r' | 'm';

const flushBytes = 32 * 1024;
const flushMs = 250;

export interface CastOptions {
  path: string;
  columns: number;
  rows: number;
  term: string;
  command: string | null;
  clock: Clock;
  /** Beyond it no more output is recorded, and the file says so. */
  maxBytes: number;
  /** A write that fails later than the call that caused it. */
  onError: (error: unknown) => void;
}

export class CastWriter {
  readonly path: string;
  truncated = false;
  private readonly fd: number;
  private readonly startedAt: number;
  private readonly decoders = { o: new StringDecoder('utf8'), i: new StringDecoder('utf8') };
  private pending = '';
  private writtenBytes = 0;
  private timer: NodeJS.Timeout | undefined;
  private closed = false;

  /** @throws system errors of opening and writing the file. */
  constructor(private readonly options: CastOptions) {
    this.path = options.path;
    this.startedAt = options.clock.now();
    this.fd = openSync(options.path, 'wx', 0o600);
    const header = {
      version: 2,
      // A client without a terminal of its own (`ssh -tt` from a program) says 0 by 0, which no player can show.
      width: options.columns || 80,
      height: options.rows || 24,
      timestamp: Math.floor(this.startedAt / 1000),
      ...(options.command === null ? {} : { command: redactor.redact(options.command) }),
      env: { TERM: options.term },
    };
    this.pending = `${JSON.stringify(header)}\n`;
    this.flush();
  }

  output(bytes: Buffer): void {
    this.text('o', this.decoders.o.write(bytes));
  }

  input(bytes: Buffer): void {
    this.text('i', this.decoders.i.write(bytes));
  }

  resize(columns: number, rows: number): void {
    if (columns === 0 || rows === 0) return;
    this.event('r', `${String(columns)}x${String(rows)}`);
  }

  /** Flushes and syncs the file. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.text('o', this.decoders.o.end());
    this.text('i', this.decoders.i.end());
    this.closed = true;
    clearTimeout(this.timer);
    try {
      this.flush();
      await promisify(fsync)(this.fd);
    } finally {
      await promisify(close)(this.fd);
    }
  }

  private text(code: EventCode, text: string): void {
    if (text !== '') this.event(code, redactor.redact(text));
  }

  private event(code: EventCode, data: string): void {
    if (this.closed || this.truncated) return;
    const seconds = (this.options.clock.now() - this.startedAt) / 1000;
    if (this.writtenBytes + this.pending.length + data.length > this.options.maxBytes) {
      this.truncated = true;
      this.pending += `${JSON.stringify([seconds, 'm', 'the recording ends here: it reached its limit'])}\n`;
    } else {
      this.pending += `${JSON.stringify([seconds, code, data])}\n`;
    }
    if (this.pending.length >= flushBytes) this.flush();
    else this.timer ??= setTimeout(() => this.flushLater(), flushMs).unref();
  }

  private flushLater(): void {
    try {
      this.flush();
    } catch (error) {
      this.options.onError(error);
    }
  }

  private flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    const bytes = Buffer.from(this.pending);
    this.pending = '';
    let done = 0;
    while (done < bytes.length) done += writeSync(this.fd, bytes, done);
    this.writtenBytes += bytes.length;
  }
}
