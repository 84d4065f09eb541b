/** A command for a node and what came of it, and the command line that carries one over SSH. */
import { InfrabedError } from '../../core/errors.js';
import { shellQuote } from '../../core/exec.js';

/** One command for a node. Arguments are passed as arguments, never through a shell. */
export interface NodeCommand {
  argv: readonly string[];
  stdin?: string | Uint8Array;
  env?: Readonly<Record<string, string>>;
  /** Default 60 000. The command is killed and `timedOut` set. */
  timeoutMs?: number;
  /** Kept bytes of each stream (default 1 MiB); what is over is dropped and `truncated` set. */
  maxOutputBytes?: number;
  signal?: AbortSignal;
}

export interface CommandResult {
  /** null when the command was ended by a signal or by its time-out. */
  exitCode: number | null;
  /** Name of the signal (`SIGKILL`), or null. */
  signal: string | null;
  stdout: string;
  stderr: string;
  truncated: boolean;
  timedOut: boolean;
  durationMs: number;
}

export const defaultCommandTimeoutMs = 60_000;
export const defaultMaxOutputBytes = 1024 * 1024;

/**
 * The line that sshd hands to the login shell. `exec` puts the program in the shell's place, so that its exit
 * status or signal is the session's own.
 * @throws InfrabedError IB_USAGE for no program, a bad variable name, or a NUL byte.
 */
export function commandLine(argv: readonly string[], env: Readonly<Record<string, string>> = {}): string {
  const [program] = argv;
  if (program === undefined || program === '')
    throw new InfrabedError('IB_USAGE', 'A command needs a program.');
  const assignments = Object.entries(env).map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new InfrabedError('IB_USAGE', `"${name}" is not a name for an environment variable.`);
    }
    return `${name}=${value}`;
  });
  if (assignments.length > 0 && program.includes('=')) {
    throw new InfrabedError('IB_USAGE', `env would take the program "${program}" for a variable.`);
  }
  const words = assignments.length > 0 ? ['env', ...assignments, ...argv] : argv;
  return ['exec', ...words].map(shellQuote).join(' ');
}
