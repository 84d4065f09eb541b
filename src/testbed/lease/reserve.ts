/** Reserving nodes for a time to come, or from now on. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import { lend } from './begin.js';
import { checkLength, checkStart } from './bounds.js';
import type { Calendar } from './calendar.js';
import { displace, seekByDisplacing } from './displace.js';
import type { DisplacingRoom } from './displace.js';
import { Draft } from './draft.js';
import { earliestStart } from './earliest.js';
import { countStates, defaultSite, eligible, enrollIfEmbedded, nodesOfSite, plural } from './eligible.js';
import type { Eligible, SiteNodeState } from './eligible.js';
import { iso, seeTime } from './ground.js';
import type { Ground, Wanted } from './ground.js';
import { checkLimits, priorityOf } from './limits.js';
import { applyMoves, seekRoom } from './make-room.js';
import { refreshCalendar } from './refresh.js';
import { insertBookings, newLeaseId, nextGeneration } from './rows.js';
import type { LeaseRow } from './rows.js';
import { viewOf } from './view.js';
import type { LeaseView } from './view.js';

export interface ReserveRequest {
  /** The embedded one, where none is named. */
  site?: string;
  nodes: Wanted;
  /** Epoch milliseconds; now, where it is not given. */
  startsAt?: number;
  durationMs: number;
  purpose: string;
  /** May end reservations, not begun yet, of users with a lower priority, where nothing else makes room. */
  preempt?: boolean;
}

/** When it is wanted, and from when to when the nodes are taken for it. */
interface Span {
  now: number;
  startsAt: number;
  endsAt: number;
  gapMs: number;
}

/**
 * Reserves nodes for the actor. One that starts now begins at once.
 * @throws InfrabedError IB_LEASE_INVALID, IB_SITE_UNKNOWN, IB_NODE_UNKNOWN, IB_LEASE_LIMIT, IB_CLOCK_BACK,
 *   IB_NOT_ENOUGH_NODES with the earliest start in hint and details (`earliest`, epoch milliseconds or null).
 */
export async function reserve(ground: Ground, request: ReserveRequest, actor: Actor): Promise<LeaseView> {
  const { store, settings, clock } = ground;
  const { durationMs } = request;
  checkLength(durationMs, settings);
  const site = request.site ?? (await defaultSite());
  return store.db.transaction().execute(async (db) => {
    await enrollIfEmbedded(db, site, clock);
    const now = await seeTime(db, clock);
    const startsAt = request.startsAt ?? now;
    checkStart(startsAt, now, settings);
    const span = {
      now,
      startsAt,
      endsAt: startsAt + durationMs,
      gapMs: settings.lease.cleaning_gap_sec * 1000,
    };
    const all = await nodesOfSite(db, site);
    const choice = eligible(all, site, request.nodes);
    await checkLimits(db, settings, {
      owner: actor.name,
      now,
      nodes: choice.count,
      startsAt,
      endsAt: span.endsAt,
    });
    const calendar = await refreshCalendar(store, db);
    const priority = priorityOf(settings, actor.name);
    const room = await seek(db, calendar, all, choice, span, request.preempt === true ? priority : undefined);
    if (room === undefined) throw noRoom(calendar, choice, span);
    const row = await insertRow(db, { site, request, span, priority, owner: actor.name });
    const because = row.id;
    await displace(db, room.displaced, { actor, clock, because });
    await applyMoves(db, room.draft.moves(), { actor, clock, because });
    await insertBookings(db, { ...span, lease: row.id, nodes: room.nodes, isPinned: choice.isByName });
    await recordChange(db, clock, {
      actor,
      kind: 'lease.reserved',
      subject: row.id,
      detail: { nodes: room.nodes, startsAt, endsAt: span.endsAt, purpose: request.purpose },
    });
    const isNow = startsAt <= now;
    if (isNow) await lend(ground, db, row, room.nodes, actor);
    return viewOf(db, isNow ? { ...row, state: 'active' } : row);
  });
}

async function seek(
  db: Kysely<Database>,
  calendar: Calendar,
  all: readonly SiteNodeState[],
  { usable, count }: Eligible,
  { now, startsAt, endsAt, gapMs }: Span,
  preemptBelow: number | undefined,
): Promise<DisplacingRoom | undefined> {
  const nodes = usable.filter((node) => startsAt > now || node.isReady).map((node) => node.name);
  const request = { nodes, count, from: startsAt, busyUntil: endsAt + gapMs, now };
  const draft = new Draft(calendar);
  const room = await seekRoom(db, draft, all, request);
  if (room) return { ...room, displaced: [] };
  if (preemptBelow === undefined || nodes.length < count) return undefined;
  return seekByDisplacing(db, draft, all, { ...request, priority: preemptBelow });
}

function noRoom(calendar: Calendar, choice: Eligible, span: Span): InfrabedError {
  const { now, startsAt, endsAt, gapMs } = span;
  const isNow = startsAt <= now;
  const { count, usable, isByName } = choice;
  const able = usable.filter((node) => !isNow || node.isReady).map((node) => node.name);
  const free = calendar.freeNodes(able, startsAt, endsAt + gapMs);
  const earliest = earliestStart(calendar, choice, now, endsAt + gapMs - startsAt, gapMs);
  const taken = usable.filter((node) => !free.includes(node.name));
  const which = isByName
    ? `${taken.map((node) => node.name).join(', ')} ${taken.length === 1 ? 'is' : 'are'} not free from ${iso(startsAt)} to ${iso(endsAt)}`
    : `${plural(count)} wanted from ${iso(startsAt)} to ${iso(endsAt)}, and ${String(free.length)} of ${String(usable.length)} are free for all of it`;
  const states = isNow && taken.length > 0 ? ` (${countStates(taken)})` : '';
  return new InfrabedError('IB_NOT_ENOUGH_NODES', `${which}${states}, cleaning afterwards included.`, {
    hint:
      earliest === null
        ? 'Ask for fewer nodes.'
        : `The earliest start for this is ${iso(earliest)}; "infrabed slots" shows more.`,
    details: { wanted: count, free: free.length, earliest },
  });
}

async function insertRow(
  db: Kysely<Database>,
  lease: { site: string; request: ReserveRequest; span: Span; priority: number; owner: string },
): Promise<LeaseRow> {
  const { site, request, span, priority, owner } = lease;
  const row: LeaseRow = {
    id: await newLeaseId(db, span.now),
    owner,
    purpose: request.purpose,
    site,
    wanted: JSON.stringify(withFullNames(request.nodes, site)),
    own: 0,
    priority,
    generation: await nextGeneration(db),
    starts_at: span.startsAt,
    ends_at: span.endsAt,
    ended_at: null,
    end_reason: null,
    state: 'reserved',
    controller: null,
    created_at: span.now,
  };
  await db.insertInto('leases').values(row).execute();
  return row;
}

function withFullNames(wanted: Wanted, site: string): Wanted {
  if (!('names' in wanted)) return wanted;
  return { names: wanted.names.map((name) => (name.includes('/') ? name : `${site}/${name}`)) };
}
