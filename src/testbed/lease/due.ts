/** What time itself brings: reservations begin, leases are warned of their end, and end. Called again and again by a controller. */
import type { Kysely } from 'kysely';
import { controllerActor } from '../../core/actor.js';
import { isInfrabedError } from '../../core/errors.js';
import { postNotice } from '../../record/notice/post.js';
import { recordChange } from '../../record/store/changes.js';
import { controllerIsAlive } from '../../record/store/controllers.js';
import type { Database } from '../../record/store/schema.js';
import { beginLease } from './begin.js';
import type { Ground } from './ground.js';
import { seeTime } from './ground.js';
import { giveNodesBack } from './lease.js';
import { clustersOn, endRow, heldNodes } from './rows.js';
import type { LeaseRow } from './rows.js';

/** A lease past its end with something on it. */
export interface DueLease {
  id: string;
  generation: number;
  owner: string;
  endsAt: number;
  own: boolean;
  controller: string | null;
  clusters: string[];
}

/** Begins reserved leases whose start has come. Returns the ids of those that began, and of those that have to wait. */
export async function beginDue(ground: Ground): Promise<{ begun: string[]; delayed: string[] }> {
  const { store, clock } = ground;
  const rows = await store.db
    .selectFrom('leases')
    .select('id')
    .where('state', '=', 'reserved')
    .where('starts_at', '<=', clock.now())
    .where('ends_at', '>', clock.now())
    // Where nodes are short, who comes first and goes before others chooses first.
    .orderBy('priority', 'desc')
    .orderBy('starts_at')
    .orderBy('created_at')
    .execute();
  const done: { begun: string[]; delayed: string[] } = { begun: [], delayed: [] };
  for (const { id } of rows) {
    const how = await beginLease(ground, id);
    if (how !== 'other') done[how].push(id);
  }
  return done;
}

/** Tells the owners of leases that are about to end, once for each end. Returns the ids of those in their last stretch. */
export async function warnDue({ store, clock, settings }: Ground): Promise<string[]> {
  const now = clock.now();
  const rows = await store.db
    .selectFrom('leases')
    .selectAll()
    .where('state', '=', 'active')
    .where('ends_at', '>', now)
    .where('ends_at', '<=', now + settings.lease.warning_sec * 1000)
    // A command that took nodes for itself is told by its own end; a cluster that it left standing has an owner to tell.
    .where((is) =>
      is.or([
        is('own', '=', 0),
        is('id', 'in', is.selectFrom('clusters').select('lease').where('kept', '=', 1)),
      ]),
    )
    .execute();
  for (const { id, owner, purpose, ends_at: endsAt } of rows) {
    await postNotice(store.db, clock, {
      kind: 'lease.warning',
      subject: id,
      occasion: endsAt,
      payload: { lease: id, owner, purpose, endsAt },
    });
  }
  return rows.map((row) => row.id);
}

/**
 * Ends leases whose end has come, where nothing is on them. Those with something on them are for the caller: `asked`
 * to end in order, `overdue` ones, past their grace period, to be taken over by force.
 */
export async function endDue(
  ground: Ground,
): Promise<{ ended: string[]; asked: DueLease[]; overdue: DueLease[] }> {
  const { store, clock, settings } = ground;
  // The latest time seen is written down here too: it shows a clock that goes back while nobody reserves anything.
  const now = await store.db
    .transaction()
    .execute((db) => seeTime(db, clock))
    .catch((error: unknown) => {
      if (isInfrabedError(error, 'IB_CLOCK_BACK')) return clock.now();
      throw error;
    });
  const rows = await store.db
    .selectFrom('leases')
    .selectAll()
    .where('state', '!=', 'ended')
    .where('ends_at', '<=', now)
    .orderBy('ends_at')
    .execute();
  const due: { ended: string[]; asked: DueLease[]; overdue: DueLease[] } = {
    ended: [],
    asked: [],
    overdue: [],
  };
  for (const { id } of rows) {
    const left = await store.db.transaction().execute((db) => endIfIdle(ground, db, id, now));
    if (left === undefined) due.ended.push(id);
    else if (left !== 'other') {
      const isOverdue = now >= left.endsAt + settings.lease.grace_sec * 1000;
      (isOverdue ? due.overdue : due.asked).push(left);
    }
  }
  return due;
}

/** undefined: it ended. `other`: it was not to be ended any more. Otherwise what is on it. */
async function endIfIdle(
  { clock, store }: Ground,
  db: Kysely<Database>,
  id: string,
  now: number,
): Promise<DueLease | 'other' | undefined> {
  const row = await db.selectFrom('leases').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined || row.state === 'ended' || row.ends_at > now) return 'other';
  if (row.state === 'active') {
    const clusters = await clustersOn(db, id);
    const isTouched = (await heldNodes(db, id)).some((node) => node.state !== 'leased');
    if (
      clusters.length > 0 ||
      isTouched ||
      (await controllerIsAlive({ ...store, db }, row.controller, clock))
    ) {
      return dueLease(row, clusters);
    }
    await giveNodesBack(db, row, { clock, actor: controllerActor });
  }
  await endRow(db, row, 'expired', clock);
  await recordChange(db, clock, { actor: controllerActor, kind: 'lease.expired', subject: id });
  return undefined;
}

function dueLease(row: LeaseRow, clusters: string[]): DueLease {
  const { id, generation, owner, ends_at: endsAt, controller } = row;
  return { id, generation, owner, endsAt, own: row.own === 1, controller, clusters };
}
