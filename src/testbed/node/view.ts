/** Nodes as people see them: how they stand, and what happened to them. */
import type { Kysely, Selectable } from 'kysely';
import { z } from 'zod';
import type { Database, NodesTable } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { storedProof, type CleanProof } from './clean-proof.js';
import { parseFault, parseHold, type Hold, type NodeFault } from './fault.js';
import type { NodeState } from './states.js';
import { nodeRow, parseState } from './transition.js';

export interface NodeView {
  /** `local/n01`. */
  name: string;
  site: string;
  backend: string;
  state: NodeState;
  /** When it came into its state. */
  since: number;
  /** Of a node under a lease: it comes into force when it is given back. */
  fault: NodeFault | null;
  /** A person's hold; with another state than `maintenance`: it comes into force when the node is given back. */
  hold: Hold | null;
  lease: string | null;
  failures: number;
  /** No longer in its inventory. */
  isRetired: boolean;
  tags: string[];
}

export interface CleanRecord {
  id: number;
  lease: string | null;
  method: string;
  /** null for one that an older version wrote in another shape. */
  proof: CleanProof | null;
  at: number;
}

export interface NodeDetails extends NodeView {
  /** The node's entry in its inventory. */
  spec: unknown;
  /** The next booking that has not begun. */
  nextBooking: { lease: string; startsAt: number; endsAt: number } | null;
  lastClean: CleanRecord | null;
  /** When its health is probed next, if it is idle until then. */
  probeAt: number | null;
}

const specSchema = z.looseObject({ tags: z.array(z.string()).default([]) });

function view(row: Selectable<NodesTable>): NodeView {
  const { name, site, backend, since, lease, failures } = row;
  return {
    name,
    site,
    backend,
    state: parseState(row.state),
    since,
    fault: parseFault(row.fault),
    hold: parseHold(row.hold),
    lease,
    failures,
    isRetired: row.retired === 1,
    tags: specSchema.parse(JSON.parse(row.spec)).tags,
  };
}

export interface NodeFilter {
  site?: string;
  state?: NodeState;
  tag?: string;
}

/** The nodes of the store, by name. */
export async function listNodes(store: Store, filter: NodeFilter = {}): Promise<NodeView[]> {
  const { site, state, tag } = filter;
  let query = store.db.selectFrom('nodes').selectAll().orderBy('name');
  if (site !== undefined) query = query.where('site', '=', site);
  if (state !== undefined) query = query.where('state', '=', state);
  const nodes = (await query.execute()).map(view);
  return tag === undefined ? nodes : nodes.filter((node) => node.tags.includes(tag));
}

/** @throws InfrabedError IB_NODE_UNKNOWN. */
export async function showNode(store: Store, node: string, now: number): Promise<NodeDetails> {
  const row = await nodeRow(store.db, node);
  const next = await store.db
    .selectFrom('bookings')
    .select(['lease', 'starts_at as startsAt', 'ends_at as endsAt'])
    .where('node', '=', node)
    .where('starts_at', '>', now)
    .orderBy('starts_at')
    .executeTakeFirst();
  const [lastClean = null] =
    row.clean_record === null ? [] : await cleanRecords(store.db, node, row.clean_record);
  const spec = JSON.parse(row.spec) as unknown;
  return { ...view(row), spec, nextBooking: next ?? null, lastClean, probeAt: row.probe_at };
}

async function cleanRecords(db: Kysely<Database>, node: string, id?: number): Promise<CleanRecord[]> {
  let query = db.selectFrom('clean_records').selectAll().where('node', '=', node).orderBy('id');
  if (id !== undefined) query = query.where('id', '=', id);
  return (await query.execute()).map(({ id, lease, method, proof, at }) => ({
    id,
    lease,
    method,
    proof: storedProof(method, proof) ?? null,
    at,
  }));
}

/** One thing that happened to a node. */
export interface NodeEvent {
  at: number;
  /** Name of who did it. */
  actor: string;
  /** `node.available`, `node.failed`, ... */
  kind: string;
  detail: Record<string, unknown>;
  /** The lease in whose course it happened, or null. */
  lease: { id: string; owner: string; purpose: string } | null;
  /** What proved it clean, where this is what it became. */
  clean: CleanRecord | null;
}

const detailSchema = z.looseObject({ lease: z.string().optional(), cleanRecord: z.number().optional() });

/**
 * Everything that is on record of a node, oldest first, each with its lease and clean record.
 * @throws InfrabedError IB_NODE_UNKNOWN.
 */
export async function nodeHistory(store: Store, node: string): Promise<NodeEvent[]> {
  const { db } = store;
  await nodeRow(db, node);
  const changes = await db
    .selectFrom('changes')
    .selectAll()
    .where('subject', '=', node)
    .orderBy('id')
    .execute();
  const ids = changes.flatMap(({ detail }) => detailSchema.parse(JSON.parse(detail)).lease ?? []);
  const leases = await db
    .selectFrom('leases')
    .select(['id', 'owner', 'purpose'])
    .where('id', 'in', [...new Set(ids)])
    .execute();
  const leaseById = new Map(leases.map((lease) => [lease.id, lease]));
  const cleanById = new Map((await cleanRecords(db, node)).map((record) => [record.id, record]));
  return changes.map(({ at, actor, kind, detail: text }) => {
    const detail = detailSchema.parse(JSON.parse(text));
    return {
      at,
      actor,
      kind,
      detail,
      lease: leaseById.get(detail.lease ?? '') ?? null,
      clean: cleanById.get(detail.cleanRecord ?? 0) ?? null,
    };
  });
}
