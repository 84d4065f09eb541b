/** Runs one command on an open connection: exact exit status or signal, time-out, capped output, no lost bytes. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Client, ClientChannel } from 'ssh2';
import { deadline, throwIfAborted } from '../../core/clock.js';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { log, redactor } from '../../core/log.js';
import { asset } from '../../core/paths.js';
import { commandLine, defaultCommandTimeoutMs, defaultMaxOutputBytes } from './command.js';
import type { CommandResult, NodeCommand } from './command.js';

/** The session was never opened, so the command did not run: it may be tried again on another connection. */
export class SessionNotOpened extends Error {
  /** True when sshd answered and refused (MaxSessions); false when the connection is dead. */
  readonly refused: boolean;
  constructor(message: string, refused: boolean) {
    super(message);
    this.refused = refused;
  }
}

/** Marks the processes of one command, so that they can be found and killed after its time-out. */
const markName = 'SSH_REQUEST_ID';
/** A node under heavy load gets this long to kill what ran too long. */
const killTimeoutMs = 10_000;

/**
 * Runs a command to its end.
 * @throws SessionNotOpened when it certainly did not run.
 * @throws InfrabedError IB_NODE_UNREACHABLE (`details.mayHaveRun`) when the connection broke while it ran, or
 *   IB_CANCELLED when the command's signal aborted; what runs on the node is killed then.
 */
export async function runOn(client: Client, name: string, command: NodeCommand): Promise<CommandResult> {
  throwIfAborted(command.signal);
  const mark = randomBytes(8).toString('hex');
  const line = commandLine(command.argv, { ...command.env, [markName]: mark });
  const startedAt = performance.now();
  const limit = deadline(command.timeoutMs ?? defaultCommandTimeoutMs, 'Opening the session', command.signal);
  const opened = await openExec(client, name, line, limit.signal, (channel) =>
    watch(channel, command),
  ).finally(() => limit.clear());
  const outcome = await opened.watched;
  if (outcome.ended !== 'itself') await killMarked(client, name, mark);
  if (outcome.ended === 'signal') throwIfAborted(command.signal);
  if (outcome.ended === 'itself' && outcome.exitCode === null && outcome.signal === null) {
    throw connectionLost(name, command.argv.join(' '));
  }
  return {
    exitCode: outcome.exitCode,
    signal: outcome.signal,
    stdout: outcome.stdout,
    stderr: outcome.stderr,
    truncated: outcome.truncated,
    timedOut: outcome.ended === 'time-out',
    durationMs: Math.round(performance.now() - startedAt),
  };
}

function connectionLost(name: string, line: string, cause?: unknown): InfrabedError {
  const shown = redactor.redact(line.length > 80 ? `${line.slice(0, 80)}...` : line);
  return new InfrabedError(
    'IB_NODE_UNREACHABLE',
    `The connection to ${name} was lost during "${shown}"; it may have run or not.`,
    { details: { mayHaveRun: true }, ...(cause === undefined ? {} : { cause }) },
  );
}

/**
 * Asks for a session and for the program; `signal` ends the waiting, not the program. The channel is watched from
 * within the callback: the reply, the exit status and the close may lie in one packet, and what is emitted before a
 * promise's turn comes is lost.
 */
function openExec<T>(
  client: Client,
  name: string,
  line: string,
  signal: AbortSignal,
  watchChannel: (channel: ClientChannel) => T,
): Promise<{ watched: T }> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(connectionLost(name, line, signal.reason));
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      client.exec(line, (error, channel) => {
        signal.removeEventListener('abort', onAbort);
        // ssh2 says this once the request was sent; every other error comes from before it.
        if (error?.message === 'Unable to exec') reject(connectionLost(name, line, error));
        else if (error) reject(new SessionNotOpened(error.message, 'reason' in error));
        else if (signal.aborted) channel.close();
        else resolve({ watched: watchChannel(channel) });
      });
    } catch (error) {
      reject(new SessionNotOpened(messageOf(error), false));
    }
  });
}

interface Outcome {
  ended: 'itself' | 'time-out' | 'signal';
  exitCode: number | null;
  signal: string | null;
  stdout: string;
  stderr: string;
  truncated: boolean;
}

function watch(channel: ClientChannel, command: NodeCommand): Promise<Outcome> {
  const maxBytes = command.maxOutputBytes ?? defaultMaxOutputBytes;
  const stdout = new CappedText(maxBytes);
  const stderr = new CappedText(maxBytes);
  let exitCode: number | null = null;
  let exitSignal: string | null = null;
  return new Promise((resolve) => {
    const settle = (ended: Outcome['ended']): void => {
      clearTimeout(timer);
      command.signal?.removeEventListener('abort', onAbort);
      const own = ended === 'itself';
      resolve({
        ended,
        exitCode: own ? exitCode : null,
        signal: own ? exitSignal : null,
        stdout: stdout.text(),
        stderr: stderr.text(),
        truncated: stdout.truncated || stderr.truncated,
      });
      if (!own) channel.close();
    };
    const onAbort = (): void => settle('signal');
    const timer = setTimeout(() => settle('time-out'), command.timeoutMs ?? defaultCommandTimeoutMs);
    if (command.signal?.aborted) onAbort();
    else command.signal?.addEventListener('abort', onAbort, { once: true });
    channel.on('exit', (code: number | null, signal?: string) => {
      exitCode = code;
      exitSignal = code === null ? (signal ?? null) : null;
    });
    channel.on('data', (chunk: Buffer) => stdout.add(chunk));
    channel.stderr.on('data', (chunk: Buffer) => stderr.add(chunk));
    channel.on('error', (error: Error) => log.debug({ error: error.message }, 'ssh channel failed'));
    channel.on('close', () => settle('itself'));
    channel.end(command.stdin);
  });
}

/** The beginning of a stream, up to a cap; the rest is counted and dropped, so that the program is never blocked. */
class CappedText {
  truncated = false;
  private readonly chunks: Buffer[] = [];
  private sizeBytes = 0;
  constructor(private readonly maxBytes: number) {}

  add(chunk: Buffer): void {
    const room = this.maxBytes - this.sizeBytes;
    if (chunk.length > room) this.truncated = true;
    if (room <= 0) return;
    const kept = chunk.subarray(0, room);
    this.chunks.push(kept);
    this.sizeBytes += kept.length;
  }

  text(): string {
    return Buffer.concat(this.chunks).toString('utf8');
  }
}

/**
 * sshd delivers no signals to sessions of root (it runs them without privilege separation), and closing the channel
 * leaves the program running; so a second session finds its processes by their mark and kills them.
 */
async function killMarked(client: Client, name: string, mark: string): Promise<void> {
  try {
    const script = await readFile(asset('src/testbed/ssh/kill-marked.sh'));
    const command = {
      argv: ['sh', '-s', '--', `${markName}=${mark}`],
      stdin: script,
      timeoutMs: killTimeoutMs,
    };
    const signal = AbortSignal.timeout(killTimeoutMs);
    const line = commandLine(command.argv);
    const opened = await openExec(client, name, line, signal, (channel) => watch(channel, command));
    const outcome = await opened.watched;
    if (outcome.exitCode === 0) return;
    log.warn({ node: name, stderr: outcome.stderr }, 'a command that ran too long may still be running');
  } catch (error) {
    log.warn({ node: name, error: messageOf(error) }, 'a command that ran too long may still be running');
  }
}
