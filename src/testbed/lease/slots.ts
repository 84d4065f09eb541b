/** What is free when: the next possible starts of a request. */
import { checkLength, checkStart } from './bounds.js';
import { Draft } from './draft.js';
import { startQuery } from './earliest.js';
import { defaultSite, eligible, enrollIfEmbedded, nodesOfSite } from './eligible.js';
import { findRoom } from './find-room.js';
import type { Ground, Wanted } from './ground.js';
import { refreshCalendar } from './refresh.js';

export interface SlotsRequest {
  site?: string;
  nodes: Wanted;
  durationMs: number;
  /** Epoch milliseconds; now, where it is not given. */
  from?: number;
  /** 10, where it is not given. */
  limit?: number;
}

/** A possible start: the nodes would be free for all of it and for cleaning afterwards. */
export interface Slot {
  startsAt: number;
  endsAt: number;
  /** How many of the nodes that would do are free then. */
  freeNodes: number;
  /** Which a reservation would get, as things stand. */
  nodes: string[];
  /** Until when it could be extended, or null where nothing is in the way. */
  extendableUntil: number | null;
}

/**
 * The earliest possible start, then those on the grid of the settings' `slot_step_sec`, without moving anybody.
 * @throws InfrabedError IB_LEASE_INVALID, IB_SITE_UNKNOWN, IB_NODE_UNKNOWN, IB_NOT_ENOUGH_NODES as reserve.
 */
export async function findSlots(ground: Ground, request: SlotsRequest): Promise<Slot[]> {
  const { store, settings, clock } = ground;
  const { durationMs, limit = 10 } = request;
  checkLength(durationMs, settings);
  const now = clock.now();
  const from = request.from ?? now;
  checkStart(from, now, settings);
  const site = request.site ?? (await defaultSite());
  await enrollFirst(ground, site);
  const choice = eligible(await nodesOfSite(store.db, site), site, request.nodes);
  const gapMs = settings.lease.cleaning_gap_sec * 1000;
  const needMs = durationMs + gapMs;
  const calendar = await refreshCalendar(store, store.db);
  const query = startQuery(choice, { from, now, needMs, gapMs });
  const horizon = now + settings.lease.horizon_sec * 1000;
  return calendar
    .starts(choice.count, settings.lease.slot_step_sec * 1000, limit, query)
    .filter((startsAt) => startsAt <= horizon)
    .map((startsAt) => {
      const able = query.nodes.filter((node) => (query.notBefore?.get(node) ?? 0) <= startsAt);
      const busyUntil = startsAt + needMs;
      const room = findRoom(new Draft(calendar), {
        nodes: able,
        count: choice.count,
        from: startsAt,
        busyUntil,
        now,
      });
      const nodes = room?.nodes ?? [];
      const next = Math.min(...nodes.map((node) => calendar.nextBusy(node, busyUntil) ?? Infinity));
      return {
        startsAt,
        endsAt: startsAt + durationMs,
        freeNodes: calendar.freeNodes(able, startsAt, busyUntil).length,
        nodes,
        extendableUntil: next === Infinity ? null : next - gapMs,
      };
    });
}

/** Looking at a store that was never used enrols the embedded site: the one write, and only once. */
export async function enrollFirst({ store, clock }: Ground, site: string): Promise<void> {
  const known = await store.db.selectFrom('nodes').select('name').where('site', '=', site).limit(1).execute();
  if (known.length > 0) return;
  await store.db.transaction().execute((db) => enrollIfEmbedded(db, site, clock));
}
