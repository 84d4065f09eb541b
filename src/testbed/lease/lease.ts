/**
 * Leases that this process holds: nodes taken at once for a command, moved while it works, given back clean or
 * quarantined. Reservations of people stand in reserve.ts, taking one in hand in hold.ts.
 */
import type { Kysely } from 'kysely';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { controllerActor } from '../../core/actor.js';
import type { Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import { defaultSettings } from '../../core/settings.js';
import { recordChange } from '../../record/store/changes.js';
import { controllerIsAlive } from '../../record/store/controllers.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { embeddedSite } from '../inventory/inventory.js';
import type { Site } from '../inventory/inventory.js';
import { untouchedProof } from '../node/clean-proof.js';
import { enrollSite } from '../node/enroll.js';
import { nodeRow, transition } from '../node/transition.js';
import type { CleanProof, Fence, NodeFault } from '../node/transition.js';
import type { Calendar } from './calendar.js';
import { Draft } from './draft.js';
import { countStates, eligible, nodesOfSite, plural } from './eligible.js';
import type { Eligible } from './eligible.js';
import { checkDuration } from './bounds.js';
import { earliestStart } from './earliest.js';
import { iso, seeTime } from './ground.js';
import type { Wanted } from './ground.js';
import { handle, lose } from './handle.js';
import type { Lease } from './handle.js';
import { applyMoves, seekRoom } from './make-room.js';
import type { Room } from './find-room.js';
import { refreshCalendar } from './refresh.js';
import {
  assertActive,
  clustersOn,
  endRow,
  forgetRemoved,
  heldNodes,
  insertBookings,
  newLeaseId,
  nextGeneration,
} from './rows.js';
import type { EndReason, LeaseRow } from './rows.js';

export type { Lease } from './handle.js';
export type { Wanted } from './ground.js';
export { adoptLease, holdLease, putDownLease, refreshHeld, seizeLease } from './hold.js';

export interface TakeNodesOptions {
  nodes: Wanted;
  owner: string;
  purpose: string;
  /** Id of the controller process, from registerController. */
  controller: string;
  /** How long the nodes are needed at most. */
  durationMs: number;
  /** After the end, for cleaning; as the default settings say where it is not given. */
  gapMs?: number;
  backend?: string;
  site?: Site;
  /** For the record of changes; the owner, where it is not given. */
  actor?: Actor;
  clock?: Clock;
}

/**
 * Takes nodes at once under a new lease of this controller: all of them or none, never one that somebody else has or
 * has reserved for any of that time. Movable reservations are bound to other nodes where that makes room.
 * @throws InfrabedError IB_NOT_ENOUGH_NODES, IB_NODE_UNKNOWN, IB_LEASE_INVALID, IB_CLOCK_BACK.
 */
export async function takeNodes(store: Store, options: TakeNodesOptions): Promise<Lease> {
  const { owner, purpose, controller, durationMs, clock = systemClock } = options;
  const gapMs = options.gapMs ?? defaultSettings.lease.cleaning_gap_sec * 1000;
  const actor = options.actor ?? { name: owner, role: 'user' };
  checkDuration(durationMs);
  const site = options.site ?? (await embeddedSite(options.backend));
  const wanted = withBackend(options.nodes, options.backend ?? 'container');
  // The store begins its transactions with the write lock, so that two processes choose one after the other.
  return store.db.transaction().execute(async (db) => {
    await enrollSite(db, site, clock);
    const startsAt = await seeTime(db, clock);
    const endsAt = startsAt + durationMs;
    const calendar = await refreshCalendar(store, db);
    const span = { from: startsAt, busyUntil: endsAt + gapMs, now: startsAt };
    const { nodes, draft } = await chooseNow(db, calendar, site.name, wanted, span, gapMs);
    const id = await newLeaseId(db, startsAt);
    const generation = await nextGeneration(db);
    const row: LeaseRow = {
      id,
      owner,
      purpose,
      generation,
      site: site.name,
      wanted: JSON.stringify(wanted),
      own: 1,
      priority: 0,
      starts_at: startsAt,
      ends_at: endsAt,
      ended_at: null,
      end_reason: null,
      state: 'active',
      controller,
      created_at: startsAt,
    };
    await db.insertInto('leases').values(row).execute();
    await applyMoves(db, draft.moves(), { actor, clock, because: id });
    await insertBookings(db, { lease: id, nodes, startsAt, endsAt, gapMs, isPinned: true });
    for (const node of nodes)
      await transition(db, node, 'leased', { lease: { id, generation }, actor, clock });
    await recordChange(db, clock, {
      actor,
      kind: 'lease.taken',
      subject: id,
      detail: { nodes, purpose, endsAt, generation, controller },
    });
    return handle(row, nodes);
  });
}

function withBackend(wanted: Wanted, backend: string): Wanted {
  return 'names' in wanted ? wanted : { backend, ...wanted };
}

/** Nodes that are available and free for the whole span, with what has to move for that. */
async function chooseNow(
  db: Kysely<Database>,
  calendar: Calendar,
  site: string,
  wanted: Wanted,
  span: { from: number; busyUntil: number; now: number },
  gapMs: number,
): Promise<Room> {
  const all = await nodesOfSite(db, site);
  const choice = eligible(all, site, wanted);
  const ready = choice.usable.filter((node) => node.isReady).map((node) => node.name);
  const room = await seekRoom(db, new Draft(calendar), all, { ...span, nodes: ready, count: choice.count });
  if (room) return room;
  throw notFree(calendar, choice, span, gapMs);
}

function notFree(
  calendar: Calendar,
  choice: Eligible,
  { from, busyUntil }: { from: number; busyUntil: number },
  gapMs: number,
): InfrabedError {
  const { count, usable } = choice;
  const ready = usable.filter((node) => node.isReady).map((node) => node.name);
  const free = calendar.freeNodes(ready, from, busyUntil).length;
  const earliest = earliestStart(calendar, choice, from, busyUntil - from, gapMs);
  const reserved = ready.length - free;
  const later = reserved > 0 ? `; ${String(reserved)} available ones are reserved before it would end` : '';
  return new InfrabedError(
    'IB_NOT_ENOUGH_NODES',
    `${plural(count)} wanted at once, and ${String(free)} of ${String(usable.length)} are free for all of that time (${countStates(usable)}${later}).`,
    {
      hint:
        'End what holds them ("infrabed lease list", "infrabed cluster down"), ask for a shorter time, or reserve them for later' +
        (earliest === null ? '.' : `: by the calendar not before ${iso(earliest)}.`),
      details: { wanted: count, free, earliest },
    },
  );
}

/** What each node (`local/n01`) was cleaned by. */
export type CleanProofs = ReadonlyMap<string, CleanProof>;

/**
 * Gives the nodes back after they were cleaned: each gets its clean record and is available again. What was booked
 * beyond now is free.
 * @throws InfrabedError IB_LEASE_CONFLICT when the lease is not ours any more, or a cluster still stands on it.
 */
export async function releaseLease(
  store: Store,
  lease: Fence,
  options: {
    clean?: CleanProofs;
    /** Clusters that were removed. */
    removed?: readonly string[];
    clock?: Clock;
    actor?: Actor;
    reason?: EndReason;
  } = {},
): Promise<void> {
  const { clock = systemClock, actor = controllerActor, reason = 'released' } = options;
  await store.db.transaction().execute(async (db) => {
    const row = await assertActive(db, lease);
    await forgetRemoved(db, lease, options.removed);
    await giveNodesBack(db, lease, { ...options, clock, actor });
    await endRow(db, row, reason, clock);
    await recordChange(db, clock, { actor, kind: `lease.${reason}`, subject: lease.id });
  });
  lose(lease, `The lease ${lease.id} was released.`);
}

/** Nodes of a lease become available with their clean records, or what a hold or fault makes of them. */
export async function giveNodesBack(
  db: Kysely<Database>,
  lease: Fence,
  { clean, clock, actor }: { clean?: CleanProofs; clock: Clock; actor: Actor },
): Promise<void> {
  for (const { name, state } of await heldNodes(db, lease.id)) {
    const proof = clean?.get(name) ?? (await untouchedOrThrow(db, name, state));
    if (state !== 'cleaning') await transition(db, name, 'cleaning', { lease, actor, clock });
    await transition(db, name, 'available', { lease, clean: proof, actor, clock });
  }
}

/**
 * The store itself can tell only that nothing was ever made of a node; for any other, whoever ends the lease brings what
 * the backend read back.
 */
async function untouchedOrThrow(db: Kysely<Database>, node: string, state: string): Promise<CleanProof> {
  const { clean_record: previous } = await nodeRow(db, node);
  if (state === 'leased' && previous !== null) return untouchedProof(previous);
  throw new InfrabedError('IB_NODE_STATE', `${node} was used, and there is no proof that it is clean.`, {
    hint: 'Run "infrabed sweep", or let an operator clean it: "infrabed node clean".',
    details: { node, state },
  });
}

/** Ends a lease whose nodes could not be cleaned: they are quarantined with the fault, never lent. */
export async function quarantineLease(
  store: Store,
  lease: Fence,
  fault: NodeFault,
  options: { clock?: Clock; actor?: Actor } = {},
): Promise<void> {
  const { clock = systemClock, actor = controllerActor } = options;
  await store.db.transaction().execute(async (db) => {
    const row = await assertActive(db, lease);
    await forgetRemoved(db, lease, await clustersOn(db, lease.id));
    for (const { name } of await heldNodes(db, lease.id)) {
      await transition(db, name, 'quarantined', { lease, fault, actor, clock });
    }
    await endRow(db, row, 'quarantined', clock);
    await recordChange(db, clock, {
      actor,
      kind: 'lease.quarantined',
      subject: lease.id,
      detail: { code: fault.code, message: fault.message },
    });
  });
  lose(lease, `The lease ${lease.id} ended in quarantine.`);
}

/** Moves all nodes of a lease, or those named, e.g. to `provisioning` and `active`. */
export async function moveNodes(
  store: Store,
  lease: Fence,
  to: 'provisioning' | 'active' | 'cleaning',
  options: { clock?: Clock; nodes?: readonly string[] } = {},
): Promise<void> {
  const clock = options.clock ?? systemClock;
  await store.db.transaction().execute(async (db) => {
    await assertActive(db, lease);
    for (const { name, state } of await heldNodes(db, lease.id)) {
      if (options.nodes?.includes(name) === false) continue;
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
    if (error instanceof InfrabedError) lose(lease, error);
    throw error;
  }
}

/**
 * Active leases that a controller had in hand when it died, oldest first: work for recovery. Not those on which a kept
 * cluster stands, and not a person's lease that nobody had in hand.
 */
export async function abandonedLeases(store: Store, clock: Clock = systemClock): Promise<LeaseRow[]> {
  const rows = await store.db
    .selectFrom('leases')
    .selectAll()
    .where('state', '=', 'active')
    .where((is) => is.or([is('own', '=', 1), is('controller', 'is not', null)]))
    .where('id', 'not in', (kept) => kept.selectFrom('clusters').select('lease').where('kept', '=', 1))
    .orderBy('generation')
    .execute();
  const alive = await Promise.all(rows.map((row) => controllerIsAlive(store, row.controller, clock)));
  return rows.filter((_row, index) => !alive[index]);
}
