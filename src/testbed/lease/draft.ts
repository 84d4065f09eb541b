/** A calendar with changes that are only thought of: bookings moved, removed and added, before any of it is written. */
import type { Booking, Calendar } from './calendar.js';

/** A booking that is bound to another node than before. */
export interface Move {
  lease: string;
  from: string;
  to: string;
}

interface Placed extends Booking {
  /** The node that the store has it on. */
  origin: string;
}

export class Draft {
  readonly #calendar: Calendar;
  /** By node: leases whose booking there does not count any more. */
  readonly #removed: Map<string, Set<string>>;
  readonly #added: Map<string, Placed[]>;

  constructor(calendar: Calendar, like?: Draft) {
    this.#calendar = calendar;
    this.#removed = new Map(
      Array.from(like ? like.#removed : [], ([node, leases]) => [node, new Set(leases)]),
    );
    this.#added = new Map(Array.from(like ? like.#added : [], ([node, placed]) => [node, [...placed]]));
  }

  /** A draft to try something in. */
  copy(): Draft {
    return new Draft(this.#calendar, this);
  }

  overlapping(node: string, from: number, to: number): Booking[] {
    const removed = this.#removed.get(node);
    const kept = this.#calendar.overlapping(node, from, to);
    const added = this.#added.get(node) ?? [];
    if (removed === undefined && added.length === 0) return kept;
    return [
      ...kept.filter((booking) => !removed?.has(booking.lease)),
      ...added.filter((booking) => booking.startsAt < to && from < booking.busyUntil),
    ];
  }

  isFree(node: string, from: number, to: number): boolean {
    if (!this.#removed.has(node) && !this.#added.has(node)) return this.#calendar.isFree(node, from, to);
    return this.overlapping(node, from, to).length === 0;
  }

  /** Takes a booking away, as it now stands in the draft. */
  remove(booking: Booking): void {
    const added = this.#added.get(booking.node)?.findIndex((one) => one.lease === booking.lease) ?? -1;
    if (added >= 0) {
      this.#added.get(booking.node)?.splice(added, 1);
      return;
    }
    const removed = this.#removed.get(booking.node) ?? new Set();
    this.#removed.set(booking.node, removed.add(booking.lease));
  }

  /** Puts a booking, removed before, on a node. */
  place(booking: Booking, node: string): void {
    const origin = 'origin' in booking ? (booking as Placed).origin : booking.node;
    const placed = this.#added.get(node) ?? [];
    placed.push({ ...booking, node, origin });
    this.#added.set(node, placed);
  }

  /** Bookings that stand on another node than the store has them on. */
  moves(): Move[] {
    return [...this.#added.values()]
      .flat()
      .filter((booking) => booking.node !== booking.origin && booking.origin !== '')
      .map(({ lease, node, origin }) => ({ lease, from: origin, to: node }));
  }

  /**
   * The free time around [from, to) on a node that is free then, seen from `now`: shorter is a better fit, since long
   * gaps stay whole.
   */
  fit(node: string, from: number, to: number, now: number): { gap: number; before: number } {
    const added = this.#added.get(node) ?? [];
    const ends = added.map((one) => one.busyUntil).filter((end) => end <= from);
    const starts = added.map((one) => one.startsAt).filter((start) => start >= to);
    // Removed bookings count as if they stood: good enough for a choice between free nodes.
    const last = Math.max(now, this.#calendar.lastBusy(node, from) ?? 0, ...ends);
    const next = Math.min(this.#calendar.nextBusy(node, to) ?? Infinity, ...starts);
    return { gap: next - last, before: from - last };
  }
}
