/** The record of who changed what: one row a change, written in the transaction that makes it. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import type { Database } from './schema.js';

export interface Change {
  actor: Pick<Actor, 'name'>;
  /** Dotted: `node.quarantined`, `lease.extended`. */
  kind: string;
  /** Name or id of what was changed. */
  subject: string;
  /** JSON-able fields; secrets never go in here. */
  detail?: Record<string, unknown>;
}

export async function recordChange(db: Kysely<Database>, clock: Clock, change: Change): Promise<void> {
  const { actor, kind, subject, detail = {} } = change;
  await db
    .insertInto('changes')
    .values({ at: clock.now(), actor: actor.name, kind, subject, detail: JSON.stringify(detail) })
    .execute();
}
