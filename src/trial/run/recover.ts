/**
 * What every start does first about controllers that died: trials that cannot be gone on with end, clusters that nobody
 * answers for are removed, their leases given back or, where something could not be removed, quarantined. It says what
 * it found. Trials that can be gone on with are left as they are to `resumeTrial`.
 */
import { existsSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import { runtimeDir } from '../../core/paths.js';
import { controllerIsAlive, deadControllers, unregisterController } from '../../record/store/controllers.js';
import type { Store } from '../../record/store/store.js';
import { removeStaleKeys } from '../../testbed/cluster/create.js';
import { withClusterLock } from '../../testbed/lease/cluster-lock.js';
import { handle } from '../../testbed/lease/handle.js';
import { abandonedLeases, putDownLease, quarantineLease, releaseLease } from '../../testbed/lease/lease.js';
import { removeEmptyRooms } from '../agent/limits.js';
import { closeRecord } from './close-record.js';
import { clustersOf, forgetClusters, proofsOf, type StandingCluster } from './clusters.js';
import { endTrial } from './end-trial.js';
import { interruptionOf, type InterruptedTrial } from './interrupted.js';
import { endOverdue } from './overdue.js';
import type { Recovery, RecoveryOptions } from './recovery.js';

export type { Recovery, RecoveryOptions } from './recovery.js';

/** Takes over from dead controllers; two starts at once do it one after the other. */
export async function recover(options: RecoveryOptions): Promise<Recovery> {
  const recovery: Recovery = { trials: [], resumable: [], removed: [], failed: [] };
  await endOverdue(options, recovery);
  return withClusterLock(options.stateDir, async () => {
    const dead = await deadControllers(options.store, options.clock);
    for (const trial of await abandonedTrials(options)) await decide(trial, options, recovery);
    // What still runs is either a living controller's or can be gone on with: its nodes are not ours to touch.
    const spared = await leasesInUse(options.store);
    const gone = await removeClusters(spared, options, recovery);
    await endLeases(spared, gone, options, recovery);
    await removeFolders(options, recovery);
    for (const id of dead) await unregisterController(options.store, id);
    return recovery;
  });
}

/** Trials that nobody who lives has in hand. */
export async function abandonedTrials({
  store,
  clock,
}: Pick<RecoveryOptions, 'store' | 'clock'>): Promise<InterruptedTrial[]> {
  const running = await store.db.selectFrom('trials').selectAll().where('state', '=', 'running').execute();
  const alive = await Promise.all(running.map((trial) => controllerIsAlive(store, trial.controller, clock)));
  return running.filter((_trial, index) => !alive[index]);
}

async function decide(trial: InterruptedTrial, options: RecoveryOptions, recovery: Recovery): Promise<void> {
  const { phase, what } = await interruptionOf(options.store, trial);
  if (what === 'resume' && (await leaseLasts(trial, options))) {
    recovery.resumable.push({ trial: trial.id, phase });
    return;
  }
  const ended = what === 'finish' ? 'finish' : 'infra_error';
  recovery.trials.push({ trial: trial.id, phase, ended });
  const error = { code: 'IB_INTERRUPTED', message: `The controller died in the phase ${phase}.` };
  try {
    await closeRecord(
      trial,
      { ending: 'infra_error', error },
      { ...options, backendName: options.backend.name },
    );
  } catch (failure) {
    recovery.failed.push(`The record of ${trial.id} could not be closed: ${messageOf(failure)}`);
  }
  failpoint('recover.record');
  // A sealed bundle that was never graded keeps its outcome open: whoever resumes concludes from it.
  await endTrial(options, trial.id, ended === 'finish' ? null : { outcome: 'infra_error', reward: 0 });
}

/** Past its end a lease's nodes are somebody else's: nothing is gone on with on them. */
async function leaseLasts({ lease }: InterruptedTrial, { store, clock }: RecoveryOptions): Promise<boolean> {
  const row = await store.db
    .selectFrom('leases')
    .select(['state', 'ends_at'])
    .where('id', '=', lease ?? '')
    .executeTakeFirst();
  return row?.state === 'active' && clock.now() < row.ends_at;
}

async function leasesInUse(store: Store): Promise<Set<string>> {
  const rows = await store.db.selectFrom('trials').select('lease').where('state', '=', 'running').execute();
  return new Set(rows.flatMap(({ lease }) => (lease === null ? [] : [lease])));
}

async function removeClusters(
  spared: ReadonlySet<string>,
  { store, backend, stateDir, clock }: RecoveryOptions,
  recovery: Recovery,
): Promise<StandingCluster[]> {
  const clusters = await clustersOf(store);
  const keep = new Set<string>();
  for (const { id, lease, isKept, controller } of clusters) {
    const isInUse = spared.has(lease) || (await controllerIsAlive(store, controller, clock));
    if (isKept || isInUse) keep.add(id);
  }
  const report = await backend.sweep(keep);
  failpoint('recover.swept');
  recovery.removed.push(...report.removed);
  recovery.failed.push(...report.failed);
  for (const id of await removeStaleKeys(stateDir, keep)) recovery.removed.push(`Key of the cluster ${id}.`);
  return clusters.filter(({ id }) => !keep.has(id));
}

async function endLeases(
  spared: ReadonlySet<string>,
  gone: readonly StandingCluster[],
  options: RecoveryOptions,
  recovery: Recovery,
): Promise<void> {
  const { store, backend, clock } = options;
  for (const lease of await abandonedLeases(store, clock)) {
    if (spared.has(lease.id)) continue;
    const clusters = gone.filter((cluster) => cluster.lease === lease.id);
    const removed = clusters.map(({ id }) => id);
    try {
      const clean = await proofsOf(clusters, backend);
      if (lease.own === 1) await releaseLease(store, lease, { clean, removed, clock });
      else await putDownLease(store, handle(lease, []), clean, { clock, removed });
    } catch (error) {
      const message = `What ran under the lease ${lease.id} could not be removed: ${messageOf(error)}`;
      await quarantineLease(store, lease, { code: 'leftovers', message }, { clock });
      recovery.failed.push(`${message} Its nodes are quarantined.`);
      continue;
    }
    recovery.removed.push(
      lease.own === 1 ? `Lease ${lease.id} (${lease.purpose}).` : `What stood on the lease ${lease.id}.`,
    );
  }
  // Of a lease that had ended already: only the row was left.
  await forgetClusters(store, gone);
}

/** Work folders, sockets and control groups of trials that run no more, and work folders of clusters that are gone. */
async function removeFolders({ store, stateDir }: RecoveryOptions, recovery: Recovery): Promise<void> {
  const workDir = join(stateDir, 'work');
  // Looked at before the store: what runs was written down there before it made a folder.
  const work = await namesIn(workDir);
  const sockets = await namesIn(runtimeDir);
  const rows = await store.db.selectFrom('trials').select(['id', 'state']).execute();
  const clusters = await store.db.selectFrom('clusters').select('id').execute();
  const states = new Map(rows.map((row) => [row.id, row.state]));
  const inUse = new Set([
    ...rows.filter((row) => row.state === 'running').map((row) => row.id),
    ...clusters.map((row) => row.id),
  ]);
  for (const folder of [
    ...work.filter((name) => !inUse.has(name)).map((name) => join(workDir, name)),
    // Those that this state folder's store does not know belong to another one.
    ...sockets.filter((name) => states.get(name) === 'ended').map((name) => join(runtimeDir, name)),
  ]) {
    await rm(folder, { recursive: true, force: true });
    recovery.removed.push(`Folder ${folder}.`);
  }
  for (const name of await removeEmptyRooms((room) => states.get(room) !== 'ended')) {
    recovery.removed.push(`Control group of the agent of ${name}.`);
  }
}

async function namesIn(folder: string): Promise<string[]> {
  return existsSync(folder) ? readdir(folder) : [];
}

/** What recovery found, one sentence a line; empty when there was nothing. */
export function describeRecovery(recovery: Recovery): string[] {
  return [
    ...recovery.resumable.map(
      ({ trial, phase }) =>
        `The controller of ${trial} died in the phase ${phase}: "infrabed resume" goes on with it.`,
    ),
    ...recovery.trials.map(({ trial, phase, ended }) => describeEnd(trial, phase, ended)),
    ...recovery.removed.map((what) => `Removed: ${what}`),
    ...recovery.failed,
  ];
}

function describeEnd(
  trial: string,
  phase: string | null,
  ended: Recovery['trials'][number]['ended'],
): string {
  if (phase === null) return `The lease of ${trial} was over, and its controller did not end it: cancelled.`;
  const died = `The controller of ${trial} died in the phase ${phase}`;
  return ended === 'finish'
    ? `${died}, after its bundle was sealed: cleaned up. "infrabed resume" grades it.`
    : `${died}: the trial ended as infra_error.`;
}

/** @throws InfrabedError IB_NODE_FAILED when something could not be removed. */
export function assertRecovered(recovery: Recovery): void {
  if (recovery.failed.length === 0) return;
  throw new InfrabedError('IB_NODE_FAILED', recovery.failed.join(' '), {
    hint: 'End what holds it, then run "infrabed sweep".',
  });
}
