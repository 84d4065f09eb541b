/** Starts an agent in its sandbox and stays with it until it ends, its time is over, or the trial is cancelled. */
import { once } from 'node:events';
import { createWriteStream, type WriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import { run as runProgram, start } from '../../core/exec.js';
import { log } from '../../core/log.js';
import type { Clock } from '../../core/clock.js';
import type { LimitedRoom } from './limits.js';
import { privilegeDrop, sandboxArguments, type SandboxPlan } from './sandbox.js';

export interface AgentRun {
  plan: SandboxPlan;
  argv: readonly string[];
  /** Epoch milliseconds after which the agent is ended. */
  deadlineMs: number;
  /** Folder that receives stdout.log and stderr.log. */
  outputDir: string;
  /** Bounds on memory and processes; removed by its maker. */
  room: LimitedRoom;
  /** What the agent's folder may hold; more ends the agent, which is then graded. Default 2 GiB. */
  homeBytes?: number;
  signal: AbortSignal;
  clock: Clock;
}

export interface AgentExit {
  exitCode: number | null;
  signal: string | null;
  durationMs: number;
  timedOut: boolean;
  /** Its folder held more than it may. */
  overQuota: boolean;
  /** Bytes that the agent printed, and those of them that were kept. */
  output: { stdoutBytes: number; stderrBytes: number; truncated: boolean };
}

/** What is kept of each stream: the first and the last part, so that neither start nor end is lost. */
const keptHeadBytes = 1024 * 1024;
const keptTailBytes = 1024 * 1024;
const defaultHomeBytes = 2 * 1024 ** 3;
const homeLookMs = 2000;
/** Between SIGTERM and SIGKILL for an agent whose time is over. */
const graceMs = 2000;

/**
 * Runs the agent. An agent that fails or is ended is a result, not an error.
 * @throws InfrabedError IB_SANDBOX when the sandbox could not be made, IB_CANCELLED when the trial was.
 */
export async function runAgent(run: AgentRun): Promise<AgentExit> {
  await mkdir(run.outputDir, { recursive: true });
  const startedAt = run.clock.now();
  const [program, ...args] = [...run.room.prefix, 'bwrap', '--args', '3', '--'];
  const child = start(program, [...args, ...privilegeDrop(run.plan.uid, run.argv)], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  });
  const stdout = new CappedFile(join(run.outputDir, 'stdout.log'));
  const stderr = new CappedFile(join(run.outputDir, 'stderr.log'));
  const copies = Promise.all([stdout.take(child.stdout), stderr.take(child.stderr)]);
  // The failure of a copy is awaited below; until then it must not count as unhandled.
  copies.catch(() => undefined);
  let timedOut = false;
  const ended = new Promise<{ exitCode: number | null; signal: string | null }>((resolve, reject) => {
    child.once('error', (error) => {
      reject(
        new InfrabedError('IB_SANDBOX', `The sandbox could not be started: ${messageOf(error)}`, {
          hint: 'Run "infrabed doctor"; bubblewrap and setpriv are needed.',
          cause: error,
        }),
      );
    });
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal }));
  });
  const end = (): void => {
    child.kill('SIGTERM');
    setTimeout(() => child.kill('SIGKILL'), graceMs).unref();
  };
  const timer = setTimeout(
    () => {
      timedOut = true;
      end();
    },
    Math.max(0, run.deadlineMs - startedAt),
  );
  run.signal.addEventListener('abort', end, { once: true });
  const quota = watchHome(run.plan.homeDir, run.homeBytes ?? defaultHomeBytes, end);
  try {
    // bwrap reads its arguments only now, so nothing of the agent runs before it is inside its bounds.
    if (child.pid !== undefined) await run.room.admit(child.pid);
    const channel = child.stdio[3] as Writable | null;
    channel?.on('error', () => undefined); // an early death of bwrap is reported by its exit
    channel?.end(sandboxArguments(run.plan).join('\0') + '\0');
    if (run.signal.aborted) end();
    const result = await ended;
    await copies;
    const failed = sandboxFailure(result.exitCode, stderr);
    if (failed !== undefined) throw failed;
    return {
      ...result,
      durationMs: run.clock.now() - startedAt,
      timedOut,
      overQuota: quota.exceeded(),
      output: {
        stdoutBytes: stdout.totalBytes,
        stderrBytes: stderr.totalBytes,
        truncated: stdout.truncated || stderr.truncated,
      },
    };
  } finally {
    clearTimeout(timer);
    quota.stop();
    run.signal.removeEventListener('abort', end);
    child.kill('SIGKILL');
  }
}

/** A full disk of the controller would be an error of ours, which an agent must not be able to bring about. */
function watchHome(
  homeDir: string,
  limitBytes: number,
  end: () => void,
): { exceeded(): boolean; stop(): void } {
  let exceeded = false;
  let looking = false;
  const look = async (): Promise<void> => {
    if (looking || exceeded) return;
    looking = true;
    try {
      const { stdout } = await runProgram(
        'du',
        ['--summarize', '--one-file-system', '--block-size=1', homeDir],
        {
          allowFailure: true, // files come and go while it walks
        },
      );
      exceeded = Number(stdout.split('\t')[0]) > limitBytes;
      if (exceeded) end();
    } catch (error) {
      log.warn({ error: messageOf(error) }, "the size of the agent's folder could not be read");
    } finally {
      looking = false;
    }
  };
  const timer = setInterval(() => void look(), homeLookMs);
  return { exceeded: () => exceeded, stop: () => clearInterval(timer) };
}

/** bwrap says so itself, as its first words, when it failed before the program ran. */
function sandboxFailure(exitCode: number | null, stderr: CappedFile): InfrabedError | undefined {
  const text = stderr.headText();
  if (exitCode !== 1 || !/^(bwrap|setpriv): /.test(text)) return undefined;
  return new InfrabedError('IB_SANDBOX', `The sandbox could not be made: ${text.split('\n')[0] ?? ''}`, {
    hint: 'Run "infrabed doctor"; bubblewrap needs namespaces, and paths given to the agent must exist.',
  });
}

/** A file that keeps the first and the last part of a stream, in bounded memory, with back-pressure. */
class CappedFile {
  totalBytes = 0;
  private head: Buffer[] = [];
  private headBytes = 0;
  private tail: Buffer[] = [];
  private tailBytes = 0;

  constructor(private readonly path: string) {}

  get truncated(): boolean {
    return this.totalBytes > keptHeadBytes + keptTailBytes;
  }

  headText(): string {
    return Buffer.concat(this.head).subarray(0, 4096).toString('utf8');
  }

  async take(stream: Readable | null): Promise<void> {
    const file = createWriteStream(this.path, { mode: 0o600 });
    try {
      if (stream) for await (const chunk of stream as AsyncIterable<Buffer>) await this.add(chunk, file);
      const left = Buffer.concat(this.tail);
      const dropped = this.totalBytes - this.headBytes - left.length;
      if (dropped > 0) file.write(`\n[... ${String(dropped)} bytes not kept ...]\n`);
      file.end(left);
      await finished(file);
    } catch (error) {
      file.destroy();
      if (errnoOf(error) !== 'ENOSPC') throw error;
      throw new InfrabedError('IB_DISK_FULL', `No space left for ${this.path}.`, {
        hint: 'Free space on the file system of the state folder.',
        cause: error,
      });
    }
  }

  private async add(chunk: Buffer, file: WriteStream): Promise<void> {
    this.totalBytes += chunk.length;
    const forHead = chunk.subarray(0, Math.max(0, keptHeadBytes - this.headBytes));
    if (forHead.length > 0) {
      if (this.headBytes === 0) this.head.push(forHead.subarray(0, 4096));
      this.headBytes += forHead.length;
      if (!file.write(forHead)) await once(file, 'drain');
    }
    const forTail = chunk.subarray(forHead.length);
    if (forTail.length === 0) return;
    this.tail.push(forTail);
    this.tailBytes += forTail.length;
    if (this.tailBytes > 2 * keptTailBytes) {
      const kept = Buffer.concat(this.tail).subarray(-keptTailBytes);
      this.tail = [kept];
      this.tailBytes = kept.length;
    }
  }
}
