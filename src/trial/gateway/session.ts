/** The record of one session (a command, a shell or a subsystem) of the agent: what went in, what came out, how it ended. */
import { join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import type { Journal } from '../../core/journal.js';
import type { ObjectSink, ObjectStore, StoredObject } from '../../record/bundle/objects.js';
import { CastWriter } from './cast.js';
import { SftpDecoder } from './sftp.js';

export interface Pty {
  term: string;
  columns: number;
  rows: number;
}

export type SessionKind = 'exec' | 'shell' | 'subsystem';

/** What a session is to run, as its client asked for it. */
export interface SessionRequest {
  kind: SessionKind;
  /** The command of an exec, the name of a subsystem; null for a shell. */
  command: Buffer | null;
  env: Record<string, string>;
  pty: Pty | null;
}

/** How the node said that the session ended. */
export interface SessionExit {
  exitCode: number | null;
  signal: string | null;
}

/** Everything that records of a trial's sessions share. */
export interface Recorder {
  journal: Journal;
  objects: ObjectStore;
  sessionsDir: string;
  clock: Clock;
  castBytes: number;
  /** A record could not be written: the gateway has to end. */
  fault: (error: unknown) => void;
  /** Work that the end of the gateway waits for; its failure is a fault. */
  track: (work: Promise<void>) => void;
}

export class SessionRecord {
  exit: SessionExit | undefined;
  /** The node said that it runs. */
  accepted = false;
  private readonly startedAt: number;
  private readonly cast: CastWriter | undefined;
  private readonly sftp: SftpDecoder | undefined;
  private sinks: { stdin: ObjectSink; stdout: ObjectSink; stderr: ObjectSink } | undefined;
  private readonly work: Promise<void>[] = [];
  private ended = false;

  /**
   * Writes the record that the session begins; only then may its request be forwarded.
   * @throws whatever the journal or the disk throws.
   */
  constructor(
    private readonly recorder: Recorder,
    readonly id: string,
    connection: string,
    private readonly node: string,
    private readonly request: SessionRequest,
  ) {
    this.startedAt = recorder.clock.now();
    const castName = request.pty === null ? null : `${id}.cast`;
    const subsystem = request.kind === 'subsystem' ? request.command?.toString() : undefined;
    this.record(`session.${request.kind}`, {
      connection,
      ...commandFields(request),
      env: request.env,
      pty: request.pty,
      cast: castName,
    });
    if (subsystem === 'sftp' || runsSftpServer(request)) this.sftp = this.decoder();
    if (subsystem !== 'sftp') this.sinks = this.openSinks();
    if (castName !== null && request.pty !== null) this.cast = this.openCast(castName, request.pty);
  }

  stdin(data: Buffer): void {
    if (this.ended) return;
    this.sftp?.agentBytes(data);
    // What is no SFTP any more is kept like any other input.
    if (this.sftp?.gaveUp) this.sinks ??= this.openSinks();
    this.sinks?.stdin.write(data);
    this.cast?.input(data);
  }

  stdout(data: Buffer): void {
    if (this.ended) return;
    this.sinks?.stdout.write(data);
    this.sftp?.nodeBytes(data);
    this.cast?.output(data);
  }

  stderr(data: Buffer): void {
    if (this.ended) return;
    this.sinks?.stderr.write(data);
  }

  resize(columns: number, rows: number): void {
    this.cast?.resize(columns, rows);
  }

  signal(name: string): void {
    this.record('session.signal', { signal: `SIG${name}` });
  }

  /** Stores what was kept and writes the record of the end, once. `endedBy` says who closed it first. */
  end(endedBy: 'node' | 'agent' | 'gateway' | 'lost'): void {
    if (this.ended) return;
    this.ended = true;
    this.recorder.track(this.finish(endedBy, this.recorder.clock.now()));
  }

  private async finish(endedBy: string, endedAt: number): Promise<void> {
    this.sftp?.end();
    await this.cast?.close();
    await Promise.all(this.work);
    this.record('session.exit', {
      exitCode: this.exit?.exitCode ?? null,
      signal: this.exit?.signal ?? null,
      endedBy,
      accepted: this.accepted,
      durationMs: endedAt - this.startedAt,
      ...(await this.endSinks()),
      ...(this.cast ? { castTruncated: this.cast.truncated } : {}),
    });
  }

  private async endSinks(): Promise<Record<string, StoredObject>> {
    if (!this.sinks) return {};
    const { stdin, stdout, stderr } = this.sinks;
    return { stdin: await stdin.end(), stdout: await stdout.end(), stderr: await stderr.end() };
  }

  private openSinks(): { stdin: ObjectSink; stdout: ObjectSink; stderr: ObjectSink } {
    const { objects } = this.recorder;
    return { stdin: objects.stream(), stdout: objects.stream(), stderr: objects.stream() };
  }

  private decoder(): SftpDecoder {
    return new SftpDecoder({
      record: (kind, payload) => this.record(kind, payload),
      objects: this.recorder.objects,
      pending: (work) => {
        this.work.push(work.catch((error: unknown) => this.recorder.fault(error)));
      },
    });
  }

  private openCast(name: string, pty: Pty): CastWriter {
    return new CastWriter({
      path: join(this.recorder.sessionsDir, name),
      ...pty,
      command: this.request.command?.toString() ?? null,
      clock: this.recorder.clock,
      maxBytes: this.recorder.castBytes,
      onError: this.recorder.fault,
    });
  }

  private record(kind: string, payload: Record<string, unknown>): void {
    this.recorder.journal.record({
      kind,
      actor: 'agent',
      node: this.node,
      payload: { session: this.id, ...payload },
    });
  }
}

/** A command that is no UTF-8 stands beside its readable form as base64, so that nothing of it is lost. */
function commandFields(request: SessionRequest): Record<string, unknown> {
  if (request.command === null) return { command: null };
  const text = request.command.toString('utf8');
  if (Buffer.from(text).equals(request.command)) return { command: text };
  return { command: text, commandBase64: request.command.toString('base64') };
}

/** `sftp -s PATH` starts the server as a command. */
function runsSftpServer(request: SessionRequest): boolean {
  return (
    request.kind === 'exec' &&
    /(?:^|[\s/])(?:sftp-server|internal-sftp)\b/.test(request.command?.toString() ?? '')
  );
}
