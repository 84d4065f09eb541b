/**
 * What an SFTP session does to files, decoded beside the bytes that pass: opens, removes, renames, attributes and
 * the contents of uploads, each on record before the request reaches the node.
 */
import type { ObjectSink, ObjectStore, StoredObject } from '../../record/bundle/objects.js';
import { MalformedMessage, Reader } from './messages.js';
import { SftpPackets } from './sftp-packets.js';
import { changeOf, openFlags, request, response, statusNames } from './sftp-requests.js';

/** Requests that wait for their answer; OpenSSH has at most a few hundred. */
const maxPending = 100_000;

/** Uploads up to this size are kept whole. */
const wholeUploadBytes = 16 * 1024 * 1024;

interface OpenFile {
  path: string;
  write: boolean;
  append: boolean;
  readBytes: number;
  writtenBytes: number;
  failedWrites: number;
  /** Where the next sequential write goes; undefined before the first. */
  nextOffset: bigint | undefined;
  startOffset: bigint;
  /** Why its content is not known. */
  spoiled: string | undefined;
  sink: ObjectSink | undefined;
}

type Pending =
  | { op: 'open'; file: OpenFile }
  | { op: 'read'; file: OpenFile }
  | { op: 'write'; file: OpenFile }
  | { op: 'change'; kind: string; path: string };

/** Where the decoder reports to. `record` throws when the record cannot be written; then nothing is forwarded. */
export interface SftpSinkTo {
  record(kind: string, payload: Record<string, unknown>): void;
  objects: ObjectStore;
  /** Work that the end of the session waits for. */
  pending(work: Promise<void>): void;
}

export class SftpDecoder {
  private readonly pendingById = new Map<number, Pending>();
  private readonly files = new Map<string, OpenFile>();
  private readonly fromAgent = new SftpPackets((head, bodyBytes) =>
    this.guard(() => this.onRequest(head, bodyBytes)),
  );
  private readonly fromNode = new SftpPackets((head, bodyBytes) =>
    this.guard(() => this.onResponse(head, bodyBytes)),
  );
  /** Not decoded any more. */
  gaveUp = false;

  constructor(private readonly to: SftpSinkTo) {}

  agentBytes(chunk: Buffer): void {
    if (this.gaveUp) return;
    this.fromAgent.feed(chunk);
    if (this.fromAgent.broken) this.giveUp('the requests are no SFTP version 3');
  }

  nodeBytes(chunk: Buffer): void {
    if (this.gaveUp) return;
    this.fromNode.feed(chunk);
    if (this.fromNode.broken) this.giveUp('the responses are no SFTP version 3');
  }

  /** Files that were never closed. */
  end(): void {
    for (const file of this.files.values()) this.finish(file, 'the session ended before the file was closed');
    this.files.clear();
  }

  private guard<T>(work: () => T): T | 'ignore' {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof MalformedMessage)) throw error;
      this.giveUp(error.message);
      return 'ignore';
    }
  }

  private giveUp(why: string): void {
    if (this.gaveUp) return;
    this.gaveUp = true;
    this.to.record('sftp.opaque', { why });
    this.end();
  }

  private onRequest(head: Buffer, bodyBytes: number): number | 'ignore' | ((data: Buffer) => void) {
    switch (head[0]) {
      case request.WRITE:
        return this.onWrite(head);
      case request.READ:
        return head.length < bodyBytes ? bodyBytes : this.onRead(head);
      case request.OPEN:
      case request.CLOSE:
      case request.SETSTAT:
      case request.FSETSTAT:
      case request.OPENDIR:
      case request.REMOVE:
      case request.MKDIR:
      case request.RMDIR:
      case request.RENAME:
      case request.SYMLINK:
      case request.EXTENDED:
        if (head.length < bodyBytes) return bodyBytes;
        this.onWhole(head);
        return 'ignore';
      default:
        return 'ignore';
    }
  }

  private onWhole(body: Buffer): void {
    const reader = new Reader(body);
    const id = reader.u32();
    if (body[0] === request.OPEN) {
      this.onOpen(id, reader);
    } else if (body[0] === request.CLOSE) {
      this.onClose(reader);
    } else {
      const change = changeOf(body[0] ?? 0, reader, (handle) => this.files.get(handle)?.path);
      if (!change) return;
      const overwritten = change.overwrites === undefined ? undefined : this.files.get(change.overwrites);
      if (overwritten) spoil(overwritten, 'copied on the node from another file');
      this.to.record(change.kind, { path: change.path, ...change.more });
      this.expect(id, { op: 'change', kind: change.kind, path: change.path });
    }
  }

  private onOpen(id: number, reader: Reader): void {
    const path = reader.text();
    const flags = reader.u32();
    const names = Object.entries(openFlags)
      .filter(([, bit]) => (flags & bit) !== 0)
      .map(([name]) => name);
    this.to.record('sftp.open', { path, flags: names });
    const write = (flags & openFlags.write) !== 0;
    const file: OpenFile = {
      path,
      write,
      append: (flags & openFlags.append) !== 0,
      readBytes: 0,
      writtenBytes: 0,
      failedWrites: 0,
      nextOffset: undefined,
      startOffset: 0n,
      spoiled: undefined,
      sink: write ? this.to.objects.stream({ wholeBytes: wholeUploadBytes }) : undefined,
    };
    this.expect(id, { op: 'open', file });
  }

  private onClose(reader: Reader): void {
    const key = reader.bytes().toString('latin1');
    const file = this.files.get(key);
    if (!file) return;
    this.files.delete(key);
    this.finish(file);
  }

  private onRead(body: Buffer): 'ignore' {
    const reader = new Reader(body);
    const id = reader.u32();
    const file = this.files.get(reader.bytes().toString('latin1'));
    if (file) this.expect(id, { op: 'read', file });
    return 'ignore';
  }

  /** byte type, uint32 id, string handle, uint64 offset, string data: the data is passed on as it comes. */
  private onWrite(head: Buffer): number | 'ignore' | ((data: Buffer) => void) {
    if (head.length < 9) return 9;
    const headBytes = 9 + head.readUInt32BE(5) + 8 + 4;
    if (head.length < headBytes) return headBytes;
    const reader = new Reader(head);
    const id = reader.u32();
    const file = this.files.get(reader.bytes().toString('latin1'));
    if (!file) return 'ignore';
    const offset = reader.u64();
    const length = reader.u32();
    this.expect(id, { op: 'write', file });
    file.nextOffset ??= file.startOffset = offset;
    if (!file.append && offset !== file.nextOffset) spoil(file, 'written out of order');
    file.nextOffset = offset + BigInt(length);
    return (data) => {
      file.writtenBytes += data.length;
      file.sink?.write(data);
    };
  }

  private expect(id: number, pending: Pending): void {
    if (this.pendingById.size >= maxPending)
      throw new MalformedMessage('Too many requests wait for an answer.');
    this.pendingById.set(id, pending);
  }

  private onResponse(head: Buffer, bodyBytes: number): number | 'ignore' {
    const type = head[0];
    if (type !== response.STATUS && type !== response.HANDLE && type !== response.DATA) return 'ignore';
    const needed = type === response.DATA ? 9 : bodyBytes;
    if (head.length < Math.min(needed, bodyBytes)) return needed;
    const reader = new Reader(head);
    const id = reader.u32();
    const pending = this.pendingById.get(id);
    if (!pending) return 'ignore';
    this.pendingById.delete(id);
    if (type === response.DATA) {
      if (pending.op === 'read') pending.file.readBytes += reader.u32();
    } else if (type === response.HANDLE) {
      if (pending.op === 'open') this.files.set(reader.bytes().toString('latin1'), pending.file);
    } else {
      this.onStatus(pending, reader.u32());
    }
    return 'ignore';
  }

  private onStatus(pending: Pending, status: number): void {
    if (status === 0 || pending.op === 'read') return;
    if (pending.op === 'write') {
      pending.file.failedWrites += 1;
    } else if (pending.op === 'open') {
      pending.file.sink?.abandon();
      this.failed('sftp.open', pending.file.path, status);
    } else {
      this.failed(pending.kind, pending.path, status);
    }
  }

  private failed(requested: string, path: string, status: number): void {
    const name = statusNames[status] ?? `status ${String(status)}`;
    this.to.record('sftp.failed', { request: requested, path, status: name });
  }

  private finish(file: OpenFile, note?: string): void {
    const work = async (): Promise<void> => {
      const content: StoredObject | null = (await file.sink?.end()) ?? null;
      const kept = file.write && file.spoiled === undefined ? content : null;
      this.to.record('sftp.file', {
        path: file.path,
        readBytes: file.readBytes,
        writtenBytes: file.writtenBytes,
        ...(file.write ? { content: kept } : {}),
        ...(file.startOffset > 0n && !file.append ? { startOffset: Number(file.startOffset) } : {}),
        ...(file.failedWrites > 0 ? { failedWrites: file.failedWrites } : {}),
        ...(file.spoiled === undefined ? {} : { why: file.spoiled }),
        ...(note === undefined ? {} : { note }),
      });
    };
    this.to.pending(work());
  }
}

/** From now on its content is not known. */
function spoil(file: OpenFile, why: string): void {
  file.spoiled ??= why;
  file.sink?.abandon();
  file.sink = undefined;
}
