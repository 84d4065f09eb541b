/** What reservations are made on, who asks for nodes how, and the time that counts. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import { mayChange } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import type { Settings } from '../../core/settings.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';

export interface Ground {
  store: Store;
  settings: Settings;
  clock: Clock;
}

/** That many nodes with all of these tags, or exactly these (`local/n01`, or `n01` within the site). */
export type Wanted =
  { count: number; tags?: readonly string[]; backend?: string } | { names: readonly string[] };

/** How far the clock may be behind the latest time seen: a step of a time server, not somebody's mistake. */
const toleranceMs = 60_000;

/**
 * The time that counts for reservations: never earlier than the latest that the store has seen, which it also writes
 * down. Call it inside the transaction that uses it.
 * @throws InfrabedError IB_CLOCK_BACK when the clock is more than a minute behind.
 */
export async function seeTime(db: Kysely<Database>, clock: Clock): Promise<number> {
  const now = clock.now();
  const seen = await latestTime(db);
  if (seen - now > toleranceMs) {
    throw new InfrabedError(
      'IB_CLOCK_BACK',
      `The clock shows ${iso(now)}, but the store has already seen ${iso(seen)}.`,
      {
        hint: 'Set the clock right; or, if the earlier time is right, let an operator accept it: "infrabed clock accept".',
        details: { now, seen },
      },
    );
  }
  if (now <= seen) return seen;
  await db
    .insertInto('marks')
    .values({ key: 'clock', value: now })
    .onConflict((conflict) => conflict.column('key').doUpdateSet({ value: now }))
    .execute();
  return now;
}

async function latestTime(db: Kysely<Database>): Promise<number> {
  const row = await db.selectFrom('marks').select('value').where('key', '=', 'clock').executeTakeFirst();
  return row?.value ?? 0;
}

/**
 * An operator says that the clock is right although it went back. Bookings that are over by the states of their leases,
 * but lie ahead of the new time, no longer keep their nodes from anybody.
 * @throws InfrabedError IB_NOT_ALLOWED.
 */
export async function acceptClock(ground: Ground, actor: Actor): Promise<{ before: number; now: number }> {
  if (actor.role !== 'operator') throw notAllowed('The clock is accepted by an operator.');
  return ground.store.db.transaction().execute(async (db) => {
    const before = await latestTime(db);
    const now = ground.clock.now();
    await db
      .insertInto('marks')
      .values({ key: 'clock', value: now })
      .onConflict((conflict) => conflict.column('key').doUpdateSet({ value: now }))
      .execute();
    await db
      .deleteFrom('bookings')
      .where('busy_until', '>', now)
      .where('lease', 'in', (over) => over.selectFrom('leases').select('id').where('state', '=', 'ended'))
      .execute();
    await recordChange(db, ground.clock, {
      actor,
      kind: 'clock.accepted',
      subject: 'clock',
      detail: { before, now },
    });
    return { before, now };
  });
}

export function notAllowed(sentence: string, hint?: string): InfrabedError {
  return new InfrabedError('IB_NOT_ALLOWED', sentence, hint === undefined ? {} : { hint });
}

/** @throws InfrabedError IB_NOT_ALLOWED unless the lease is the actor's own or the actor an operator. */
export function assertMayChange(actor: Actor, lease: { id: string; owner: string }): void {
  if (mayChange(actor, lease.owner)) return;
  throw notAllowed(
    `The lease ${lease.id} belongs to ${lease.owner}.`,
    'Ask its owner, or an operator. "infrabed lease list" shows your own.',
  );
}

/** Whose it is, where that is not who changes it: the record shows an operator's hand in another's lease. */
export function forOther(actor: Actor, owner: string): Record<string, unknown> {
  return actor.name === owner ? {} : { owner, by: actor.role };
}

/** A time for a sentence. */
export function iso(timeMs: number): string {
  return new Date(timeMs).toISOString().replace('.000Z', 'Z');
}

export function hours(durationMs: number): string {
  return `${String(Math.round(durationMs / 36_000) / 100)} h`;
}
