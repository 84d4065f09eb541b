/**
 * Which nodes a request gets, and which bookings of others move to other nodes for it: directly where enough are free,
 * then by moving what stands in the way one by one, then by laying all movable bookings of that time out anew. Pure.
 */
import type { Booking } from './calendar.js';
import type { Draft } from './draft.js';

export interface RoomRequest {
  /** Nodes that would do. */
  nodes: readonly string[];
  count: number;
  from: number;
  /** End of the cleaning gap. */
  busyUntil: number;
  now: number;
}

/** Nodes that a movable lease may be bound to. */
export type EligibleOf = (lease: string) => readonly string[];

export interface Room {
  nodes: string[];
  /** The draft with everything moved that has to move; the request itself is not in it. */
  draft: Draft;
}

/** More bookings than this are not laid out anew: the work has to stay bounded. */
const repackLimit = 500;

/** Nodes for a request, or undefined when no moving makes room. */
export function findRoom(draft: Draft, request: RoomRequest, eligibleOf?: EligibleOf): Room | undefined {
  const free = byFit(draft, request.nodes, request);
  if (free.length >= request.count) return { nodes: free.slice(0, request.count), draft };
  if (eligibleOf === undefined || request.nodes.length < request.count) return undefined;
  return moveSome(draft, request, free, eligibleOf) ?? layOutAnew(draft, request, eligibleOf);
}

/** The nodes that are free for the whole time, best fit first. */
function byFit(
  draft: Draft,
  nodes: readonly string[],
  { from, busyUntil, now }: Pick<RoomRequest, 'from' | 'busyUntil' | 'now'>,
): string[] {
  return nodes
    .filter((node) => draft.isFree(node, from, busyUntil))
    .map((node) => ({ node, ...draft.fit(node, from, busyUntil, now) }))
    .sort((a, b) => (a.gap === b.gap ? a.before - b.before || compare(a.node, b.node) : a.gap - b.gap))
    .map(({ node }) => node);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Empties nodes whose bookings in that time can all go to nodes that are free for them. */
function moveSome(
  draft: Draft,
  request: RoomRequest,
  free: string[],
  eligibleOf: EligibleOf,
): Room | undefined {
  let present = draft.copy();
  const chosen = [...free];
  const candidates = request.nodes
    .filter((node) => !free.includes(node))
    .map((node) => ({ node, blockers: draft.overlapping(node, request.from, request.busyUntil) }))
    .filter(({ blockers }) => blockers.every((booking) => booking.movable))
    .sort((a, b) => a.blockers.length - b.blockers.length || compare(a.node, b.node));
  for (const { node } of candidates) {
    if (chosen.length === request.count) break;
    const trial = present.copy();
    const blockers = trial.overlapping(node, request.from, request.busyUntil);
    if (!blockers.every((booking) => moveAway(trial, booking, [...chosen, node], request, eligibleOf)))
      continue;
    present = trial;
    chosen.push(node);
  }
  return chosen.length === request.count ? { nodes: chosen, draft: present } : undefined;
}

function moveAway(
  draft: Draft,
  booking: Booking,
  kept: readonly string[],
  { now }: RoomRequest,
  eligibleOf: EligibleOf,
): boolean {
  if (!booking.movable) return false;
  const others = eligibleOf(booking.lease).filter((node) => !kept.includes(node));
  const [target] = byFit(draft, others, { from: booking.startsAt, busyUntil: booking.busyUntil, now });
  if (target === undefined) return false;
  draft.remove(booking);
  draft.place(booking, target);
  return true;
}

/** The time over which bookings may change places: from the first to the last moment of those in the way. */
export function reachOf(
  draft: Draft,
  nodes: readonly string[],
  { from, busyUntil }: Pick<RoomRequest, 'from' | 'busyUntil'>,
): { from: number; busyUntil: number } {
  const reach = { from, busyUntil };
  for (const node of nodes) {
    for (const one of draft.overlapping(node, from, busyUntil)) {
      if (!one.movable) continue;
      reach.from = Math.min(reach.from, one.startsAt);
      reach.busyUntil = Math.max(reach.busyUntil, one.busyUntil);
    }
  }
  return reach;
}

/** One piece to be laid out: a movable booking, or one node of the request itself. */
interface Piece {
  booking: Booking;
  nodes: readonly string[];
  isOurs: boolean;
}

/** Takes all movable bookings of that time up and lays them and the request out again, the most constrained first. */
function layOutAnew(draft: Draft, request: RoomRequest, eligibleOf: EligibleOf): Room | undefined {
  const { from, busyUntil } = request;
  const span = new Set(request.nodes);
  for (const node of request.nodes) {
    for (const one of draft.overlapping(node, from, busyUntil)) {
      if (one.movable) for (const other of eligibleOf(one.lease)) span.add(other);
    }
  }
  const time = reachOf(draft, [...span], request);
  const movable = [...span]
    .flatMap((node) => draft.overlapping(node, time.from, time.busyUntil))
    .filter((one) => one.movable);
  if (movable.length === 0 || movable.length > repackLimit) return undefined;
  const theirs = movable.map((booking) => ({ booking, nodes: eligibleOf(booking.lease), isOurs: false }));
  const ours = Array.from({ length: request.count }, () => ({
    booking: { lease: '', node: '', startsAt: from, busyUntil, movable: false },
    nodes: request.nodes,
    isOurs: true,
  }));
  const byLength = (a: Piece, b: Piece): number =>
    b.booking.busyUntil - b.booking.startsAt - (a.booking.busyUntil - a.booking.startsAt);
  const constrainedFirst = [...ours, ...theirs].sort(
    (a, b) => a.nodes.length - b.nodes.length || byLength(a, b),
  );
  return (
    layOut(draft, constrainedFirst, request) ?? layOut(draft, [...ours, ...theirs.sort(byLength)], request)
  );
}

function layOut(draft: Draft, pieces: readonly Piece[], { now }: RoomRequest): Room | undefined {
  const trial = draft.copy();
  for (const { booking, isOurs } of pieces) if (!isOurs) trial.remove(booking);
  const taken: Booking[] = [];
  for (const { booking, nodes, isOurs } of pieces) {
    const [node] = byFit(trial, nodes, { from: booking.startsAt, busyUntil: booking.busyUntil, now });
    if (node === undefined) return undefined;
    trial.place(booking, node);
    if (isOurs) taken.push({ ...booking, node });
  }
  for (const booking of taken) trial.remove(booking);
  return { nodes: taken.map((booking) => booking.node), draft: trial };
}
