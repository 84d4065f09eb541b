/** Handing a lease on to another user. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import { invalid } from './eligible.js';
import { assertMayChange, forOther } from './ground.js';
import type { Ground } from './ground.js';
import { assertNotInHand } from './hold.js';
import { checkLimits } from './limits.js';
import { assertNotEnded, bookedNodes, leaseRow, nextGeneration } from './rows.js';
import { viewOf } from './view.js';
import type { LeaseView } from './view.js';

/**
 * Hands a lease on to another user, under a new generation.
 * @throws InfrabedError IB_LEASE_UNKNOWN, IB_NOT_ALLOWED, IB_LEASE_ENDED, IB_USER_UNKNOWN, IB_LEASE_LIMIT of the new
 *   owner, IB_LEASE_CONFLICT while a living controller has it in hand.
 */
export async function transferLease(
  ground: Ground,
  id: string,
  newOwner: string,
  actor: Actor,
): Promise<LeaseView> {
  const { store, clock, settings } = ground;
  return store.db.transaction().execute(async (db) => {
    const row = await leaseRow(db, id);
    assertMayChange(actor, row);
    assertNotEnded(row);
    await assertKnown(db, newOwner, actor);
    if (newOwner === row.owner)
      throw invalid(`The lease ${id} belongs to ${newOwner} already.`, 'Name another user.');
    await assertNotInHand({ db }, row, null, clock);
    if (row.own === 0) {
      const nodes = (await bookedNodes(db, id)).length;
      const share = { nodes, startsAt: row.starts_at, endsAt: row.ends_at };
      await checkLimits(db, settings, { owner: newOwner, now: clock.now(), except: id, ...share });
    }
    const generation = await nextGeneration(db);
    await db.updateTable('leases').set({ owner: newOwner, generation }).where('id', '=', id).execute();
    await recordChange(db, clock, {
      actor,
      kind: 'lease.transferred',
      subject: id,
      detail: { from: row.owner, to: newOwner, generation, ...forOther(actor, row.owner) },
    });
    return viewOf(db, { ...row, owner: newOwner, generation });
  });
}

/** Where users are written down, a lease goes to one of them, or to who asks; without any, to whoever is named. */
async function assertKnown(db: Kysely<Database>, name: string, actor: Actor): Promise<void> {
  if (name.trim() === '') throw invalid('No new owner is named.', 'Name a user: "infrabed user list".');
  if (name === actor.name) return;
  const users = await db.selectFrom('users').select('name').where('revoked_at', 'is', null).execute();
  if (users.length === 0 || users.some((user) => user.name === name)) return;
  throw new InfrabedError('IB_USER_UNKNOWN', `There is no user "${name}".`, {
    hint: `There are: ${users.map((user) => user.name).join(', ')}.`,
  });
}
