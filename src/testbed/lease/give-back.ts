/** Giving back a person's lease. */
import type { Actor } from '../../core/actor.js';
import { recordChange } from '../../record/store/changes.js';
import { assertMayChange, forOther } from './ground.js';
import type { Ground } from './ground.js';
import { assertNotInHand } from './hold.js';
import { giveNodesBack } from './lease.js';
import { assertNoCluster, assertNotEnded, assertUnused, endRow, leaseRow } from './rows.js';
import { viewOf } from './view.js';
import type { LeaseView } from './view.js';

/**
 * Gives a lease back: a reservation that has not begun is cancelled, an active lease with nothing on it ends.
 * @throws InfrabedError IB_LEASE_UNKNOWN, IB_NOT_ALLOWED, IB_LEASE_ENDED, IB_LEASE_CONFLICT while a cluster stands on
 *   it or a living controller has it in hand.
 */
export async function giveBackLease(ground: Ground, id: string, actor: Actor): Promise<LeaseView> {
  const { store, clock } = ground;
  return store.db.transaction().execute(async (db) => {
    const row = await leaseRow(db, id);
    assertMayChange(actor, row);
    assertNotEnded(row);
    const reason = row.state === 'reserved' ? 'cancelled' : 'released';
    if (row.state === 'active') {
      await assertNotInHand({ db }, row, null, clock);
      await assertNoCluster(db, row);
      await assertUnused(db, id, ', then release it');
      await giveNodesBack(db, row, { clock, actor });
    }
    await endRow(db, row, reason, clock);
    await recordChange(db, clock, {
      actor,
      kind: `lease.${reason}`,
      subject: id,
      detail: forOther(actor, row.owner),
    });
    return viewOf(db, await leaseRow(db, id));
  });
}
