/** Begins a reserved lease: its nodes are lent, and one that is not ready is replaced by another where that can be. */
import type { Kysely } from 'kysely';
import { controllerActor } from '../../core/actor.js';
import type { Actor } from '../../core/actor.js';
import { postNotice } from '../../record/notice/post.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import { transition } from '../node/transition.js';
import { Draft } from './draft.js';
import { nodesOfSite } from './eligible.js';
import type { SiteNodeState } from './eligible.js';
import type { Ground } from './ground.js';
import { applyMoves, parseWanted, seekRoom } from './make-room.js';
import { refreshCalendar } from './refresh.js';
import { bookedNodes } from './rows.js';
import type { LeaseRow } from './rows.js';

/** `delayed`: its nodes are not ready, to be tried again. `other`: it is not due, or not reserved any more. */
export type Begun = 'begun' | 'delayed' | 'other';

/** Begins a lease whose start has come. */
export async function beginLease(ground: Ground, id: string): Promise<Begun> {
  return ground.store.db.transaction().execute(async (db) => {
    const row = await db.selectFrom('leases').selectAll().where('id', '=', id).executeTakeFirst();
    const now = ground.clock.now();
    if (row?.state !== 'reserved' || now < row.starts_at || now >= row.ends_at) return 'other';
    const nodes = await readyNodes(ground, db, row, now);
    if (nodes === undefined) {
      await tellDelay(ground, db, row);
      return 'delayed';
    }
    await lend(ground, db, row, nodes, controllerActor);
    return 'begun';
  });
}

/** Lends the nodes of a lease, all of them ready and booked. Call it inside a transaction. */
export async function lend(
  { clock }: Ground,
  db: Kysely<Database>,
  row: LeaseRow,
  nodes: readonly string[],
  actor: Actor,
): Promise<void> {
  const { id, owner, purpose, generation } = row;
  await db.updateTable('leases').set({ state: 'active' }).where('id', '=', id).execute();
  await db.updateTable('bookings').set({ pinned: 1 }).where('lease', '=', id).execute();
  for (const node of nodes) await transition(db, node, 'leased', { lease: { id, generation }, actor, clock });
  await recordChange(db, clock, { actor, kind: 'lease.started', subject: id, detail: { nodes } });
  await postNotice(db, clock, {
    kind: 'lease.started',
    subject: id,
    occasion: row.starts_at,
    payload: { lease: id, owner, purpose, nodes, endsAt: row.ends_at },
  });
}

/** The nodes it begins with, bookings changed where one had to be replaced; undefined when there are not enough. */
async function readyNodes(
  ground: Ground,
  db: Kysely<Database>,
  row: LeaseRow,
  now: number,
): Promise<string[] | undefined> {
  const all = await nodesOfSite(db, row.site);
  const booked = await bookedNodes(db, row.id);
  const isReady = new Set(all.filter((node) => node.isReady).map((node) => node.name));
  const missing = booked.filter((name) => !isReady.has(name));
  if (missing.length === 0) return booked;
  const wanted = parseWanted(row.wanted);
  if ('names' in wanted) return undefined;
  const kept = booked.filter((name) => isReady.has(name));
  const others = fittingReady(all, wanted).filter((name) => !booked.includes(name));
  const calendar = await refreshCalendar(ground.store, db);
  const [old] = calendar.overlapping(missing[0] ?? '', row.starts_at, row.ends_at);
  const busyUntil = old?.lease === row.id ? old.busyUntil : row.ends_at;
  const request = { nodes: others, count: missing.length, from: now, busyUntil, now };
  const room = await seekRoom(db, new Draft(calendar), all, request);
  if (room === undefined) return undefined;
  await applyMoves(db, room.draft.moves(), { actor: controllerActor, clock: ground.clock, because: row.id });
  await replace(ground, db, row, { missing, by: room.nodes, now, busyUntil });
  return [...kept, ...room.nodes].sort();
}

/** Ready nodes that fit a request by count. */
function fittingReady(
  all: readonly SiteNodeState[],
  { tags = [], backend }: { tags?: readonly string[]; backend?: string },
): string[] {
  return all
    .filter((node) => node.isReady && (backend === undefined || node.backend === backend))
    .filter((node) => tags.every((tag) => node.tags.includes(tag)))
    .map((node) => node.name);
}

async function replace(
  { clock }: Ground,
  db: Kysely<Database>,
  row: LeaseRow,
  change: { missing: readonly string[]; by: readonly string[]; now: number; busyUntil: number },
): Promise<void> {
  const { missing, by, now, busyUntil } = change;
  await db.deleteFrom('bookings').where('lease', '=', row.id).where('node', 'in', missing).execute();
  for (const node of by) {
    // From now, not from the booked start: until now somebody else may have had the node.
    await db
      .insertInto('bookings')
      .values({ lease: row.id, node, starts_at: now, ends_at: row.ends_at, busy_until: busyUntil, pinned: 1 })
      .execute();
  }
  await recordChange(db, clock, {
    actor: controllerActor,
    kind: 'lease.rebound',
    subject: row.id,
    detail: {
      moved: missing.map((from, index) => ({ from, to: by[index] ?? null })),
      because: 'not available',
    },
  });
}

async function tellDelay({ clock }: Ground, db: Kysely<Database>, row: LeaseRow): Promise<void> {
  const { id, owner, purpose } = row;
  const told = await db
    .selectFrom('changes')
    .select('id')
    .where('subject', '=', id)
    .where('kind', '=', 'lease.delayed')
    .executeTakeFirst();
  if (told !== undefined) return;
  await recordChange(db, clock, { actor: controllerActor, kind: 'lease.delayed', subject: id });
  await postNotice(db, clock, {
    kind: 'lease.delayed',
    subject: id,
    occasion: row.starts_at,
    payload: { lease: id, owner, purpose, startsAt: row.starts_at },
  });
}
