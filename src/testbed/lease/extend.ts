/** Making a lease longer, as far as the next reservation of its nodes lets it. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import type { Settings } from '../../core/settings.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import { checkDuration, checkLength } from './bounds.js';
import type { Calendar } from './calendar.js';
import { Draft } from './draft.js';
import { invalid, nodesOfSite } from './eligible.js';
import type { SiteNodeState } from './eligible.js';
import { findRoom } from './find-room.js';
import type { Room } from './find-room.js';
import { assertMayChange, forOther, iso, seeTime } from './ground.js';
import type { Ground } from './ground.js';
import { checkLimits } from './limits.js';
import { applyMoves, movablesOf } from './make-room.js';
import { refreshCalendar } from './refresh.js';
import { bookedNodes, insertBookings, leaseRow } from './rows.js';
import type { LeaseRow } from './rows.js';
import { viewOf } from './view.js';
import type { LeaseView } from './view.js';

/** By how much longer, or to which new end (epoch milliseconds). */
export type Extension = { durationMs: number } | { until: number };

/**
 * Moves the end of a lease, other people's movable reservations going elsewhere where that makes room. A reservation by
 * count that has not begun may itself be bound to other nodes.
 * @throws InfrabedError IB_LEASE_UNKNOWN, IB_NOT_ALLOWED, IB_LEASE_ENDED, IB_LEASE_INVALID, IB_LEASE_LIMIT,
 *   IB_CLOCK_BACK, IB_LEASE_CONFLICT saying until when it could be (details.until, epoch milliseconds).
 */
export async function extendLease(
  ground: Ground,
  id: string,
  extension: Extension,
  actor: Actor,
): Promise<LeaseView> {
  const { store, settings, clock } = ground;
  return store.db.transaction().execute(async (db) => {
    const row = await leaseRow(db, id);
    assertMayChange(actor, row);
    const now = await seeTime(db, clock);
    assertNotOver(row, now);
    const until = newEnd(row, extension, settings);
    const nodes = await bookedNodes(db, id);
    if (row.own === 0) {
      const share = { nodes: nodes.length, startsAt: row.starts_at, endsAt: until };
      await checkLimits(db, settings, { owner: row.owner, now, except: id, ...share });
    }
    const gapMs = settings.lease.cleaning_gap_sec * 1000;
    const calendar = await refreshCalendar(store, db);
    const all = await nodesOfSite(db, row.site);
    const room = await seekLonger(db, calendar, all, { row, nodes, until, gapMs, now });
    if (room === undefined) throw inTheWay(row, calendar, nodes, gapMs, until);
    await write(ground, db, { row, nodes, room, until, gapMs, actor });
    return viewOf(db, { ...row, ends_at: until });
  });
}

function assertNotOver(row: LeaseRow, now: number): void {
  if (row.state !== 'ended' && now < row.ends_at) return;
  throw new InfrabedError(
    'IB_LEASE_ENDED',
    `The lease ${row.id} ended at ${iso(row.ended_at ?? row.ends_at)}.`,
    {
      hint: 'Reserve anew; a lease is extended before its end.',
    },
  );
}

function newEnd(row: LeaseRow, extension: Extension, settings: Settings): number {
  if ('durationMs' in extension) checkDuration(extension.durationMs);
  const until = 'until' in extension ? extension.until : row.ends_at + extension.durationMs;
  if (!Number.isSafeInteger(until) || until <= row.ends_at) {
    throw invalid(
      `The lease ${row.id} already lasts until ${iso(row.ends_at)}.`,
      'Name a later end. To give it back earlier, release it.',
    );
  }
  checkLength(until - row.starts_at, settings);
  return until;
}

interface Longer {
  row: LeaseRow;
  nodes: readonly string[];
  until: number;
  gapMs: number;
  now: number;
}

/** On its own nodes first, others moved for it; a movable reservation may also go to other nodes as a whole. */
async function seekLonger(
  db: Kysely<Database>,
  calendar: Calendar,
  all: readonly SiteNodeState[],
  { row, nodes, until, gapMs, now }: Longer,
): Promise<Room | undefined> {
  const busyUntil = until + gapMs;
  const draft = new Draft(calendar);
  const own = nodes.flatMap((node) =>
    calendar.overlapping(node, row.starts_at, busyUntil).filter((booking) => booking.lease === row.id),
  );
  const from = Math.min(...own.map((booking) => booking.startsAt), row.ends_at);
  const span = { from, busyUntil };
  const eligibleOf = await movablesOf(db, draft, all, span);
  for (const booking of own) draft.remove(booking);
  const request = { ...span, now, nodes, count: nodes.length };
  const there = findRoom(draft, request) ?? findRoom(draft, request, eligibleOf);
  if (there !== undefined || row.state === 'active' || !own.every((booking) => booking.movable)) return there;
  return findRoom(draft, { ...request, nodes: eligibleOf(row.id) }, eligibleOf);
}

function inTheWay(
  row: LeaseRow,
  calendar: Calendar,
  nodes: readonly string[],
  gapMs: number,
  until: number,
): InfrabedError {
  const next = Math.min(...nodes.map((node) => calendar.nextBusy(node, row.ends_at) ?? Infinity));
  const possible = Math.max(row.ends_at, next - gapMs);
  const hint =
    possible > row.ends_at
      ? `It could last until ${iso(possible)}.`
      : 'It cannot be made longer at all: reserve other nodes for afterwards.';
  return new InfrabedError(
    'IB_LEASE_CONFLICT',
    `The lease ${row.id} cannot last until ${iso(until)}: its nodes are reserved from ${iso(next)} on, and are cleaned before. ${hint}`,
    { hint, details: { until: possible > row.ends_at ? possible : null } },
  );
}

async function write(
  { clock }: Ground,
  db: Kysely<Database>,
  change: { row: LeaseRow; nodes: readonly string[]; room: Room; until: number; gapMs: number; actor: Actor },
): Promise<void> {
  const { row, nodes, room, until, gapMs, actor } = change;
  const isElsewhere = room.nodes.some((node) => !nodes.includes(node));
  if (isElsewhere) await db.deleteFrom('bookings').where('lease', '=', row.id).execute();
  await applyMoves(db, room.draft.moves(), { actor, clock, because: row.id });
  if (isElsewhere) {
    const span = { startsAt: row.starts_at, endsAt: until, gapMs };
    await insertBookings(db, { ...span, lease: row.id, nodes: room.nodes, isPinned: false });
  } else {
    await db
      .updateTable('bookings')
      .set({ ends_at: until, busy_until: until + gapMs })
      .where('lease', '=', row.id)
      .execute();
  }
  await db.updateTable('leases').set({ ends_at: until }).where('id', '=', row.id).execute();
  await recordChange(db, clock, {
    actor,
    kind: 'lease.extended',
    subject: row.id,
    detail: {
      from: row.ends_at,
      until,
      ...(isElsewhere ? { nodes: room.nodes } : {}),
      ...forOther(actor, row.owner),
    },
  });
}
