/** Leases past their end and grace with something on them still: taken over by force, whoever had them in hand. */
import { join } from 'node:path';
import { messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import { withLock } from '../../core/lock.js';
import { registerController, unregisterController } from '../../record/store/controllers.js';
import { endDue, type DueLease } from '../../testbed/lease/due.js';
import { clearAway } from '../../testbed/lease/kept-cluster.js';
import { quarantineLease, releaseLease, seizeLease, type Lease } from '../../testbed/lease/lease.js';
import { closeRecord, type BrokenOff } from './close-record.js';
import { endTrial } from './end-trial.js';
import type { InterruptedTrial } from './interrupted.js';
import { clustersOf, proofsOf } from './clusters.js';
import type { Recovery, RecoveryOptions } from './recovery.js';

/** One start after the other: a second one must not take from the first what that has just taken. */
export async function endOverdue(options: RecoveryOptions, recovery: Recovery): Promise<void> {
  const { store, settings, clock, stateDir } = options;
  const ground = { store, settings, clock };
  if ((await endDue(ground)).overdue.length === 0) return;
  await withLock(join(stateDir, 'overdue.lock'), async () => {
    const { overdue } = await endDue(ground);
    if (overdue.length === 0) return;
    const controller = await registerController(store, clock);
    for (const due of overdue) await takeOver(due, controller, options, recovery);
    await unregisterController(store, controller);
  });
}

async function takeOver(
  due: DueLease,
  controller: string,
  options: RecoveryOptions,
  recovery: Recovery,
): Promise<void> {
  const { store, clock, backend } = options;
  // The trial first: from here on its controller writes nothing any more, and what it holds open nobody sees.
  const trial = await seizeTrial(due, controller, options);
  const lease = await seizeLease(store, due.id, controller, { clock });
  failpoint('overdue.seized');
  const brokenOff: BrokenOff = {
    ending: 'cancelled',
    error: {
      code: 'IB_LEASE_ENDED',
      message: `The lease ${due.id} ended, and what ran on it did not end in time.`,
    },
  };
  try {
    for (const id of due.clusters) await backend.fence(id, lease.generation);
    if (trial !== undefined) await closeRecord(trial, brokenOff, { ...options, backendName: backend.name });
    for (const id of due.clusters) await clearAway(options, id);
    await release(lease, options);
    recovery.removed.push(`What was left on the lease ${due.id}, which had ended.`);
  } catch (error) {
    const message = `What ran under the lease ${due.id} could not be removed: ${messageOf(error)}`;
    await quarantineLease(store, lease, { code: 'leftovers', message }, { clock });
    recovery.failed.push(`${message} Its nodes are quarantined.`);
  }
  if (trial === undefined) return;
  await endTrial(options, trial.id, { outcome: brokenOff.ending, reward: 0 });
  recovery.trials.push({ trial: trial.id, phase: null, ended: 'cancelled' });
}

async function seizeTrial(
  due: DueLease,
  controller: string,
  { store }: RecoveryOptions,
): Promise<InterruptedTrial | undefined> {
  const running = store.db.updateTable('trials').where('lease', '=', due.id).where('state', '=', 'running');
  await running.set({ controller }).execute();
  return store.db
    .selectFrom('trials')
    .selectAll()
    .where('lease', '=', due.id)
    .where('state', '=', 'running')
    .executeTakeFirst();
}

async function release(lease: Lease, { store, backend, clock }: RecoveryOptions): Promise<void> {
  const clusters = await clustersOf(store, lease.id);
  const clean = await proofsOf(clusters, backend);
  const removed = clusters.map(({ id }) => id);
  await releaseLease(store, lease, { clean, removed, clock, reason: 'expired' });
}
