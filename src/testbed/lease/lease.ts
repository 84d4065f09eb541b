/**
 * Leases, the least that one machine needs: take nodes now, give them back. Who may hold which nodes when (the
 * calendar) is decided before `takeNodes` and belongs beside this file.
 */
import type { Kysely, Selectable } from 'kysely';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import { newId } from '../../core/ids.js';
import { controllerIsAlive } from '../../record/store/controllers.js';
import type { Database, LeasesTable } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { embeddedSite } from '../inventory/inventory.js';
import type { Site } from '../inventory/inventory.js';
import { enrollSite } from '../node/enroll.js';
import { destroyedProof, untouchedProof } from '../node/clean-proof.js';
import { nodeRow, transition } from '../node/transition.js';
import type { CleanProof, Fence, NodeFault } from '../node/transition.js';

/** A lease in the hands of this process. */
export interface Lease extends Fence {
  readonly id: string;
  /** Fencing token: greater than that of every lease before. */
  readonly generation: number;
  /** `local/n01`, ... */
  readonly nodes: readonly string[];
  readonly owner: string;
  readonly purpose: string;
  readonly startsAt: number;
  readonly endsAt: number;
  /** Aborts with IB_LEASE_CONFLICT once the lease is known to be lost, and when it is released. */
  readonly signal: AbortSignal;
}

/** That many nodes, or exactly these (`local/n01`). */
export type Wanted = { count: number } | { names: readonly string[] };

export interface TakeNodesOptions {
  nodes: Wanted;
  owner: string;
  purpose: string;
  /** Id of the controller process, from registerController. */
  controller: string;
  /** How long the nodes are needed at most. */
  durationMs: number;
  /** After the end, for cleaning. */
  gapMs?: number;
  backend?: string;
  site?: Site;
  clock?: Clock;
}

const lostBy = new WeakMap<AbortSignal, AbortController>();

/**
 * Takes free nodes under a new lease: all of them or none, never one that somebody else has.
 * @throws InfrabedError IB_NOT_ENOUGH_NODES, IB_NODE_UNKNOWN, IB_LEASE_CONFLICT.
 */
export async function takeNodes(store: Store, options: TakeNodesOptions): Promise<Lease> {
  const { owner, purpose, controller, clock = systemClock } = options;
  const site = options.site ?? (await embeddedSite());
  const startsAt = clock.now();
  const id = newId('l', startsAt);
  // The store begins its transactions with the write lock, so that two processes choose one after the other.
  return store.db.transaction().execute(async (db) => {
    await enrollSite(db, site, clock);
    const nodes = await choose(db, site, options);
    const generation = await nextGeneration(db);
    await db
      .insertInto('leases')
      .values({
        id,
        owner,
        purpose,
        generation,
        site: site.name,
        wanted: JSON.stringify(options.nodes),
        own: 1,
        priority: 0,
        starts_at: startsAt,
        ends_at: startsAt + options.durationMs,
        ended_at: null,
        end_reason: null,
        state: 'active',
        controller,
        created_at: startsAt,
      })
      .execute();
    const ends_at = startsAt + options.durationMs;
    for (const node of nodes) {
      await db
        .insertInto('bookings')
        .values({
          lease: id,
          node,
          starts_at: startsAt,
          ends_at,
          busy_until: ends_at + (options.gapMs ?? 0),
          pinned: 1,
        })
        .execute();
    }
    for (const node of nodes) await transition(db, node, 'leased', { lease: { id, generation }, clock });
    return handle({ id, generation, nodes, owner, purpose, startsAt, endsAt: startsAt + options.durationMs });
  });
}

function handle(fields: Omit<Lease, 'signal'>): Lease {
  const loss = new AbortController();
  lostBy.set(loss.signal, loss);
  return { ...fields, signal: loss.signal };
}

async function choose(db: Kysely<Database>, site: Site, options: TakeNodesOptions): Promise<string[]> {
  const backend = options.backend ?? 'container';
  const rows = await db
    .selectFrom('nodes')
    .selectAll()
    .where('site', '=', site.name)
    .orderBy('name')
    .execute();
  if ('names' in options.nodes) {
    for (const name of options.nodes.names) {
      const row = rows.find((one) => one.name === name);
      if (row === undefined) {
        throw new InfrabedError('IB_NODE_UNKNOWN', `The site ${site.name} has no node "${name}".`, {
          hint: `Its nodes are ${rows.map((one) => one.name).join(', ')}.`,
        });
      }
      if (row.state !== 'available') {
        throw new InfrabedError(
          'IB_NOT_ENOUGH_NODES',
          `${name} is ${row.state}${row.lease ? ` (lease ${row.lease})` : ''}.`,
        );
      }
    }
    return [...options.nodes.names];
  }
  const { count } = options.nodes;
  const suitable = rows.filter((row) => row.backend === backend);
  const free = suitable.filter((row) => row.state === 'available').map((row) => row.name);
  if (count < 1 || free.length < count) throw notEnough(count, free.length, suitable);
  return free.slice(0, count);
}

function notEnough(count: number, free: number, suitable: readonly { state: string }[]): InfrabedError {
  const by = new Map<string, number>();
  for (const { state } of suitable) by.set(state, (by.get(state) ?? 0) + 1);
  const states = [...by].map(([state, number]) => `${String(number)} ${state}`).join(', ');
  return new InfrabedError(
    'IB_NOT_ENOUGH_NODES',
    `${String(count)} nodes are wanted and ${String(free)} of ${String(suitable.length)} are free (${states}).`,
    {
      hint: 'End what holds them ("infrabed cluster list", "infrabed cluster down"), or run "infrabed sweep".',
    },
  );
}

async function nextGeneration(db: Kysely<Database>): Promise<number> {
  const row = await db
    .selectFrom('leases')
    .select((select) => select.fn.max('generation').as('last'))
    .executeTakeFirst();
  // Rows of leases are never deleted, so that the token never goes back.
  return (row?.last ?? 0) + 1;
}

/** What each node (`local/n01`) was cleaned by. */
export type CleanProofs = ReadonlyMap<string, CleanProof>;

/**
 * Gives the nodes back after they were cleaned: each gets its clean record and is available again.
 * @throws InfrabedError IB_LEASE_CONFLICT when the lease is not ours any more, or a cluster still stands on it.
 */
export async function releaseLease(
  store: Store,
  lease: Fence,
  options: { clean?: CleanProofs; clock?: Clock } = {},
): Promise<void> {
  const clock = options.clock ?? systemClock;
  await store.db.transaction().execute(async (db) => {
    await assertActive(db, lease);
    await assertNoCluster(db, lease);
    for (const { name, state } of await nodesOf(db, lease.id)) {
      const clean = options.clean?.get(name) ?? (await proofOf(db, lease, name, state));
      if (state !== 'cleaning') await transition(db, name, 'cleaning', { lease, clock });
      await transition(db, name, 'available', { lease, clean, clock });
    }
    await end(db, lease.id, clock);
  });
  lose(lease, `The lease ${lease.id} was released.`);
}

/** What the store itself can tell: nothing was ever made of the node, or no cluster of the lease is left. */
async function proofOf(db: Kysely<Database>, lease: Fence, node: string, state: string): Promise<CleanProof> {
  const { clean_record: previous } = await nodeRow(db, node);
  if (state === 'leased' && previous !== null) return untouchedProof(previous);
  // Weaker than what the backend reads back, which callers hand over where there was a cluster.
  return destroyedProof(
    {
      node,
      method: 'store',
      isClean: true,
      parts: [{ what: `cluster of the lease ${lease.id} in the store`, found: null }],
      imageHash: null,
      generation: lease.generation,
      hostKey: null,
      lastBootId: null,
    },
    lease.generation,
  );
}

/** Ends a lease whose nodes could not be cleaned: they are quarantined with the fault, never lent. */
export async function quarantineLease(
  store: Store,
  lease: Fence,
  fault: NodeFault,
  options: { clock?: Clock } = {},
): Promise<void> {
  const clock = options.clock ?? systemClock;
  await store.db.transaction().execute(async (db) => {
    await assertActive(db, lease);
    for (const { name } of await nodesOf(db, lease.id)) {
      await transition(db, name, 'quarantined', { lease, fault, clock });
    }
    await end(db, lease.id, clock);
  });
  lose(lease, `The lease ${lease.id} ended in quarantine.`);
}

/** Moves all nodes of a lease, e.g. to `provisioning` and `active`. */
export async function moveNodes(
  store: Store,
  lease: Fence,
  to: 'provisioning' | 'active' | 'cleaning',
  options: { clock?: Clock } = {},
): Promise<void> {
  const clock = options.clock ?? systemClock;
  await store.db.transaction().execute(async (db) => {
    await assertActive(db, lease);
    for (const { name, state } of await nodesOf(db, lease.id)) {
      if (state !== to) await transition(db, name, to, { lease, clock });
    }
  });
}

/**
 * Proves that the lease is still ours; if not, aborts its signal.
 * @throws InfrabedError IB_LEASE_CONFLICT.
 */
export async function assertHeld(store: Store, lease: Lease): Promise<void> {
  try {
    await assertActive(store.db, lease);
  } catch (error) {
    lostBy.get(lease.signal)?.abort(error);
    throw error;
  }
}

/**
 * Takes over a lease that another controller left, e.g. that of a kept cluster. From now on this one answers for it.
 * @throws InfrabedError IB_LEASE_CONFLICT when it has ended, or its controller still runs.
 */
export async function adoptLease(store: Store, leaseId: string, controller: string): Promise<Lease> {
  const row = await store.db.selectFrom('leases').selectAll().where('id', '=', leaseId).executeTakeFirst();
  if (row?.state !== 'active') throw ended(leaseId);
  if (row.controller !== controller && (await controllerIsAlive(store, row.controller))) {
    throw new InfrabedError(
      'IB_LEASE_CONFLICT',
      `The lease ${leaseId} (${row.purpose}) is in the hands of another process.`,
      {
        hint: 'Wait for that process, or end it with Ctrl-C.',
        details: { controller: row.controller },
      },
    );
  }
  const taken = await store.db
    .updateTable('leases')
    .set({ controller })
    .where('id', '=', leaseId)
    .where('state', '=', 'active')
    .where('controller', '=', row.controller)
    .executeTakeFirst();
  if (taken.numUpdatedRows !== 1n) throw ended(leaseId);
  const nodes = (await nodesOf(store.db, leaseId)).map((node) => node.name);
  const { id, generation, owner, purpose } = row;
  return handle({ id, generation, nodes, owner, purpose, startsAt: row.starts_at, endsAt: row.ends_at });
}

/** Active leases whose controller has died and on which no kept cluster stands, oldest first: work for recovery. */
export async function abandonedLeases(store: Store): Promise<Selectable<LeasesTable>[]> {
  const rows = await store.db
    .selectFrom('leases')
    .selectAll()
    .where('state', '=', 'active')
    .where('id', 'not in', (kept) => kept.selectFrom('clusters').select('lease').where('kept', '=', 1))
    .orderBy('generation')
    .execute();
  const alive = await Promise.all(rows.map((row) => controllerIsAlive(store, row.controller)));
  return rows.filter((_row, index) => !alive[index]);
}

function lose(lease: Fence, why: string): void {
  const signal = (lease as Partial<Lease>).signal;
  if (signal) lostBy.get(signal)?.abort(new InfrabedError('IB_LEASE_CONFLICT', why));
}

function ended(leaseId: string): InfrabedError {
  return new InfrabedError('IB_LEASE_CONFLICT', `The lease ${leaseId} has ended, or never was.`);
}

function nodesOf(db: Kysely<Database>, leaseId: string): Promise<{ name: string; state: string }[]> {
  return db
    .selectFrom('nodes')
    .select(['name', 'state'])
    .where('lease', '=', leaseId)
    .orderBy('name')
    .execute();
}

async function assertActive(db: Kysely<Database>, lease: Fence): Promise<void> {
  const row = await db
    .selectFrom('leases')
    .select('id')
    .where('id', '=', lease.id)
    .where('generation', '=', lease.generation)
    .where('state', '=', 'active')
    .executeTakeFirst();
  if (row === undefined) throw ended(lease.id);
}

async function assertNoCluster(db: Kysely<Database>, lease: Fence): Promise<void> {
  const cluster = await db
    .selectFrom('clusters')
    .select('id')
    .where('lease', '=', lease.id)
    .executeTakeFirst();
  if (cluster === undefined) return;
  throw new InfrabedError(
    'IB_LEASE_CONFLICT',
    `The cluster ${cluster.id} still stands on the lease ${lease.id}.`,
  );
}

async function end(db: Kysely<Database>, leaseId: string, clock: Clock): Promise<void> {
  await db
    .updateTable('leases')
    .set({ state: 'ended', ended_at: clock.now(), end_reason: 'released', controller: null })
    .where('id', '=', leaseId)
    .execute();
  await db.deleteFrom('bookings').where('lease', '=', leaseId).execute();
}
