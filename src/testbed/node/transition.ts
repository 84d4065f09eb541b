/** The one function that moves a node from state to state: legal by the table, fenced by its lease, written at once. */
import type { Kysely, Selectable } from 'kysely';
import { z } from 'zod';
import { controllerActor, type Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import { postNotice } from '../../record/notice/post.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database, NodesTable } from '../../record/store/schema.js';
import { cleanProofSchema, type CleanProof } from './clean-proof.js';
import { parseFault, type NodeFault } from './fault.js';
import { followers, heldStates, mayFollow, nodeStates } from './states.js';
import type { NodeState } from './states.js';

export type { CleanProof } from './clean-proof.js';
export type { NodeFault } from './fault.js';

/** A lease as the fence sees it. */
export interface Fence {
  id: string;
  generation: number;
}

export interface TransitionOptions {
  /** Who does it; without one, the controller by itself. Only a person's word begins or ends a hold. */
  actor?: Actor;
  /** Holder of the node: needed for every move of a node under a lease, and to `leased`. */
  lease?: Fence;
  /** Needed for `available`. */
  clean?: CleanProof;
  /** Needed for `quarantined`. */
  fault?: NodeFault;
  /** Needed for `maintenance`: the person's reason. */
  why?: string;
  clock?: Clock;
}

type NodeRow = Selectable<NodesTable>;

/**
 * Moves a node, or throws and moves nothing. Returns the state that it came to, which is not always `available` where
 * that was asked for: a node with a person's hold goes to `maintenance`, and one with a fault that the proof does not
 * clear (all but `verified-boot`) to `quarantined`. Its clean record is kept in both cases.
 * @throws InfrabedError IB_NODE_UNKNOWN, IB_NODE_STATE for a move that the table or its conditions forbid,
 *   IB_LEASE_CONFLICT when the lease given is not the one that holds the node, or is not valid any more.
 */
export async function transition(
  db: Kysely<Database>,
  node: string,
  to: NodeState,
  options: TransitionOptions = {},
): Promise<NodeState> {
  if (!db.isTransaction) {
    return db.transaction().execute((transaction) => transition(transaction, node, to, options));
  }
  const row = await nodeRow(db, node);
  const from = parseState(row.state);
  if (!mayFollow(from, to))
    throw illegal(node, from, to, `from there a node goes to ${followers(from).join(', ')}`);
  const missing = missingCondition(row, from, to, options) ?? (await proofLacks(db, row, to, options));
  if (missing) throw illegal(node, from, to, missing);
  await checkFence(db, node, row.lease, options.lease);
  const at = (options.clock ?? systemClock).now();
  const cleanRecord = to === 'available' && options.clean ? await record(db, row, options.clean, at) : null;
  const reached = to === 'available' ? afterClean(row, options.clean) : to;
  const fault = nextFault(reached, row, options.fault, at);
  await db
    .updateTable('nodes')
    .set({
      state: reached,
      since: at,
      clean_record: cleanRecord ?? row.clean_record,
      lease: nextLease(reached, row.lease, options.lease),
      fault: fault === null ? null : JSON.stringify(fault),
      hold: nextHold(from, reached, row, options, at),
      // Only a boot that was seen to go well ends a row of failures here; an emptied node may fail again.
      ...(reached === 'available' && options.clean?.method === 'verified-boot' ? { failures: 0 } : {}),
      // A probe says something about an idle node only.
      ...(reached === 'available' ? {} : { probe_at: null }),
    })
    .where('name', '=', node)
    .execute();
  await tell(db, { row, from, reached, fault, cleanRecord, options });
  return reached;
}

/** @throws InfrabedError IB_NODE_UNKNOWN. */
export async function nodeRow(db: Kysely<Database>, node: string): Promise<NodeRow> {
  const row = await db.selectFrom('nodes').selectAll().where('name', '=', node).executeTakeFirst();
  if (row !== undefined) return row;
  throw new InfrabedError('IB_NODE_UNKNOWN', `There is no node "${node}".`, {
    hint: 'Run "infrabed node list" to see the nodes there are.',
  });
}

export function parseState(text: string): NodeState {
  const state = nodeStates.find((one) => one === text);
  if (state) return state;
  throw new InfrabedError('IB_STORE', `The store holds a node in the state "${text}", which does not exist.`);
}

/** True for people; the controller acting by itself is none. */
export function isPerson(actor: Actor | undefined): boolean {
  return actor !== undefined && actor.name !== controllerActor.name;
}

function illegal(node: string, from: NodeState, to: NodeState, why: string): InfrabedError {
  return new InfrabedError('IB_NODE_STATE', `${node} is ${from} and cannot become ${to}: ${why}.`, {
    details: { node, from, to },
  });
}

function missingCondition(
  row: NodeRow,
  from: NodeState,
  to: NodeState,
  options: TransitionOptions,
): string | undefined {
  if (to === 'available' && !options.clean) return 'that takes a clean record';
  if (to === 'quarantined' && !options.fault) return 'that takes a fault';
  if (to === 'leased' && !options.lease) return 'that takes a lease';
  if (to === 'leased' && row.retired === 1) return 'it is no longer in its inventory';
  if ((to === 'maintenance' || from === 'maintenance') && !isPerson(options.actor))
    return 'only a person holds and frees a node';
  if (to === 'maintenance' && !options.why) return 'that takes a reason';
  return undefined;
}

/** What a proof lacks for this node, as a sentence's end. */
async function proofLacks(
  db: Kysely<Database>,
  row: NodeRow,
  to: NodeState,
  { clean }: TransitionOptions,
): Promise<string | undefined> {
  if (to !== 'available' || clean === undefined) return undefined;
  const parsed = cleanProofSchema.safeParse(clean);
  if (!parsed.success) return `the clean proof is not complete: ${z.prettifyError(parsed.error)}`;
  if (clean.method === 'never-made') {
    return row.clean_record === null ? undefined : 'it was cleaned before, so that it is not "never-made"';
  }
  if (clean.method !== 'untouched') {
    return clean.bmc === null && hasBmc(row.spec) ? 'the clean proof says nothing about its BMC' : undefined;
  }
  if (row.clean_record !== clean.previous) return 'the proof of before the lease is not its newest one';
  const last = await db
    .selectFrom('changes')
    .select('detail')
    .where('subject', '=', row.name)
    .where('kind', '=', 'node.cleaning')
    .orderBy('id', 'desc')
    .executeTakeFirst();
  const { from } = z.object({ from: z.string() }).parse(JSON.parse(last?.detail ?? '{"from":"unknown"}'));
  return from === 'leased' ? undefined : `it was ${from} before, so that it is not "untouched"`;
}

const powerSchema = z.object({ power: z.object({ address: z.string() }) });

function hasBmc(spec: string): boolean {
  return powerSchema.safeParse(JSON.parse(spec)).success;
}

/** A person's hold comes into force here, and so does a fault that was found while the node was lent. */
function afterClean(row: NodeRow, clean: CleanProof | undefined): NodeState {
  if (row.hold !== null) return 'maintenance';
  return row.fault !== null && clean?.method !== 'verified-boot' ? 'quarantined' : 'available';
}

async function record(db: Kysely<Database>, row: NodeRow, clean: CleanProof, at: number): Promise<number> {
  const { method, ...proof } = clean;
  const { id } = await db
    .insertInto('clean_records')
    .values({ node: row.name, lease: row.lease, method, proof: JSON.stringify(proof), at })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

async function checkFence(
  db: Kysely<Database>,
  node: string,
  holder: string | null,
  lease: Fence | undefined,
): Promise<void> {
  const conflict = (why: string): InfrabedError =>
    new InfrabedError('IB_LEASE_CONFLICT', `${node} ${why}.`, {
      hint: 'Run "infrabed lease list" to see who holds what.',
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

/** Cleaning is done under the lease that made the dirt, or that was taken for it; what follows outlives any lease. */
function nextLease(reached: NodeState, holder: string | null, lease: Fence | undefined): string | null {
  if (heldStates.includes(reached)) return lease?.id ?? holder;
  return reached === 'cleaning' ? (lease?.id ?? holder) : null;
}

/** Only a successful clean clears a fault. */
function nextFault(
  reached: NodeState,
  row: NodeRow,
  fault: NodeFault | undefined,
  at: number,
): NodeFault | null {
  if (reached === 'available') return null;
  return fault ? { ...fault, at } : parseFault(row.fault);
}

function nextHold(
  from: NodeState,
  reached: NodeState,
  row: NodeRow,
  { actor, why }: TransitionOptions,
  at: number,
): string | null {
  if (from === 'maintenance') return null;
  if (reached === 'maintenance' && row.hold === null) return JSON.stringify({ by: actor?.name, why, at });
  return row.hold;
}

interface Move {
  row: NodeRow;
  from: NodeState;
  reached: NodeState;
  fault: NodeFault | null;
  cleanRecord: number | null;
  options: TransitionOptions;
}

/** The change on record and, for a quarantine, the notice. */
async function tell(
  db: Kysely<Database>,
  { row, from, reached, fault, cleanRecord, options }: Move,
): Promise<void> {
  const { actor = controllerActor, clock = systemClock, why } = options;
  const lease = options.lease?.id ?? row.lease;
  await recordChange(db, clock, {
    actor,
    kind: `node.${reached}`,
    subject: row.name,
    detail: {
      from,
      ...(lease === null ? {} : { lease }),
      ...(reached === 'quarantined' ? { fault } : {}),
      ...(cleanRecord === null ? {} : { cleanRecord, method: options.clean?.method }),
      ...(why === undefined ? {} : { why }),
    },
  });
  if (reached !== 'quarantined') return;
  await postNotice(db, clock, {
    kind: 'node.quarantined',
    subject: row.name,
    // A node is cleaned between two quarantines, so that its newest clean record tells them apart where the clock does not.
    occasion: `${String(clock.now())}-${String(cleanRecord ?? row.clean_record ?? 0)}`,
    payload: { node: row.name, fault, lease, from },
  });
}
