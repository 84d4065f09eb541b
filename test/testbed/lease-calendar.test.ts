/** The calendar in memory against a naive scan, and making room: what is found holds, and nobody is lost or doubled. */
import t from 'tap';
import fc from 'fast-check';
import { Calendar } from '../../src/testbed/lease/calendar.js';
import type { Booking } from '../../src/testbed/lease/calendar.js';
import { Draft } from '../../src/testbed/lease/draft.js';
import { findRoom } from '../../src/testbed/lease/find-room.js';

const names = ['n1', 'n2', 'n3', 'n4'];
const hour = 3_600_000;

interface Gapped {
  gap: number;
  length: number;
  movable: boolean;
}
const gapped = fc.record({
  gap: fc.integer({ min: 0, max: 30 }),
  length: fc.integer({ min: 1, max: 20 }),
  movable: fc.boolean(),
});
/** Bookings of each node: gaps and lengths laid end to end, so that they never overlap. */
const world = fc.array(fc.array(gapped, { maxLength: 6 }), { minLength: 1, maxLength: 4 });

function bookingsOf(rows: Gapped[][], unit: number): Booking[] {
  return rows.flatMap((row, index) => {
    let at = 0;
    return row.map(({ gap, length, movable }, nth) => {
      const startsAt = at + gap * unit;
      at = startsAt + length * unit;
      const node = names[index]!;
      return { lease: `l-${node}-${String(nth)}`, node, startsAt, busyUntil: at, movable };
    });
  });
}

function calendarOf(bookings: readonly Booking[]): Calendar {
  const calendar = new Calendar();
  for (const node of names) {
    const own = bookings.filter((one) => one.node === node).sort((a, b) => a.startsAt - b.startsAt);
    calendar.replace(node, own);
  }
  return calendar;
}

const overlap = (one: Booking, from: number, to: number): boolean =>
  one.startsAt < to && from < one.busyUntil;

t.test('the calendar finds what a naive scan finds', (t) => {
  const query = fc.record({
    from: fc.integer({ min: 0, max: 150 }),
    need: fc.integer({ min: 1, max: 40 }),
    count: fc.integer({ min: 1, max: 5 }),
    step: fc.integer({ min: 1, max: 15 }),
    late: fc.constantFrom(0, 0, 25, 120),
  });
  // A unit of a day makes the sweep go over many of its spans; one of a millisecond keeps it within the first.
  fc.assert(
    fc.property(
      world,
      query,
      fc.constantFrom(1, 24 * hour),
      (rows, { from, need, count, step, late }, unit) => {
        const bookings = bookingsOf(rows, unit);
        const calendar = calendarOf(bookings);
        const nodes = names.slice(0, rows.length);
        const notBefore = new Map([['n1', late * unit]]);
        const needMs = need * unit;
        const free = (at: number): string[] =>
          nodes.filter(
            (node) =>
              at >= (notBefore.get(node) ?? 0) &&
              !bookings.some((one) => one.node === node && overlap(one, at, at + needMs)),
          );
        // A common start is possible first at `from`, or at an end of a booking, or when a node comes back.
        const candidates = [from * unit, late * unit, ...bookings.map((one) => one.busyUntil)]
          .filter((at) => at >= from * unit)
          .sort((a, b) => a - b);
        const naive = candidates.find((at) => free(at).length >= count) ?? null;
        const asked = { nodes, from: from * unit, needMs, notBefore };
        const found = calendar.earliest(count, asked);
        if (found !== naive) throw new Error(`earliest: ${String(found)}, naive: ${String(naive)}`);

        const grid = step * unit;
        const starts = calendar.starts(count, grid, 5, asked);
        const expected: number[] = [];
        if (naive !== null) {
          expected.push(naive);
          for (let at = Math.ceil((naive + 1) / grid) * grid; expected.length < 5; at += grid) {
            if (free(at).length >= count) expected.push(at);
          }
        }
        if (JSON.stringify(starts) !== JSON.stringify(expected)) {
          throw new Error(`starts: ${JSON.stringify(starts)}, naive: ${JSON.stringify(expected)}`);
        }
      },
    ),
    { numRuns: 2000 },
  );
  fc.assert(
    fc.property(world, fc.nat(200), fc.integer({ min: 1, max: 60 }), (rows, from, length) => {
      const bookings = bookingsOf(rows, 1);
      const calendar = calendarOf(bookings);
      for (const node of names) {
        const own = bookings.filter((one) => one.node === node);
        const hit = own.filter((one) => overlap(one, from, from + length));
        const next = own.filter((one) => one.startsAt >= from).map((one) => one.startsAt);
        const last = own.filter((one) => one.busyUntil <= from).map((one) => one.busyUntil);
        const same =
          calendar.isFree(node, from, from + length) === (hit.length === 0) &&
          calendar.overlapping(node, from, from + length).length === hit.length &&
          calendar.nextBusy(node, from) === (next.length > 0 ? Math.min(...next) : null) &&
          calendar.lastBusy(node, from) === (last.length > 0 ? Math.max(...last) : null);
        if (!same) throw new Error(`${node} differs`);
      }
    }),
    { numRuns: 1000 },
  );
  t.equal(calendarOf([]).earliest(5, { nodes: names, from: 0, needMs: 1 }), null, 'there are only four');
  t.end();
});

t.test('making room', async (t) => {
  const booking = (lease: string, node: string, from: number, to: number, movable = true): Booking => ({
    lease,
    node,
    startsAt: from,
    busyUntil: to,
    movable,
  });
  const anywhere = (): string[] => names;
  const request = { from: 10, busyUntil: 20, now: 0 };

  await t.test('takes the node whose gap fits best, so that long gaps stay whole', (t) => {
    const draft = new Draft(
      calendarOf([booking('a', 'n2', 0, 10, false), booking('b', 'n2', 25, 30, false)]),
    );
    const room = findRoom(draft, { ...request, nodes: names, count: 1 });
    t.strictSame(room?.nodes, ['n2']);
    t.strictSame(room?.draft.moves(), []);
    t.end();
  });

  await t.test('moves what is in the way of named nodes, and says so', (t) => {
    const draft = new Draft(calendarOf([booking('a', 'n1', 5, 15), booking('b', 'n2', 0, 30, false)]));
    t.equal(
      findRoom(draft, { ...request, nodes: ['n1'], count: 1 }),
      undefined,
      'not without knowing where to',
    );
    const room = findRoom(draft, { ...request, nodes: ['n1'], count: 1 }, anywhere);
    t.strictSame(room?.nodes, ['n1']);
    t.match(room?.draft.moves(), [{ lease: 'a', from: 'n1', to: /n3|n4/ }]);
    t.equal(findRoom(draft, { ...request, nodes: ['n2'], count: 1 }, anywhere), undefined, 'b is pinned');
    const onlyN1 = (): string[] => ['n1', 'n2'];
    t.equal(
      findRoom(draft, { ...request, nodes: ['n1'], count: 1 }, onlyN1),
      undefined,
      'a has nowhere to go',
    );
    t.end();
  });

  await t.test('lays bookings out anew where moving one by one does not do', (t) => {
    const draft = new Draft(
      calendarOf([
        booking('a', 'n1', 0, 14),
        booking('b', 'n2', 0, 14),
        booking('c', 'n1', 14, 30),
        booking('d', 'n3', 0, 14, false),
        booking('e', 'n3', 20, 40, false),
        booking('f', 'n2', 16, 19),
        booking('g', 'n4', 0, 12, false),
      ]),
    );
    const eligible: Record<string, string[]> = {
      a: ['n1', 'n2'],
      b: ['n1', 'n2'],
      c: ['n2', 'n4'],
      f: ['n3'],
    };
    const room = findRoom(
      draft,
      { from: 14, busyUntil: 30, now: 0, nodes: ['n1', 'n2'], count: 2 },
      (lease) => eligible[lease]!,
    );
    t.strictSame(room?.nodes.slice().sort(), ['n1', 'n2']);
    t.strictSame(
      room?.draft.moves().sort((a, b) => (a.lease < b.lease ? -1 : 1)),
      [
        { lease: 'c', from: 'n1', to: 'n4' },
        { lease: 'f', from: 'n2', to: 'n3' },
      ],
    );
    // Two bookings that can only change places: no single move is possible.
    const swap = new Draft(
      calendarOf([booking('a', 'n1', 0, 10), booking('b', 'n2', 5, 20), booking('z', 'n2', 25, 99, false)]),
    );
    const both = (): string[] => ['n1', 'n2'];
    const swapped = findRoom(swap, { from: 10, busyUntil: 26, now: 0, nodes: ['n1'], count: 1 }, both);
    t.strictSame(swapped?.nodes, ['n1'], 'it is free without a move');
    const needed = new Draft(calendarOf([booking('a', 'n1', 0, 15), booking('b', 'n2', 15, 30)]));
    const laid = findRoom(needed, { from: 15, busyUntil: 30, now: 0, nodes: ['n2'], count: 1 }, both);
    t.strictSame(laid?.draft.moves(), [{ lease: 'b', from: 'n2', to: 'n1' }]);
    const cross = new Draft(calendarOf([booking('a', 'n1', 0, 20), booking('b', 'n2', 10, 30)]));
    const crossed = findRoom(cross, { from: 20, busyUntil: 30, now: 0, nodes: ['n2'], count: 1 }, both);
    t.strictSame(
      crossed?.draft.moves().sort((a, b) => (a.lease < b.lease ? -1 : 1)),
      [
        { lease: 'a', from: 'n1', to: 'n2' },
        { lease: 'b', from: 'n2', to: 'n1' },
      ],
    );
    t.end();
  });

  await t.test('whatever is found: no overlap, nobody lost, nobody where they may not be', (t) => {
    const asked = fc.record({
      from: fc.nat(80),
      length: fc.integer({ min: 1, max: 30 }),
      count: fc.integer({ min: 1, max: 4 }),
      nodes: fc.subarray(names, { minLength: 1 }),
      others: fc.subarray(names, { minLength: 2 }),
    });
    let moved = 0;
    fc.assert(
      fc.property(world, asked, (rows, { from, length, count, nodes, others }) => {
        const bookings = bookingsOf(rows, 1);
        const eligibleOf = (lease: string): string[] => [...new Set([lease.split('-')[1]!, ...others])];
        const draft = new Draft(calendarOf(bookings));
        const busyUntil = from + length;
        const room = findRoom(draft, { nodes, count, from, busyUntil, now: 0 }, eligibleOf);
        const direct = nodes.filter(
          (node) => !bookings.some((one) => one.node === node && overlap(one, from, busyUntil)),
        );
        if (room === undefined) {
          if (direct.length >= count) throw new Error('there was room');
          return;
        }
        if (new Set(room.nodes).size !== count) throw new Error('not so many nodes');
        if (!room.nodes.every((node) => nodes.includes(node)))
          throw new Error('a node that was not asked for');
        const moves = room.draft.moves();
        moved += moves.length;
        const after = bookings.map((one) => {
          const move = moves.find((other) => other.lease === one.lease);
          if (move === undefined) return one;
          if (!one.movable) throw new Error('moved what is pinned');
          if (move.from !== one.node || !eligibleOf(one.lease).includes(move.to))
            throw new Error('a wrong move');
          return { ...one, node: move.to };
        });
        const all = [
          ...after,
          ...room.nodes.map((node) => ({ lease: 'ours', node, startsAt: from, busyUntil, movable: false })),
        ];
        all.forEach((one, index) => {
          for (const other of all.slice(index + 1)) {
            if (one.node === other.node && overlap(one, other.startsAt, other.busyUntil))
              throw new Error('overlap');
          }
        });
      }),
      { numRuns: 3000 },
    );
    t.ok(moved > 100, `${String(moved)} bookings were moved`);
    t.end();
  });
});
