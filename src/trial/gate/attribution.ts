/** Why a check could not look: whose doing it is, found out over a path outside the agent's reach. */
import { deadline } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf, type ErrorCode } from '../../core/errors.js';
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';

export type Shortfall = Pick<EvidenceRecord, 'outcome' | 'blame' | 'error'>;

/** The node was not reached: whether it is to blame, only its standing tells. */
const connectionCodes: ReadonlySet<ErrorCode> = new Set([
  'IB_NODE_UNREACHABLE',
  'IB_NODE_OFF',
  'IB_SSH_AUTH',
  'IB_SSH_HOST_KEY',
]);
/** The node was reached and did not do as asked: its own doing, as long as it can be logged in to. */
const conductCodes: ReadonlySet<ErrorCode> = new Set(['IB_NODE_FAILED', 'IB_TIMEOUT', 'IB_OUTPUT_LIMIT']);

/**
 * The BMC lies beside the node: it answers while that is off, and its silence proves nothing of the node. One that
 * refuses the controller's own account had its accounts changed, which only whoever administers it can do.
 */
const bmcBlame: ReadonlyMap<ErrorCode, 'node' | 'unknown'> = new Map([
  ['IB_BMC_AUTH', 'node'],
  ['IB_BMC_UNREACHABLE', 'unknown'],
  ['IB_BMC', 'unknown'],
]);

/** True for an error that may be the node's: the others are faults of the checker. */
export function concernsNode(error: unknown): error is InfrabedError {
  return isInfrabedError(error) && (connectionCodes.has(error.code) || conductCodes.has(error.code));
}

export function isConnectionError(error: unknown): boolean {
  return isInfrabedError(error) && connectionCodes.has(error.code);
}

/**
 * What goes into the evidence in place of what was to be seen. A node that is alive but cannot be asked, or does not
 * do what every node does, is to blame itself; what proves neither is `unknown`.
 */
export async function attribute(
  error: unknown,
  on: string,
  cluster: Cluster,
  signal: AbortSignal,
): Promise<Shortfall> {
  const code = isInfrabedError(error) ? error.code : 'IB_CHECKER_FAILED';
  const message = messageOf(error);
  const ofBmc = isInfrabedError(error) ? bmcBlame.get(error.code) : undefined;
  if (ofBmc !== undefined) return { outcome: 'unreachable', blame: ofBmc, error: { code, message } };
  if (!concernsNode(error)) return { outcome: 'fault', error: { code, message } };
  const node = nodeOf(error, on, cluster);
  const { blame, why } = await standingOf(node, cluster, signal, conductCodes.has(error.code));
  return { outcome: 'unreachable', blame, error: { code, message: `${message} ${why}`.trim() } };
}

/** An error may be about another node than that of `on`. */
function nodeOf(error: InfrabedError, on: string, cluster: Cluster): string {
  const named = error.details['node'];
  return typeof named === 'string' && cluster.nodes.some(({ name }) => name === named) ? named : on;
}

const standingTimeoutMs = 30_000;

async function standingOf(
  node: string,
  cluster: Cluster,
  signal: AbortSignal,
  conduct: boolean,
): Promise<{ blame: 'node' | 'infrastructure' | 'unknown'; why: string }> {
  const limit = deadline(standingTimeoutMs, `Finding out how ${node} stands`, signal);
  try {
    const standing = await cluster.standing(node, limit.signal);
    if (standing.standing === 'unreachable') return { blame: standing.blame, why: standing.why };
    if (conduct) return { blame: 'node', why: `${node} itself can be logged in to.` };
    return { blame: 'unknown', why: `${node} can be logged in to now.` };
  } catch (error) {
    if (signal.aborted) throw error;
    return { blame: 'unknown', why: `How ${node} stands could not be found out: ${messageOf(error)}` };
  } finally {
    limit.clear();
  }
}
