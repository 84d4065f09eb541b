/** One door for every program we start: its error carries command, output, exit status and signal. */
import { spawn, spawnSync, type ChildProcess, type StdioOptions } from 'node:child_process';
import { execa, ExecaError } from 'execa';
import { InfrabedError } from './errors.js';
import { redactor } from './log.js';

export interface RunOptions {
  cwd?: string;
  /** Added to the controller's own environment unless `cleanEnv`. */
  env?: Record<string, string>;
  cleanEnv?: boolean;
  input?: string | Uint8Array;
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Bytes of each stream that are kept; a longer one ends the program. Default 16 MiB. */
  maxOutputBytes?: number;
  /** Called with each complete line of standard output. */
  onLine?: (line: string) => void;
  /** Do not throw on a non-zero exit status; a signal or a missing program still throws. */
  allowFailure?: boolean;
}

export interface RunResult {
  exitCode: number;
  stdout: string;
  stderr: string;
}

/**
 * Runs a program to its end.
 * @throws InfrabedError IB_PROGRAM_MISSING, IB_PROGRAM_FAILED, IB_TIMEOUT, IB_CANCELLED or IB_OUTPUT_LIMIT.
 */
export async function run(
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const shown = redactor.redact([program, ...args].join(' '));
  const subprocess = execa(program, [...args], {
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env }),
    extendEnv: options.cleanEnv !== true,
    ...(options.input === undefined ? { stdin: 'ignore' as const } : { input: options.input }),
    ...(options.timeoutMs === undefined ? {} : { timeout: options.timeoutMs }),
    ...(options.signal === undefined ? {} : { cancelSignal: options.signal }),
    maxBuffer: options.maxOutputBytes ?? 16 * 1024 * 1024,
    stripFinalNewline: false,
    forceKillAfterDelay: 2000,
  });
  const lines = options.onLine === undefined ? undefined : readLines(subprocess, options.onLine);
  try {
    const result = await subprocess;
    await lines;
    return { exitCode: result.exitCode ?? 0, stdout: result.stdout, stderr: result.stderr };
  } catch (error) {
    await lines;
    if (!(error instanceof ExecaError)) throw error;
    return failed(error as ExecaError, shown, options);
  }
}

async function readLines(subprocess: AsyncIterable<unknown>, onLine: (line: string) => void): Promise<void> {
  try {
    for await (const line of subprocess) onLine(String(line));
  } catch {
    // The same failure is reported, once, by awaiting the program itself.
  }
}

function failed(error: ExecaError, shown: string, options: RunOptions): RunResult {
  const stdout = typeof error.stdout === 'string' ? error.stdout : '';
  const stderr = typeof error.stderr === 'string' ? error.stderr : '';
  if (options.allowFailure && error.exitCode !== undefined && !error.isCanceled && !error.timedOut) {
    return { exitCode: error.exitCode, stdout, stderr };
  }
  const details = {
    command: shown,
    exitCode: error.exitCode ?? null,
    signal: error.signal ?? null,
    stdout: tail(stdout),
    stderr: tail(stderr),
  };
  if (error.code === 'ENOENT') {
    throw new InfrabedError('IB_PROGRAM_MISSING', `The program of "${shown}" is not installed.`, {
      hint: 'Run "make setup" (or "infrabed doctor" to see everything that is missing).',
      details,
    });
  }
  if (error.isCanceled) {
    const reason: unknown = options.signal?.reason;
    if (reason instanceof InfrabedError) throw reason;
    throw new InfrabedError('IB_CANCELLED', `"${shown}" was cancelled.`, { details });
  }
  if (error.timedOut) {
    throw new InfrabedError('IB_TIMEOUT', `"${shown}" did not end within ${String(options.timeoutMs)} ms.`, {
      details,
    });
  }
  if (error.isMaxBuffer) {
    throw new InfrabedError('IB_OUTPUT_LIMIT', `"${shown}" printed more than is kept.`, { details });
  }
  const how = error.signal ? `was ended by ${error.signal}` : `ended with status ${String(error.exitCode)}`;
  throw new InfrabedError('IB_PROGRAM_FAILED', `"${shown}" ${how}: ${lastLines(stderr || stdout, 3)}`, {
    cause: error,
    details,
  });
}

function tail(text: string): string {
  return redactor.redact(text.slice(-4000));
}

/** The last non-empty lines of a text, joined by " | ". */
export function lastLines(text: string, count: number): string {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return redactor.redact(lines.slice(-count).join(' | ')) || '(no output)';
}

/**
 * Runs a short program while everything else waits: only for code that has to be synchronous, such as a judge.
 * A non-zero exit status is returned, not thrown.
 * @throws InfrabedError IB_PROGRAM_MISSING, IB_TIMEOUT, IB_OUTPUT_LIMIT or IB_PROGRAM_FAILED (ended by a signal).
 */
export function runSync(
  program: string,
  args: readonly string[],
  options: { input: string; timeoutMs: number; maxOutputBytes?: number; cwd?: string },
): RunResult {
  const shown = redactor.redact([program, ...args].join(' '));
  const result = spawnSync(program, [...args], {
    input: options.input,
    timeout: options.timeoutMs,
    killSignal: 'SIGKILL',
    maxBuffer: options.maxOutputBytes ?? 16 * 1024 * 1024,
    encoding: 'utf8',
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  const errno = (result.error as NodeJS.ErrnoException | undefined)?.code;
  const raise = (
    code: 'IB_PROGRAM_MISSING' | 'IB_TIMEOUT' | 'IB_OUTPUT_LIMIT' | 'IB_PROGRAM_FAILED',
    how: string,
  ): never => {
    throw new InfrabedError(code, `"${shown}" ${how}.`, { cause: result.error });
  };
  if (errno === 'ENOENT') raise('IB_PROGRAM_MISSING', 'could not be started: the program is not installed');
  if (errno === 'ETIMEDOUT') raise('IB_TIMEOUT', `did not end within ${String(options.timeoutMs)} ms`);
  if (errno === 'ENOBUFS') raise('IB_OUTPUT_LIMIT', 'printed more than is kept');
  if (result.status === null)
    return raise('IB_PROGRAM_FAILED', `was ended by ${result.signal ?? errno ?? 'a signal'}`);
  return { exitCode: result.status, stdout: result.stdout, stderr: result.stderr };
}

/** Starts a program that lives on beside us; its caller owns its streams and its end. */
export function start(
  program: string,
  args: readonly string[],
  options: { stdio?: StdioOptions; detached?: boolean; env?: NodeJS.ProcessEnv; cwd?: string } = {},
): ChildProcess {
  return spawn(program, [...args], { stdio: 'pipe', ...options });
}

/**
 * Quotes one word for a POSIX shell: the only function that does.
 * @throws InfrabedError IB_USAGE for a NUL byte, which no shell can carry.
 */
export function shellQuote(word: string): string {
  if (word.includes('\0')) throw new InfrabedError('IB_USAGE', 'A shell word cannot hold a NUL byte.');
  return /^[A-Za-z0-9_\-./:=@%+,]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
