/**
 * Taking a lease in hand and putting it down again. One controller at a time has it, and each taking in hand gives it
 * a new generation, which fences whoever had it before.
 */
import type { Kysely } from 'kysely';
import { controllerActor } from '../../core/actor.js';
import type { Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import { recordChange } from '../../record/store/changes.js';
import { controllerIsAlive } from '../../record/store/controllers.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { transition } from '../node/transition.js';
import type { CleanProof } from '../node/transition.js';
import { assertMayChange, forOther, iso } from './ground.js';
import type { Ground } from './ground.js';
import { beginLease } from './begin.js';
import { handle, lose } from './handle.js';
import type { Lease } from './handle.js';
import {
  assertActive,
  assertNoCluster,
  assertUnused,
  forgetRemoved,
  heldNodes,
  leaseRow,
  lost,
  nextGeneration,
} from './rows.js';
import type { LeaseRow } from './rows.js';

/**
 * Takes a person's lease in hand for work on its nodes. One that is due but has not begun is begun first.
 * @throws InfrabedError IB_LEASE_UNKNOWN, IB_NOT_ALLOWED, IB_LEASE_CONFLICT (in the hands of a living controller, a
 *   cluster stands on it, not begun yet), IB_LEASE_ENDED, IB_NOT_ENOUGH_NODES when its nodes are not ready.
 */
export async function holdLease(
  ground: Ground,
  id: string,
  controller: string,
  actor: Actor,
): Promise<Lease> {
  const { store, clock } = ground;
  const before = await leaseRow(store.db, id);
  assertMayChange(actor, before);
  if (before.state === 'reserved' && before.starts_at <= clock.now() && clock.now() < before.ends_at) {
    await beginLease(ground, id);
  }
  return takeInHand(store, id, controller, {
    clock,
    actor,
    kind: 'lease.held',
    // Also by this controller: a server works for several people at once.
    isExclusive: true,
    check: async (db, row) => {
      assertMayChange(actor, row);
      assertRunning(row, clock.now());
      await assertNoCluster(db, row);
      await assertUnused(db, id);
    },
  });
}

function assertRunning(row: LeaseRow, now: number): void {
  if (row.state === 'ended' || now >= row.ends_at) {
    throw new InfrabedError(
      'IB_LEASE_ENDED',
      `The lease ${row.id} ended at ${iso(row.ended_at ?? row.ends_at)}.`,
      {
        hint: 'Reserve anew.',
      },
    );
  }
  if (row.state === 'active') return;
  if (now >= row.starts_at) {
    throw new InfrabedError(
      'IB_NOT_ENOUGH_NODES',
      `The lease ${row.id} is due, but its nodes are not ready yet.`,
      {
        hint: `"infrabed lease show ${row.id}" and "infrabed node list" show what is missing.`,
      },
    );
  }
  throw new InfrabedError('IB_LEASE_CONFLICT', `The lease ${row.id} begins at ${iso(row.starts_at)}.`, {
    hint: 'Wait for its start, or leave out --lease to take other nodes now.',
  });
}

/**
 * Takes over an active lease that another controller left, e.g. that of a kept cluster, with whatever stands on it.
 * @throws InfrabedError IB_LEASE_CONFLICT when it has ended, or its controller still runs.
 */
export function adoptLease(
  store: Store,
  leaseId: string,
  controller: string,
  options: { clock?: Clock; actor?: Actor } = {},
): Promise<Lease> {
  const { clock = systemClock, actor = controllerActor } = options;
  return takeInHand(store, leaseId, controller, { clock, actor, kind: 'lease.adopted' });
}

/**
 * Takes over an active lease by force, though its controller may live: that one is stopped, or past its grace. The
 * new generation fences it in the store; the resources are fenced with the generation of the lease returned.
 * @throws InfrabedError IB_LEASE_CONFLICT when it has ended.
 */
export function seizeLease(
  store: Store,
  leaseId: string,
  controller: string,
  options: { clock?: Clock; actor?: Actor } = {},
): Promise<Lease> {
  const { clock = systemClock, actor = controllerActor } = options;
  return takeInHand(store, leaseId, controller, { clock, actor, kind: 'lease.seized', byForce: true });
}

interface Taking {
  clock: Clock;
  actor: Actor;
  kind: string;
  /** Not even this controller may have it in hand already. */
  isExclusive?: boolean;
  byForce?: boolean;
  check?: (db: Kysely<Database>, row: LeaseRow) => Promise<void>;
}

async function takeInHand(store: Store, id: string, controller: string, taking: Taking): Promise<Lease> {
  return store.db.transaction().execute(async (db) => {
    const row = await db.selectFrom('leases').selectAll().where('id', '=', id).executeTakeFirst();
    if (row === undefined) throw lost(id);
    const except = taking.isExclusive === true ? null : controller;
    if (taking.byForce !== true) await assertNotInHand({ db }, row, except, taking.clock);
    await taking.check?.(db, row);
    if (row.state !== 'active') throw lost(id);
    const generation = await nextGeneration(db);
    await db.updateTable('leases').set({ controller, generation }).where('id', '=', id).execute();
    await recordChange(db, taking.clock, {
      actor: taking.actor,
      kind: taking.kind,
      subject: id,
      detail: {
        generation,
        before: row.generation,
        controller,
        from: row.controller,
        ...forOther(taking.actor, row.owner),
      },
    });
    const nodes = (await heldNodes(db, id)).map((node) => node.name);
    return handle({ ...row, controller, generation }, nodes);
  });
}

/** @throws InfrabedError IB_LEASE_CONFLICT while a living controller, other than `except`, has the lease in hand. */
export async function assertNotInHand(
  store: { db: Kysely<Database> },
  row: LeaseRow,
  except: string | null,
  clock: Clock,
): Promise<void> {
  if (row.state !== 'active' || row.controller === null || row.controller === except) return;
  if (!(await controllerIsAlive(store, row.controller, clock))) return;
  throw new InfrabedError(
    'IB_LEASE_CONFLICT',
    `The lease ${row.id} (${row.purpose}) is in the hands of another process.`,
    { hint: 'Wait for that process, or end it with Ctrl-C.', details: { controller: row.controller } },
  );
}

/**
 * Gives a person's lease back to its owner, who keeps it: nodes that were used go through cleaning with their proofs
 * and are leased again; nobody has it in hand any more.
 * @param clean proof of each node that was used (state other than `leased`).
 * @throws InfrabedError IB_LEASE_CONFLICT when it is not ours any more or a cluster stands on it, IB_NODE_STATE for a
 *   used node without a proof.
 */
export async function putDownLease(
  store: Store,
  lease: Lease,
  clean: ReadonlyMap<string, CleanProof>,
  options: { removed?: readonly string[]; clock?: Clock; actor?: Actor } = {},
): Promise<void> {
  const { clock = systemClock, actor = controllerActor } = options;
  await store.db.transaction().execute(async (db) => {
    await assertActive(db, lease);
    await forgetRemoved(db, lease, options.removed);
    for (const { name, state } of await heldNodes(db, lease.id)) {
      if (state === 'leased') continue;
      const proof = clean.get(name);
      if (state !== 'cleaning') await transition(db, name, 'cleaning', { lease, actor, clock });
      const reached = await transition(db, name, 'available', {
        lease,
        actor,
        clock,
        ...(proof === undefined ? {} : { clean: proof }),
      });
      // One with a person's hold or a fault of its own stays away: the lease goes on with the others.
      if (reached === 'available') await transition(db, name, 'leased', { lease, actor, clock });
    }
    await db.updateTable('leases').set({ controller: null }).where('id', '=', lease.id).execute();
    await recordChange(db, clock, { actor, kind: 'lease.put-down', subject: lease.id });
  });
  lose(lease, `The lease ${lease.id} was put down.`);
}

/**
 * What a controller's heartbeat asks of the leases in its hands: the signal of one that was lost aborts with
 * IB_LEASE_CONFLICT, of one whose end has come (as it stands in the store, extensions included) with IB_LEASE_ENDED.
 */
export async function refreshHeld(
  store: Store,
  leases: Iterable<Lease>,
  clock: Clock = systemClock,
): Promise<void> {
  for (const lease of leases) {
    if (lease.signal.aborted) continue;
    const row = await store.db
      .selectFrom('leases')
      .select(['state', 'generation', 'ends_at'])
      .where('id', '=', lease.id)
      .executeTakeFirst();
    if (row?.state !== 'active' || row.generation !== lease.generation) lose(lease, lost(lease.id));
    else if (row.ends_at <= clock.now()) lose(lease, endCame(lease.id, row.ends_at));
  }
}

function endCame(id: string, endsAt: number): InfrabedError {
  return new InfrabedError('IB_LEASE_ENDED', `The lease ${id} ended at ${iso(endsAt)}.`, {
    hint: 'What was gathered is kept. Extend a lease before its end, or reserve a longer one.',
  });
}
