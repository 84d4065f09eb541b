/** The one function that moves a node from state to state: legal by the table, fenced by its lease, written at once. */
import type { Kysely } from 'kysely';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import type { Database } from '../../record/store/schema.js';
import { followers, heldStates, mayFollow, nodeStates } from './states.js';
import type { NodeState } from './states.js';

/** A lease as the fence sees it. */
export interface Fence {
  id: string;
  generation: number;
}

/** Why a node may be lent again. Stored as a row before the node counts as available. */
export interface CleanProof {
  /** How it was cleaned, e.g. `container-destroyed`. */
  method: string;
  /** What was read back: JSON-able fields. */
  proof: Record<string, unknown>;
}

/** Machine-readable reason of a quarantine. */
export interface NodeFault {
  code: string;
  /** One sentence. */
  message: string;
}

export interface TransitionOptions {
  /** Holder of the node: needed for every move of a node under a lease, and to `leased`. */
  lease?: Fence;
  /** Needed for `available`. */
  clean?: CleanProof;
  /** Needed for `quarantined`. */
  fault?: NodeFault;
  /** Who ends or begins a hold, `person:NAME`; needed for `maintenance` and out of it. */
  person?: string;
  clock?: Clock;
}

/**
 * Moves a node, or throws and moves nothing.
 * @throws InfrabedError IB_NODE_UNKNOWN, IB_NODE_STATE for a move that the table or its conditions forbid,
 *   IB_LEASE_CONFLICT when the lease given is not the one that holds the node, or is not valid any more.
 */
export async function transition(
  db: Kysely<Database>,
  node: string,
  to: NodeState,
  options: TransitionOptions = {},
): Promise<void> {
  if (!db.isTransaction) {
    await db.transaction().execute((transaction) => transition(transaction, node, to, options));
    return;
  }
  const row = await db.selectFrom('nodes').selectAll().where('name', '=', node).executeTakeFirst();
  if (row === undefined) throw new InfrabedError('IB_NODE_UNKNOWN', `There is no node "${node}".`);
  const from = parseState(row.state);
  if (!mayFollow(from, to))
    throw illegal(node, from, to, `from there a node goes to ${followers(from).join(', ')}`);
  const missing = missingCondition(from, to, options);
  if (missing) throw illegal(node, from, to, missing);
  await checkFence(db, node, row.lease, options.lease);
  const at = (options.clock ?? systemClock).now();
  let cleanRecord = row.clean_record;
  if (to === 'available' && options.clean) {
    const { method, proof } = options.clean;
    const { id } = await db
      .insertInto('clean_records')
      .values({ node, lease: row.lease, method, proof: JSON.stringify(proof), at })
      .returning('id')
      .executeTakeFirstOrThrow();
    cleanRecord = id;
  }
  await db
    .updateTable('nodes')
    .set({
      state: to,
      since: at,
      clean_record: cleanRecord,
      lease: nextLease(to, row.lease, options.lease),
      fault: nextFault(to, row.fault, options.fault, at),
    })
    .where('name', '=', node)
    .execute();
}

function parseState(text: string): NodeState {
  const state = nodeStates.find((one) => one === text);
  if (state) return state;
  throw new InfrabedError('IB_STORE', `The store holds a node in the state "${text}", which does not exist.`);
}

function illegal(node: string, from: NodeState, to: NodeState, why: string): InfrabedError {
  return new InfrabedError('IB_NODE_STATE', `${node} is ${from} and cannot become ${to}: ${why}.`, {
    details: { node, from, to },
  });
}

function missingCondition(from: NodeState, to: NodeState, options: TransitionOptions): string | undefined {
  if (to === 'available' && !options.clean) return 'that takes a clean record';
  if (to === 'quarantined' && !options.fault) return 'that takes a fault';
  if (to === 'leased' && !options.lease) return 'that takes a lease';
  if ((to === 'maintenance' || from === 'maintenance') && !options.person)
    return 'only a person holds and frees a node';
  return undefined;
}

async function checkFence(
  db: Kysely<Database>,
  node: string,
  holder: string | null,
  lease: Fence | undefined,
): Promise<void> {
  const conflict = (why: string): InfrabedError =>
    new InfrabedError('IB_LEASE_CONFLICT', `${node} ${why}.`, {
      hint: 'Run "infrabed cluster list" to see who holds what.',
      details: { node, holder, lease: lease?.id ?? null },
    });
  if (holder !== null && lease?.id !== holder) throw conflict(`is held by the lease ${holder}`);
  if (lease === undefined) return;
  const row = await db.selectFrom('leases').selectAll().where('id', '=', lease.id).executeTakeFirst();
  if (row === undefined) throw conflict(`cannot be moved by the lease ${lease.id}, which does not exist`);
  if (row.state !== 'active') throw conflict(`cannot be moved by the lease ${lease.id}, which has ended`);
  if (row.generation !== lease.generation)
    throw conflict(`cannot be moved by an old generation of the lease ${lease.id}`);
}

/** Cleaning is done under the lease that made the dirt; quarantine and maintenance outlive any lease. */
function nextLease(to: NodeState, holder: string | null, lease: Fence | undefined): string | null {
  if (heldStates.includes(to)) return lease?.id ?? holder;
  return to === 'cleaning' ? holder : null;
}

/** Only a successful clean clears a fault. */
function nextFault(
  to: NodeState,
  present: string | null,
  fault: NodeFault | undefined,
  at: number,
): string | null {
  if (to === 'available') return null;
  return fault ? JSON.stringify({ ...fault, at }) : present;
}
