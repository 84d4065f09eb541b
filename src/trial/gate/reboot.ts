/** The reboot gate's power-cycle: by the power driver, proven by a boot_id, with blame for a node that stays away. */
import { throwIfAborted, type Clock } from '../../core/clock.js';
import { messageOf } from '../../core/errors.js';
import type { Cluster, NodeStanding } from '../../testbed/cluster/cluster.js';
import type { Testimony } from '../../testbed/driver/driver.js';

export type RebootResult =
  | {
      node: string;
      outcome: 'booted';
      /** null where the node could not be asked before. */
      bootIdBefore: string | null;
      bootIdAfter: string;
      durationMs: number;
    }
  | {
      node: string;
      outcome: 'not-back';
      blame: 'node' | 'infrastructure' | 'unknown';
      why: string;
      testimony?: Testimony;
      durationMs: number;
    };

export interface RebootOptions {
  cluster: Cluster;
  nodes: readonly string[];
  order: 'together' | 'one-by-one';
  /** Power-cycles of each node, one after the other. Default 1; a node that is not back gets no further one. */
  times?: number;
  /** From the power-cycle of a node until it has to answer. */
  timeoutMs: number;
  /** Waited after the nodes are back: after each of them, where they go one by one. */
  settleMs: number;
  clock: Clock;
  signal: AbortSignal;
  /** Told as soon as a node is back or given up, each time. */
  onResult?: (result: RebootResult) => void;
}

/**
 * Power-cycles the nodes. The last result of each comes back, in the order of `nodes`.
 * @throws InfrabedError IB_CANCELLED.
 */
export async function rebootNodes(options: RebootOptions): Promise<RebootResult[]> {
  const { nodes, times = 1 } = options;
  const last = new Map<string, RebootResult>();
  for (let round = 0; round < times; round++) {
    const left = nodes.filter((node) => last.get(node)?.outcome !== 'not-back');
    for (const result of await rebootOnce({ ...options, nodes: left })) last.set(result.node, result);
  }
  return [...last.values()];
}

async function rebootOnce(options: RebootOptions): Promise<RebootResult[]> {
  const { nodes, order, settleMs, clock, signal } = options;
  const results: RebootResult[] = [];
  if (order === 'together') {
    results.push(...(await Promise.all(nodes.map((node) => rebootNode(node, options)))));
    if (nodes.length > 0) await clock.sleep(settleMs, signal);
    return results;
  }
  for (const node of nodes) {
    results.push(await rebootNode(node, options));
    await clock.sleep(settleMs, signal);
  }
  return results;
}

async function rebootNode(node: string, options: RebootOptions): Promise<RebootResult> {
  const { clock, signal, onResult } = options;
  const begun = clock.now();
  const before = await bootIdBefore(node, options);
  const failure = await powerCycle(node, options);
  const bootIdAfter = failure === undefined ? await waitForBoot(node, before, begun, options) : undefined;
  const durationMs = clock.now() - begun;
  const result: RebootResult =
    bootIdAfter !== undefined
      ? { node, outcome: 'booted', bootIdBefore: before, bootIdAfter, durationMs }
      : { node, outcome: 'not-back', ...(await whoIsToBlame(node, failure, options)), durationMs };
  throwIfAborted(signal);
  onResult?.(result);
  return result;
}

/** Over SSH, else over the path outside: an agent may have stopped sshd. */
async function bootIdBefore(node: string, { cluster, signal }: RebootOptions): Promise<string | null> {
  try {
    return await cluster.bootId(node, signal);
  } catch (error) {
    throwIfAborted(signal);
    const standing = await standingOf(node, cluster, signal, messageOf(error));
    return standing.standing === 'unreachable' ? (standing.testimony?.bootId ?? null) : null;
  }
}

/** What went wrong with the power-cycle itself, or undefined. */
async function powerCycle(node: string, { cluster, signal }: RebootOptions): Promise<string | undefined> {
  try {
    await cluster.power(node).cycle(signal);
    return undefined;
  } catch (error) {
    throwIfAborted(signal);
    return `The power-cycle failed: ${messageOf(error)}`;
  }
}

const pollMs = 200;
/** A node that is off twice in a row, so far apart, is not on its way up. */
const powerLookMs = 5000;

/** The new boot_id, or undefined when the node is not back in time or has gone off again. */
async function waitForBoot(
  node: string,
  before: string | null,
  begun: number,
  options: RebootOptions,
): Promise<string | undefined> {
  const { cluster, clock, signal, timeoutMs } = options;
  let offSeen = 0;
  let nextLook = begun + powerLookMs;
  while (clock.now() < begun + timeoutMs) {
    try {
      const now = await cluster.bootId(node, signal);
      if (now !== before) return now;
    } catch {
      // Not up yet: any failure of a session counts as that until the time is over, and is then attributed.
      throwIfAborted(signal);
    }
    if (clock.now() >= nextLook) {
      nextLook = clock.now() + powerLookMs;
      offSeen = (await isOff(node, cluster, signal)) ? offSeen + 1 : 0;
      if (offSeen >= 2) return undefined;
    }
    await clock.sleep(pollMs, signal);
  }
  return undefined;
}

async function isOff(node: string, cluster: Cluster, signal: AbortSignal): Promise<boolean> {
  try {
    return (await cluster.power(node).state(signal)) === 'off';
  } catch {
    throwIfAborted(signal);
    return false;
  }
}

type Blame = Pick<Extract<RebootResult, { outcome: 'not-back' }>, 'blame' | 'why' | 'testimony'>;

async function whoIsToBlame(
  node: string,
  failure: string | undefined,
  options: RebootOptions,
): Promise<Blame> {
  const { cluster, signal, timeoutMs } = options;
  const said = failure ?? `It was not back ${String(Math.round(timeoutMs / 1000))} s after its power-cycle.`;
  const standing = await standingOf(node, cluster, signal, said);
  if (standing.standing === 'reachable') {
    // It answers, but has not booted: the power driver did not do what it said.
    return {
      blame: 'infrastructure',
      why: `${said} It answers with the boot_id of before, or answered too late.`,
    };
  }
  const { blame, why, testimony } = standing;
  return { blame, why: `${said} ${why}`, ...(testimony === undefined ? {} : { testimony }) };
}

async function standingOf(
  node: string,
  cluster: Cluster,
  signal: AbortSignal,
  said: string,
): Promise<NodeStanding> {
  try {
    return await cluster.standing(node, signal);
  } catch (error) {
    throwIfAborted(signal);
    const why = `How it stands could not be found out (${messageOf(error)}; before that: ${said}).`;
    return { standing: 'unreachable', blame: 'unknown', why };
  }
}
