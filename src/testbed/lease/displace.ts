/** Room for a request by ending reservations of users with a lower priority: the last means, and no more than needed. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import type { Booking } from './calendar.js';
import type { Draft } from './draft.js';
import type { SiteNodeState } from './eligible.js';
import { findRoom } from './find-room.js';
import type { EligibleOf, Room, RoomRequest } from './find-room.js';
import { movablesOf } from './make-room.js';
import { endRow } from './rows.js';
import type { LeaseRow } from './rows.js';

export interface DisplacingRoom extends Room {
  displaced: LeaseRow[];
}

/** So many are tried at most: the work has to stay bounded. */
const most = 200;

/** Room that displacing makes, or undefined. Writes nothing. */
export async function seekByDisplacing(
  db: Kysely<Database>,
  draft: Draft,
  nodes: readonly SiteNodeState[],
  request: RoomRequest & { priority: number },
): Promise<DisplacingRoom | undefined> {
  const inTheWay = bookingsByLease(draft, nodes, request);
  const rows = await db
    .selectFrom('leases')
    .selectAll()
    .where('state', '=', 'reserved')
    .where('own', '=', 0)
    .where('priority', '<', request.priority)
    .where('starts_at', '>', request.now)
    .where('starts_at', '<', request.busyUntil)
    .orderBy('priority')
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .execute();
  const candidates = rows.filter((row) => inTheWay.has(row.id)).slice(0, most);
  const eligibleOf = await movablesOf(db, draft, nodes, request);
  const trial = draft.copy();
  const displaced: LeaseRow[] = [];
  for (const row of candidates) {
    for (const booking of inTheWay.get(row.id) ?? []) trial.remove(booking);
    displaced.push(row);
    const room = findRoom(trial, request, eligibleOf);
    if (room) return putBack(room, request, displaced, { inTheWay, eligibleOf });
  }
  return undefined;
}

function bookingsByLease(
  draft: Draft,
  nodes: readonly SiteNodeState[],
  { from, busyUntil }: RoomRequest,
): Map<string, Booking[]> {
  const byLease = new Map<string, Booking[]>();
  for (const booking of nodes.flatMap((node) => draft.overlapping(node.name, from, busyUntil))) {
    byLease.set(booking.lease, [...(byLease.get(booking.lease) ?? []), booking]);
  }
  return byLease;
}

/** Those that need not go after all stay, the highest priority first, on other nodes where they may be moved. */
function putBack(
  room: Room,
  request: RoomRequest,
  displaced: readonly LeaseRow[],
  known: { inTheWay: ReadonlyMap<string, Booking[]>; eligibleOf: EligibleOf },
): DisplacingRoom {
  const { from: startsAt, busyUntil } = request;
  const ours = room.nodes.map((node) => ({ lease: '', node, startsAt, busyUntil, movable: false }));
  let draft = room.draft.copy();
  for (const booking of ours) draft.place({ ...booking, node: '' }, booking.node);
  const gone: LeaseRow[] = [];
  for (const row of [...displaced].reverse()) {
    const trial = draft.copy();
    const bookings = known.inTheWay.get(row.id) ?? [];
    if (bookings.every((booking) => stays(trial, booking, request.now, known.eligibleOf))) draft = trial;
    else gone.push(row);
  }
  for (const booking of ours) draft.remove(booking);
  return { nodes: room.nodes, draft, displaced: gone };
}

function stays(draft: Draft, booking: Booking, now: number, eligibleOf: EligibleOf): boolean {
  const { node, startsAt: from, busyUntil, movable, lease } = booking;
  const nodes = draft.isFree(node, from, busyUntil) ? [node] : movable ? eligibleOf(lease) : [];
  const [target] = findRoom(draft, { nodes, count: 1, from, busyUntil, now })?.nodes ?? [];
  if (target === undefined) return false;
  draft.place(booking, target);
  return true;
}

/** Ends the reservations that have to go, with notice to their owners. */
export async function displace(
  db: Kysely<Database>,
  rows: readonly LeaseRow[],
  who: { actor: Actor; clock: Clock; because: string },
): Promise<void> {
  for (const row of rows) {
    await endRow(db, row, 'displaced', who.clock);
    await recordChange(db, who.clock, {
      actor: who.actor,
      kind: 'lease.displaced',
      subject: row.id,
      detail: { owner: row.owner, by: who.because },
    });
  }
}
