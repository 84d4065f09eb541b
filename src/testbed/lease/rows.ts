/** Leases as rows: reading them, beginning them, ending them, and the proof that one is still held. */
import type { Kysely, Selectable } from 'kysely';
import type { Clock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import { newId } from '../../core/ids.js';
import { postNotice } from '../../record/notice/post.js';
import type { Database, LeasesTable } from '../../record/store/schema.js';
import type { Fence } from '../node/transition.js';
import { iso } from './ground.js';

export type LeaseRow = Selectable<LeasesTable>;

export type EndReason = 'released' | 'cancelled' | 'expired' | 'displaced' | 'quarantined';

/** @throws InfrabedError IB_LEASE_UNKNOWN. */
export async function leaseRow(db: Kysely<Database>, id: string): Promise<LeaseRow> {
  const row = await db.selectFrom('leases').selectAll().where('id', '=', id).executeTakeFirst();
  if (row) return row;
  throw new InfrabedError('IB_LEASE_UNKNOWN', `There is no lease "${id}".`, {
    hint: 'Run "infrabed lease list --all" to see the leases there are.',
  });
}

/** Greater than every one before, over the whole store. Call it inside the transaction that writes it. */
export async function nextGeneration(db: Kysely<Database>): Promise<number> {
  const row = await db
    .selectFrom('leases')
    .select((select) => select.fn.max('generation').as('last'))
    .executeTakeFirst();
  // max of no rows is null, which its type does not say.
  return ((row?.last as number | null | undefined) ?? 0) + 1;
}

/** An id that no lease has: the random part alone does not tell apart hundreds made within one second. */
export async function newLeaseId(db: Kysely<Database>, now: number): Promise<string> {
  for (;;) {
    const id = newId('l', now);
    const taken = await db.selectFrom('leases').select('id').where('id', '=', id).executeTakeFirst();
    if (taken === undefined) return id;
  }
}

/** Nodes that a lease holds now. */
export function heldNodes(db: Kysely<Database>, leaseId: string): Promise<{ name: string; state: string }[]> {
  return db
    .selectFrom('nodes')
    .select(['name', 'state'])
    .where('lease', '=', leaseId)
    .orderBy('name')
    .execute();
}

/** Nodes that a lease has booked. */
export async function bookedNodes(db: Kysely<Database>, leaseId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('bookings')
    .select('node')
    .where('lease', '=', leaseId)
    .orderBy('node')
    .execute();
  return rows.map((row) => row.node);
}

/** @throws InfrabedError IB_LEASE_CONFLICT when it is not active, or in other hands. */
export async function assertActive(db: Kysely<Database>, lease: Fence): Promise<LeaseRow> {
  const row = await db
    .selectFrom('leases')
    .selectAll()
    .where('id', '=', lease.id)
    .where('generation', '=', lease.generation)
    .where('state', '=', 'active')
    .executeTakeFirst();
  if (row) return row;
  throw lost(lease.id);
}

export function lost(leaseId: string): InfrabedError {
  return new InfrabedError(
    'IB_LEASE_CONFLICT',
    `The lease ${leaseId} has ended or is in other hands, or never was.`,
    { hint: `Run "infrabed lease show ${leaseId}" to see what became of it.` },
  );
}

/** @throws InfrabedError IB_LEASE_ENDED. */
export function assertNotEnded(row: LeaseRow): void {
  if (row.state !== 'ended') return;
  throw new InfrabedError(
    'IB_LEASE_ENDED',
    `The lease ${row.id} ended at ${iso(row.ended_at ?? row.ends_at)}.`,
    {
      hint: '"infrabed lease list" shows those that have not.',
    },
  );
}

/** Clusters that stand on a lease. */
export async function clustersOn(db: Kysely<Database>, leaseId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('clusters')
    .select('id')
    .where('lease', '=', leaseId)
    .orderBy('id')
    .execute();
  return rows.map((row) => row.id);
}

/**
 * Forgets clusters that were removed, and makes sure that no other stands on the lease. Together with the clean records
 * of their nodes, so that a crash leaves either the rows, to be looked into again, or the proofs.
 * @throws InfrabedError IB_LEASE_CONFLICT naming one that still stands.
 */
export async function forgetRemoved(
  db: Kysely<Database>,
  lease: Fence,
  removed: readonly string[] = [],
): Promise<void> {
  if (removed.length > 0) {
    await db
      .deleteFrom('clusters')
      .where('lease', '=', lease.id)
      .where('id', 'in', [...removed])
      .execute();
  }
  await assertNoCluster(db, lease);
}

export async function assertNoCluster(db: Kysely<Database>, lease: Fence): Promise<void> {
  const [cluster] = await clustersOn(db, lease.id);
  if (cluster === undefined) return;
  throw new InfrabedError(
    'IB_LEASE_CONFLICT',
    `The cluster ${cluster} still stands on the lease ${lease.id}.`,
    {
      hint: `End it first: "infrabed cluster down ${cluster}".`,
    },
  );
}

/**
 * What a dead holder left on the nodes is recovery's to clear away.
 * @param next what to do after that, as the end of the hint.
 * @throws InfrabedError IB_LEASE_CONFLICT naming a node that is still in use.
 */
export async function assertUnused(db: Kysely<Database>, id: string, next = ''): Promise<void> {
  const used = (await heldNodes(db, id)).find((node) => node.state !== 'leased');
  if (used === undefined) return;
  throw new InfrabedError('IB_LEASE_CONFLICT', `${used.name} of the lease ${id} is still ${used.state}.`, {
    hint: `Run "infrabed resume" to finish what was broken off${next}.`,
  });
}

export interface NewBookings {
  lease: string;
  nodes: readonly string[];
  startsAt: number;
  endsAt: number;
  gapMs: number;
  /** Not to be bound to other nodes. */
  isPinned: boolean;
}

export async function insertBookings(db: Kysely<Database>, bookings: NewBookings): Promise<void> {
  const { lease, nodes, startsAt, endsAt, gapMs, isPinned } = bookings;
  for (const node of nodes) {
    await db
      .insertInto('bookings')
      .values({
        lease,
        node,
        starts_at: startsAt,
        ends_at: endsAt,
        busy_until: endsAt + gapMs,
        pinned: isPinned ? 1 : 0,
      })
      .execute();
  }
}

/**
 * Ends a lease. What it has booked from now on is free; what it has had stays as its history. A person's lease is told
 * of by a notice.
 */
export async function endRow(
  db: Kysely<Database>,
  lease: LeaseRow,
  reason: EndReason,
  clock: Clock,
): Promise<void> {
  const hasBegun = lease.state === 'active';
  // A clock that went back must not make an interval negative.
  const at = Math.max(clock.now(), hasBegun ? lease.starts_at : lease.created_at);
  await db
    .updateTable('leases')
    .set({ state: 'ended', ended_at: at, end_reason: reason, controller: null })
    .where('id', '=', lease.id)
    .execute();
  const bookings = db.deleteFrom('bookings').where('lease', '=', lease.id);
  if (!hasBegun) await bookings.execute();
  else await shorten(db, lease.id, at);
  if (lease.own === 1) return;
  await postNotice(db, clock, {
    kind: reason === 'displaced' ? 'lease.displaced' : 'lease.ended',
    subject: lease.id,
    occasion: 'end',
    payload: { lease: lease.id, owner: lease.owner, purpose: lease.purpose, reason, endedAt: at },
  });
}

async function shorten(db: Kysely<Database>, leaseId: string, at: number): Promise<void> {
  await db.deleteFrom('bookings').where('lease', '=', leaseId).where('starts_at', '>=', at).execute();
  await db
    .updateTable('bookings')
    .set({ ends_at: at, busy_until: at })
    .where('lease', '=', leaseId)
    .where('ends_at', '>', at)
    .execute();
  // Over already, and cleaned before the gap was.
  await db
    .updateTable('bookings')
    .set({ busy_until: at })
    .where('lease', '=', leaseId)
    .where('busy_until', '>', at)
    .execute();
}
