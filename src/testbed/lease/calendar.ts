/**
 * Who has which node when, in memory: the bookings of each node as sorted arrays, so that free nodes and the earliest
 * common start are found without the database. Pure: refresh.ts fills it.
 */

/** One node of one lease, busy over the half-open [startsAt, busyUntil). */
export interface Booking {
  lease: string;
  node: string;
  startsAt: number;
  /** End of the lease and of its cleaning gap. */
  busyUntil: number;
  /** May be bound to another node: asked for by count, and not begun. */
  movable: boolean;
}

/** A stretch of possible starts, half-open, throughout which that many nodes are free for the whole time needed. */
export interface Stretch {
  from: number;
  to: number;
  free: number;
}

export interface StartQuery {
  nodes: readonly string[];
  from: number;
  /** Duration and cleaning gap together. */
  needMs: number;
  /** Nodes that cannot begin before a time, whatever their bookings say. */
  notBefore?: ReadonlyMap<string, number>;
}

/** Bookings of one node, sorted; they never overlap, so that starts and ends are sorted alike. */
interface Row {
  starts: Float64Array;
  ends: Float64Array;
  bookings: readonly Booking[];
}

const emptyRow: Row = { starts: new Float64Array(0), ends: new Float64Array(0), bookings: [] };

export class Calendar {
  readonly #rows = new Map<string, Row>();

  /** Sets all bookings of a node, in order of their starts. */
  replace(node: string, bookings: readonly Booking[]): void {
    const starts = Float64Array.from(bookings, (booking) => booking.startsAt);
    const ends = Float64Array.from(bookings, (booking) => booking.busyUntil);
    this.#rows.set(node, { starts, ends, bookings });
  }

  /** Bookings of a node that touch [from, to). */
  overlapping(node: string, from: number, to: number): Booking[] {
    const { starts, ends, bookings } = this.#row(node);
    const found: Booking[] = [];
    for (let at = firstAbove(ends, from); at < starts.length && (starts[at] ?? 0) < to; at++) {
      const booking = bookings[at];
      if (booking) found.push(booking);
    }
    return found;
  }

  isFree(node: string, from: number, to: number): boolean {
    const { starts, ends } = this.#row(node);
    const next = starts[firstAbove(ends, from)];
    return next === undefined || next >= to;
  }

  freeNodes(nodes: readonly string[], from: number, to: number): string[] {
    return nodes.filter((node) => this.isFree(node, from, to));
  }

  /** Start of the first booking that begins at `at` or later, or null. */
  nextBusy(node: string, at: number): number | null {
    const { starts } = this.#row(node);
    return starts[firstAbove(starts, at - 1)] ?? null;
  }

  /** End of the last booking that ends at `at` or earlier, or null. */
  lastBusy(node: string, at: number): number | null {
    const { ends } = this.#row(node);
    return ends[firstAbove(ends, at) - 1] ?? null;
  }

  /** The earliest start at which `count` of the nodes are free, or null when there are not so many. */
  earliest(count: number, query: StartQuery): number | null {
    for (const stretch of this.stretches(query)) if (stretch.free >= count) return stretch.from;
    return null;
  }

  /** Possible starts, earliest first: the one at once where that can be, then those on the grid. */
  starts(count: number, stepMs: number, limit: number, query: StartQuery): number[] {
    const found: number[] = [];
    for (const { from, to, free } of this.stretches(query)) {
      if (free < count) continue;
      if (found.length === 0) found.push(from);
      const begin = Math.max(from, (found.at(-1) ?? from) + 1);
      for (let at = Math.ceil(begin / stepMs) * stepMs; at < to && found.length < limit; at += stepMs) {
        found.push(at);
      }
      if (found.length >= limit) break;
    }
    return found.slice(0, limit);
  }

  /**
   * How many nodes can begin when, from `query.from` to the end of time: a sweep over the openings and closings of
   * their gaps, in spans of time that grow, so that an early answer costs little.
   */
  *stretches(query: StartQuery): Generator<Stretch> {
    const walkers = query.nodes.map(
      (node) =>
        new GapWalker(this.#row(node), Math.max(query.from, query.notBefore?.get(node) ?? 0), query.needMs),
    );
    const opens = new Times();
    const closes = new Times();
    let [at, free, spanMs] = [query.from, 0, firstSpanMs];
    for (let end = at + spanMs; ; spanMs *= 2, end += spanMs) {
      opens.clear();
      closes.clear();
      let isMore = false;
      for (const walker of walkers) isMore = walker.collect(end, opens, closes) || isMore;
      for (const event of merge(opens.sorted(), closes.sorted())) {
        if (event.at > at) yield { from: at, to: event.at, free };
        at = event.at;
        free += event.change;
      }
      if (!isMore) break;
    }
    yield { from: at, to: Infinity, free };
  }

  #row(node: string): Row {
    return this.#rows.get(node) ?? emptyRow;
  }
}

const firstSpanMs = 24 * 3600 * 1000;

/** Index of the first value greater than `limit`. */
function firstAbove(sorted: Float64Array, limit: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? Infinity) > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Goes through the gaps of one node that are long enough, each as the half-open range of its possible starts. */
class GapWalker {
  /** Index of the booking that ends the gap looked at. */
  #next: number;
  /** First start that the gap last opened does not allow any more. */
  #closing: number | undefined;

  constructor(
    readonly row: Row,
    readonly from: number,
    readonly needMs: number,
  ) {
    this.#next = firstAbove(row.ends, from);
  }

  /** Adds what opens and closes before `end`. Returns true while there is more after it. */
  collect(end: number, opens: Times, closes: Times): boolean {
    const { starts, ends } = this.row;
    for (;;) {
      if (this.#closing !== undefined) {
        if (this.#closing >= end) return this.#closing !== Infinity;
        closes.add(this.#closing);
        this.#closing = undefined;
      }
      if (this.#next > starts.length) return false;
      const open = Math.max(this.from, this.#next === 0 ? -Infinity : (ends[this.#next - 1] ?? Infinity));
      const close = (starts[this.#next] ?? Infinity) - this.needMs + 1;
      if (open < close) {
        if (open >= end) return true;
        opens.add(open);
        this.#closing = close;
      }
      this.#next++;
    }
  }
}

/** A growing list of times without objects. */
class Times {
  #values = new Float64Array(256);
  #length = 0;

  add(value: number): void {
    if (this.#length === this.#values.length) {
      const grown = new Float64Array(this.#length * 2);
      grown.set(this.#values);
      this.#values = grown;
    }
    this.#values[this.#length++] = value;
  }

  clear(): void {
    this.#length = 0;
  }

  sorted(): Float64Array {
    return this.#values.subarray(0, this.#length).sort();
  }
}

/** Times at which the number of open gaps changes, in order, with the change. */
function* merge(opens: Float64Array, closes: Float64Array): Generator<{ at: number; change: number }> {
  let [open, close] = [0, 0];
  while (open < opens.length || close < closes.length) {
    const at = Math.min(opens[open] ?? Infinity, closes[close] ?? Infinity);
    let change = 0;
    for (; open < opens.length && opens[open] === at; open++) change++;
    for (; close < closes.length && closes[close] === at; close++) change--;
    if (change !== 0) yield { at, change };
  }
}
