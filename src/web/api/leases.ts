/** Operations on leases: what is free, reserve, look, extend, give back, hand over, and the calendar. */
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import { extendLease } from '../../testbed/lease/extend.js';
import { giveBackLease } from '../../testbed/lease/give-back.js';
import { transferLease } from '../../testbed/lease/transfer.js';
import { acceptClock, type Wanted } from '../../testbed/lease/ground.js';
import { reserve } from '../../testbed/lease/reserve.js';
import { calendarView } from '../../testbed/lease/calendar-view.js';
import { findSlots } from '../../testbed/lease/slots.js';
import { listLeases, showLease, type LeaseView } from '../../testbed/lease/view.js';
import { epochMs, instant, isoOrNull, isoUtc } from './instant.js';
import { operation, type AnyOperation } from './operation.js';

/** A lease as it travels. */
const leaseShape = z.object({
  id: z.string(),
  owner: z.string(),
  purpose: z.string(),
  site: z.string(),
  nodes: z.array(z.string()).describe('names as in the inventory: local/n01'),
  start: instant,
  end: instant.describe('the first moment that does not belong to it'),
  state: z.enum(['reserved', 'active', 'ended']),
  generation: z.number().int().describe('a new one each time that a controller takes it in hand'),
  endedAt: instant.nullable(),
  endReason: z.string().nullable().describe('released, cancelled, expired, displaced or quarantined'),
  own: z.boolean().describe('taken by a command for itself'),
  controller: z.string().nullable().describe('which has it in hand now'),
  clusters: z.array(z.string()).describe('ids of the clusters that stand on it'),
});
export type LeaseJson = z.output<typeof leaseShape>;

function leaseJson(view: LeaseView): LeaseJson {
  const { id, owner, purpose, site, nodes, state, generation, own, controller, clusters } = view;
  const { startsAt, endsAt, endedAt, endReason } = view;
  const times = { start: isoUtc(startsAt), end: isoUtc(endsAt), endedAt: isoOrNull(endedAt), endReason };
  return { id, owner, purpose, site, nodes, ...times, state, generation, own, controller, clusters };
}

/** Which nodes: a number of them with all these tags, or these. */
const wantedKeys = {
  site: z.string().min(1).optional().describe('left out: the site of the machine'),
  nodes: z.number().optional().describe('how many'),
  tags: z.array(z.string().min(1)).default([]).describe('only nodes with all of these'),
  names: z.array(z.string().min(1)).default([]).describe('exactly these nodes, in place of a number'),
};

function wantedNodes(input: { nodes?: number | undefined; tags: string[]; names: string[] }): Wanted {
  const { nodes, tags, names } = input;
  if (names.length > 0) {
    if (nodes === undefined && tags.length === 0) return { names };
    throw new InfrabedError('IB_USAGE', 'Nodes are asked for by name, so a number or a tag has no meaning.', {
      hint: 'Give names alone, or a number with tags.',
    });
  }
  if (nodes !== undefined) return { count: nodes, tags };
  throw new InfrabedError('IB_USAGE', 'Which nodes?', { hint: 'Give a number of nodes, or names.' });
}

export const leaseReserve = operation({
  name: 'lease.reserve',
  method: 'POST',
  path: '/v1/leases',
  summary: 'Reserve nodes for a time',
  role: 'user',
  input: z.strictObject({
    ...wantedKeys,
    durationSec: z.number(),
    start: instant.optional().describe('left out: now'),
    purpose: z.string(),
    preempt: z
      .boolean()
      .default(false)
      .describe('displace reservations, not begun, of lower priority where nothing else makes room'),
  }),
  output: leaseShape,
  async handle(desk, input, actor) {
    const { site, start, durationSec, purpose, preempt } = input;
    const request = {
      ...(site === undefined ? {} : { site }),
      nodes: wantedNodes(input),
      durationMs: durationSec * 1000,
      ...(start === undefined ? {} : { startsAt: epochMs(start) }),
      purpose,
      preempt,
    };
    return leaseJson(await reserve(desk, request, actor));
  },
});

const slotShape = z.object({
  start: instant,
  end: instant,
  freeNodes: z.number().int().describe('nodes that fit and are free for the whole of it'),
  nodes: z.array(z.string()).describe('those that a reservation would get as things stand'),
  extendableUntil: instant.nullable().describe('null: nothing stands in its way'),
});

export type SlotJson = z.output<typeof slotShape>;

export const leaseSlots = operation({
  name: 'lease.slots',
  method: 'GET',
  path: '/v1/slots',
  summary: 'The next possible starts of a reservation',
  role: 'user',
  input: z.strictObject({
    ...wantedKeys,
    durationSec: z.number(),
    from: instant.optional().describe('left out: now'),
    limit: z.number().int().min(1).max(100).default(10),
  }),
  output: z.object({ slots: z.array(slotShape) }),
  async handle(desk, input) {
    const { site, from, durationSec, limit } = input;
    const slots = await findSlots(desk, {
      ...(site === undefined ? {} : { site }),
      nodes: wantedNodes(input),
      durationMs: durationSec * 1000,
      ...(from === undefined ? {} : { from: epochMs(from) }),
      limit,
    });
    return {
      slots: slots.map(({ startsAt, endsAt, freeNodes, nodes, extendableUntil }) => ({
        start: isoUtc(startsAt),
        end: isoUtc(endsAt),
        freeNodes,
        nodes,
        extendableUntil: isoOrNull(extendableUntil),
      })),
    };
  },
});

export const leaseList = operation({
  name: 'lease.list',
  method: 'GET',
  path: '/v1/leases',
  summary: 'The leases there are, by their start',
  role: 'user',
  input: z.strictObject({
    all: z.boolean().default(false).describe('also those that have ended'),
    owner: z.string().min(1).optional(),
  }),
  output: z.object({ leases: z.array(leaseShape) }),
  async handle({ store }, { all, owner }) {
    const views = await listLeases(store, { all, ...(owner === undefined ? {} : { owner }) });
    return { leases: views.map(leaseJson) };
  },
});

const byId = { id: z.string().min(1) };

export const leaseShow = operation({
  name: 'lease.show',
  method: 'GET',
  path: '/v1/leases/:id',
  summary: 'One lease',
  role: 'user',
  input: z.strictObject(byId),
  output: leaseShape,
  handle: async ({ store }, { id }) => leaseJson(await showLease(store, id)),
});

export const leaseExtend = operation({
  name: 'lease.extend',
  method: 'POST',
  path: '/v1/leases/:id/extend',
  summary: 'Let a lease end later, up to the next reservation',
  role: 'user',
  input: z.strictObject({
    ...byId,
    durationSec: z.number().optional().describe('so much longer'),
    until: instant.optional().describe('or: to this end'),
  }),
  output: leaseShape,
  async handle(desk, { id, durationSec, until }, actor) {
    if ((durationSec === undefined) === (until === undefined)) {
      throw new InfrabedError('IB_USAGE', 'An extension takes a duration or a new end, one of them.');
    }
    const change =
      until === undefined ? { durationMs: (durationSec ?? 0) * 1000 } : { until: epochMs(until) };
    return leaseJson(await extendLease(desk, id, change, actor));
  },
});

export const leaseRelease = operation({
  name: 'lease.release',
  method: 'POST',
  path: '/v1/leases/:id/release',
  summary: 'Give a lease back, or cancel one that has not begun',
  role: 'user',
  input: z.strictObject(byId),
  output: leaseShape,
  handle: async (desk, { id }, actor) => leaseJson(await giveBackLease(desk, id, actor)),
});

export const leaseTransfer = operation({
  name: 'lease.transfer',
  method: 'POST',
  path: '/v1/leases/:id/transfer',
  summary: 'Hand a lease over to somebody else',
  role: 'user',
  input: z.strictObject({ ...byId, owner: z.string().min(1) }),
  output: leaseShape,
  handle: async (desk, { id, owner }, actor) => leaseJson(await transferLease(desk, id, owner, actor)),
});

const bookingShape = z.object({
  lease: z.string(),
  owner: z.string(),
  purpose: z.string(),
  state: leaseShape.shape.state,
  own: z.boolean(),
  start: instant,
  end: instant,
  busyUntil: instant.describe('end of the time for cleaning'),
});

const dayMs = 24 * 3600 * 1000;
const longestDays = 366;

export const leaseCalendar = operation({
  name: 'lease.calendar',
  method: 'GET',
  path: '/v1/calendar',
  summary: 'The bookings of every node between two times',
  role: 'user',
  input: z.strictObject({ site: z.string().min(1).optional(), from: instant, to: instant }),
  output: z.object({
    nodes: z.array(
      z.object({
        node: z.string(),
        site: z.string(),
        state: z.string().describe('of the node, now'),
        bookings: z.array(bookingShape),
      }),
    ),
  }),
  async handle(desk, { site, from, to }) {
    const days = (epochMs(to) - epochMs(from)) / dayMs;
    if (days <= 0 || days > longestDays) {
      throw new InfrabedError(
        'IB_USAGE',
        `From ${from} to ${to} is no time of up to ${String(longestDays)} days.`,
      );
    }
    const rows = await calendarView(desk, {
      ...(site === undefined ? {} : { site }),
      from: epochMs(from),
      days,
    });
    return {
      nodes: rows.map(({ bookings, ...node }) => ({
        ...node,
        bookings: bookings.map(({ startsAt, endsAt, busyUntil, ...booking }) => ({
          ...booking,
          start: isoUtc(startsAt),
          end: isoUtc(endsAt),
          busyUntil: isoUtc(busyUntil),
        })),
      })),
    };
  },
});

export const clockAccept = operation({
  name: 'clock.accept',
  method: 'POST',
  path: '/v1/clock/accept',
  summary: 'Say that the clock is right although it went back',
  role: 'operator',
  input: z.strictObject({}),
  output: z.object({ before: instant.describe('the latest time seen until now'), now: instant }),
  async handle(desk, _input, actor) {
    const { before, now } = await acceptClock(desk, actor);
    return { before: isoUtc(before), now: isoUtc(now) };
  },
});

export const leaseOperations: readonly AnyOperation[] = [
  clockAccept,
  leaseCalendar,
  leaseExtend,
  leaseList,
  leaseRelease,
  leaseReserve,
  leaseShow,
  leaseSlots,
  leaseTransfer,
];
