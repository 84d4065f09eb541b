/** Acts on a cluster for one generation of its lease, each by a child that checks and acts under one lock (fence.py). */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { diskError } from '../../../core/disk.js';
import { errnoOf, InfrabedError, isInfrabedError, type ErrorCode } from '../../../core/errors.js';
import { lastLines, run } from '../../../core/exec.js';
import { failpoint } from '../../../core/failpoint.js';
import { asset } from '../../../core/paths.js';
import { markName } from './host-processes.js';

/** For whom a handle acts, and on what. */
export interface Holding {
  clusterId: string;
  generation: number;
  /** Folder of the cluster's fence, which stays when the cluster goes. */
  fence: string;
  /** TAG-ID: with the generation behind it, the mark of every process that acts. */
  mark: string;
}

export function holdingOf(
  stateFolder: string,
  { tag, id, generation }: { tag: string; id: string; generation: number },
): Holding {
  return { clusterId: id, generation, fence: fenceFolder(stateFolder, id), mark: `${tag}-${id}` };
}

/** The folder of a cluster's fence: locks, generation, and what is remembered of the cluster. */
export const fenceFolder = (stateFolder: string, id: string): string => join(stateFolder, 'fences', id);

/** The environment of whatever acts on the cluster: by it a take-over finds what to kill. */
export function markedEnvironment(holding: Holding): Record<string, string> {
  return { [markName]: `${holding.mark}:${String(holding.generation)}` };
}

/** argv that becomes the program under the fence's lock, or ends with status 76. */
export function fencedArgv(holding: Holding, argv: readonly string[]): string[] {
  const script = asset('src/testbed/driver/container/fenced.pl');
  return ['/usr/bin/perl', script, holding.fence, String(holding.generation), ...argv];
}

/** The same where the environment is not ours to give. */
export function markedArgv(holding: Holding, argv: readonly string[]): string[] {
  const [mark = ''] = Object.entries(markedEnvironment(holding)).map((words) => words.join('='));
  return ['env', mark, ...fencedArgv(holding, argv)];
}

/** Exit status of a child that did nothing since another generation has the cluster. */
export const fencedOffStatus = 76;

export function fencedOff(holding: Holding, cause?: unknown): InfrabedError {
  return new InfrabedError(
    'IB_LEASE_CONFLICT',
    `Generation ${String(holding.generation)} of a lease no longer has the cluster ${holding.clusterId}; nothing was done.`,
    {
      hint: 'Another controller took it over, or the lease ended: see "infrabed lease list".',
      ...(cause === undefined ? {} : { cause }),
    },
  );
}

/** What the fence says: who has the cluster, or from which generation on it can be made. undefined: nothing yet. */
export interface FenceState {
  kind: 'live' | 'floor';
  generation: number;
}

export async function readFence(fence: string): Promise<{ text: string; state: FenceState | undefined }> {
  let text: string;
  try {
    text = await readFile(join(fence, 'generation'), 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    return { text: '', state: undefined };
  }
  const [, kind, number] = /^(live|floor) (\d+)\n$/.exec(text) ?? [];
  if (kind === undefined) throw new InfrabedError('IB_STATE_DIR', `${fence}/generation cannot be read.`);
  return { text, state: { kind: kind === 'live' ? 'live' : 'floor', generation: Number(number) } };
}

/** True while the holding's generation has the cluster. Good for explaining a failure, not for acting on it. */
export async function stillHolds(holding: Holding): Promise<boolean> {
  const { state } = await readFence(holding.fence);
  return state?.kind === 'live' && state.generation === holding.generation;
}

const codes = ['IB_LEASE_CONFLICT', 'IB_TIMEOUT', 'IB_POWER', 'IB_HOST_UNFIT'] as const satisfies ErrorCode[];
const answerSchema = z.union([
  z.object({ done: z.unknown() }),
  z.object({ code: z.enum(codes), message: z.string() }),
  z.object({ errno: z.number(), message: z.string(), path: z.string() }),
]);
type Verb =
  | 'bmc-start'
  | 'bmc-stop'
  | 'make'
  | 'on'
  | 'off'
  | 'ask-off'
  | 'reset'
  | 'tidy'
  | 'remove'
  | 'take'
  | 'retire';

/** Who carries the acts of this backend out; virtual machines have theirs, under the same fence. */
const containerActs = 'src/testbed/driver/container/cluster-act.py';

/**
 * One act by a child of `script`. Returns its result.
 * @throws InfrabedError IB_LEASE_CONFLICT when it was fenced off or killed by a take-over, and as the act itself.
 */
export async function act(
  holding: Holding,
  verb: Verb,
  request: Record<string, unknown>,
  script = containerActs,
): Promise<unknown> {
  const { clusterId: cluster, generation, fence, mark } = holding;
  failpoint(`container.${verb}.checked`);
  const finished = await run('/usr/bin/python3', ['-I', '-S', asset(script), verb], {
    env: markedEnvironment(holding),
    input: JSON.stringify({ ...request, cluster, generation, fence, mark }),
    allowFailure: true,
  }).catch(async (error: unknown) => {
    if (isInfrabedError(error, 'IB_PROGRAM_FAILED') && !(await stillHolds(holding)))
      throw fencedOff(holding, error);
    throw error;
  });
  failpoint(`container.${verb}.done`);
  if (finished.exitCode === fencedOffStatus) throw fencedOff(holding, finished.stderr);
  if (finished.exitCode !== 0) throw actFailed(holding, verb, lastLines(finished.stderr, 1));
  const answer = answerSchema.parse(JSON.parse(finished.stdout));
  if ('done' in answer) return answer.done;
  if ('code' in answer) throw new InfrabedError(answer.code, answer.message, { hint: hints[answer.code] });
  const cause = Object.assign(new Error(answer.message), { code: errnoNames[answer.errno] ?? 'EIO' });
  if (cause.code === 'EIO') throw actFailed(holding, verb, answer.message);
  throw diskError(cause, `act on the cluster ${cluster} (${verb})`, answer.path);
}

const actFailed = (holding: Holding, verb: Verb, why: string): InfrabedError =>
  new InfrabedError('IB_PROGRAM_FAILED', `The act "${verb}" on cluster ${holding.clusterId} failed: ${why}`);

/** Those that mean a full disk; all others are told by their text. */
const errnoNames: Record<number, string> = { 28: 'ENOSPC', 122: 'EDQUOT', 27: 'EFBIG' };

const hints: Record<(typeof codes)[number], string> = {
  IB_LEASE_CONFLICT: 'See "infrabed cluster list".',
  IB_TIMEOUT: 'It hangs in the kernel, usually on a disk: see "ps -eo pid,stat,wchan,args".',
  IB_POWER:
    'They hang in the kernel, usually on a disk or a network file system: see "ps -eo pid,stat,wchan,args".',
  IB_HOST_UNFIT: 'Run "infrabed sweep" with each state folder in use.',
};
