/** One run of ipmitool over lanplus: its flags, its own limit, and what became of it. */
import { InfrabedError, isInfrabedError } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import type { CipherSuite } from './cipher-suite.js';
import { scriptEnd } from './script.js';
import { outcomeOf, type Outcome } from './outcome.js';

export interface Endpoint {
  address: string;
  port: number;
  username: string;
  /** Its first line is the password; mode 0600. Never on a command line. */
  passwordFile: string;
  /** Makes an argv one that runs where the BMC can be reached (a network namespace), on this machine's files. */
  reach: (argv: readonly string[]) => readonly string[];
}

export interface Timing {
  /** How long a reply may take before a request is repeated or given up (-N), whole seconds. */
  replySec: number;
  /** How often one packet of a request that changes nothing is sent (-R). */
  sends: number;
}

export const usualTiming: Timing = { replySec: 2, sends: 2 };

/** How long a reply to an act may take: it is sent once, so there is nothing to be gained by less. */
const actReplySec = 5;
/** For the whole of a run, session included. */
const runLimitMs = 60_000;

export function endpointArgs(endpoint: Endpoint, suite: CipherSuite): string[] {
  const { address, port, username, passwordFile } = endpoint;
  const account = ['-U', username, '-f', passwordFile, '-C', String(suite)];
  return ['-I', 'lanplus', '-H', address, '-p', String(port), ...account];
}

export interface IpmitoolRun {
  args: readonly string[];
  /** Sent once, whatever becomes of the reply: ipmitool itself would repeat it (-R). */
  isAct: boolean;
  /** With -v, which tells why no session came about. Only where it does not change what the command prints. */
  isVerbose: boolean;
  /** Commands for `exec` that end with `echo end` (script.ts). */
  isScript: boolean;
  signal?: AbortSignal | undefined;
}

/**
 * Runs ipmitool once.
 * @throws InfrabedError IB_PROGRAM_MISSING, IB_CANCELLED, IB_OUTPUT_LIMIT; a run that does not end is an outcome.
 */
export async function runIpmitool(
  endpoint: Endpoint,
  suite: CipherSuite,
  timing: Timing,
  wanted: IpmitoolRun,
): Promise<Outcome> {
  const [replySec, sends] = wanted.isAct
    ? [Math.max(actReplySec, timing.replySec), 1]
    : [timing.replySec, timing.sends];
  const [program, ...args] = endpoint.reach([
    'ipmitool',
    ...(wanted.isVerbose ? ['-v'] : []),
    ...endpointArgs(endpoint, suite),
    ...['-N', String(replySec), '-R', String(sends)],
    ...wanted.args,
  ]);
  if (program === undefined) throw new InfrabedError('IB_INTERNAL', 'There is no way to reach the BMC.');
  try {
    const ran = await run(program, args, {
      // Its messages are parsed, so they have to come in the language they are known in.
      env: { LC_ALL: 'C' },
      allowFailure: true,
      timeoutMs: runLimitMs,
      ...(wanted.signal === undefined ? {} : { signal: wanted.signal }),
    });
    // `exec` ends with a failure when any command had one; who reads its output knows which of them may.
    return outcomeOf(wanted.isScript && scriptEnd.test(ran.stdout) ? { ...ran, exitCode: 0 } : ran);
  } catch (error) {
    // The caller's own time-out comes as the signal's reason; the limit above is the only other one.
    if (isInfrabedError(error, 'IB_TIMEOUT') && wanted.signal?.aborted !== true) {
      return { kind: 'lost', text: error.message };
    }
    throw error;
  }
}
