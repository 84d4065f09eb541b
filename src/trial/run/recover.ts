/**
 * What the next start does about controllers that died: their trials end, their clusters are removed, their leases
 * are given back or, where something could not be removed, quarantined. It says what it found.
 */
import { existsSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { redactor } from '../../core/log.js';
import { runtimeDir } from '../../core/paths.js';
import { BundleWriter } from '../../record/bundle/writer.js';
import { bundleFiles, bundleVersion, type Manifest } from '../../record/bundle/schema.js';
import { readLedger } from '../../record/ledger/reader.js';
import type { SiteKey } from '../../record/ledger/site-key.js';
import { LedgerWriter } from '../../record/ledger/writer.js';
import { controllerIsAlive, deadControllers, unregisterController } from '../../record/store/controllers.js';
import type { Selectable } from 'kysely';
import type { TrialsTable } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { removeStaleKeys } from '../../testbed/cluster/create.js';
import type { Backend } from '../../testbed/driver/driver.js';
import { withClusterLock } from '../../testbed/lease/cluster-lock.js';
import { abandonedLeases, quarantineLease, releaseLease } from '../../testbed/lease/lease.js';
import { loadTask } from '../task/load.js';
import { removeEmptyRooms } from '../agent/limits.js';
import { afterCrash } from './phases.js';

export interface RecoveryOptions {
  store: Store;
  backend: Backend;
  stateDir: string;
  siteKey: SiteKey;
  clock: Clock;
  version: string;
}

export interface Recovery {
  /** Trials that were ended here, with the phase their controller died in. */
  trials: { trial: string; phase: string; ended: 'infra_error' | 'finish' }[];
  removed: string[];
  failed: string[];
}

/** Takes over from dead controllers; two starts at once do it one after the other. */
export async function recover(options: RecoveryOptions): Promise<Recovery> {
  return withClusterLock(options.stateDir, async () => {
    const recovery: Recovery = { trials: [], removed: [], failed: [] };
    const dead = await deadControllers(options.store);
    for (const trial of await abandonedTrials(options.store)) await endTrial(trial, options, recovery);
    await removeClusters(options, recovery);
    await endLeases(options, recovery);
    await removeFolders(options, recovery);
    for (const id of dead) await unregisterController(options.store, id);
    return recovery;
  });
}

async function abandonedTrials(store: Store): Promise<Selectable<TrialsTable>[]> {
  const running = await store.db.selectFrom('trials').selectAll().where('state', '=', 'running').execute();
  const alive = await Promise.all(running.map((trial) => controllerIsAlive(store, trial.controller)));
  return running.filter((_trial, index) => !alive[index]);
}

async function endTrial(
  trial: Selectable<TrialsTable>,
  options: RecoveryOptions,
  recovery: Recovery,
): Promise<void> {
  const { store, clock } = options;
  const last = await store.db
    .selectFrom('phases')
    .select('phase')
    .where('trial', '=', trial.id)
    .orderBy('id', 'desc')
    .executeTakeFirst();
  const phase = last?.phase ?? 'lease';
  const ended = afterCrash(last?.phase);
  recovery.trials.push({ trial: trial.id, phase, ended });
  if (ended === 'infra_error') {
    try {
      await closeRecord(trial, phase, options);
    } catch (error) {
      recovery.failed.push(`The record of ${trial.id} could not be closed: ${messageOf(error)}`);
    }
  }
  // A sealed bundle that was never graded keeps its outcome open: "infrabed trial regrade" concludes from it.
  await store.db
    .updateTable('trials')
    .set({
      state: 'ended',
      ended_at: clock.now(),
      ...(ended === 'infra_error' ? { outcome: 'infra_error', reward: 0 } : {}),
    })
    .where('id', '=', trial.id)
    .execute();
}

/** Ledger and bundle of an interrupted trial end with a record that says so, sealed by the same key. */
async function closeRecord(
  trial: Selectable<TrialsTable>,
  phase: string,
  options: RecoveryOptions,
): Promise<void> {
  const { clock, siteKey } = options;
  if (!existsSync(trial.bundle) || existsSync(join(trial.bundle, bundleFiles.manifest))) return;
  const ledgerFile = join(trial.bundle, bundleFiles.ledger);
  if (!existsSync(join(trial.bundle, bundleFiles.seal))) {
    const ledger = await LedgerWriter.open(ledgerFile, { trial: trial.id, clock, redactor });
    ledger.record({ kind: 'trial.interrupted', actor: 'controller', node: null, payload: { phase } });
    ledger.record({ kind: 'trial.end', actor: 'controller', node: null, payload: { ending: 'infra_error' } });
    await ledger.seal(siteKey);
    await ledger.close();
  }
  const bundle = await BundleWriter.resume(trial.bundle);
  await bundle.finish(await interruptedManifest(trial, phase, options));
}

async function interruptedManifest(
  trial: Selectable<TrialsTable>,
  phase: string,
  options: RecoveryOptions,
): Promise<Manifest> {
  return {
    version: bundleVersion,
    infrabed: options.version,
    trial: trial.id,
    task: { name: trial.task, hash: await bundledTaskHash(trial), admitted: false },
    agent: trial.agent,
    agentKind: trial.agent.split(':')[0] ?? trial.agent,
    attempt: trial.attempt,
    startedAt: trial.started_at,
    endedAt: options.clock.now(),
    backend: options.backend.name,
    imageHash: '',
    network: await bundledNetwork(trial),
    nonce: '',
    nodes: [],
    ending: 'infra_error',
    error: { code: 'IB_INTERRUPTED', message: `The controller died in the phase ${phase}.` },
    timedOut: false,
    agentExit: null,
    coverage: [`The controller died in the phase ${phase}; nothing after that is on record.`],
    timings: {},
    gateSeconds: {},
    versions: { node: process.version },
  };
}

/** What the ledger's first record says; without one nothing had begun, and no agent had any network. */
async function bundledNetwork(trial: Selectable<TrialsTable>): Promise<Manifest['network']> {
  for await (const { kind, payload } of readLedger(join(trial.bundle, bundleFiles.ledger))) {
    if (kind === 'trial.begin') return payload['network'] === 'host' ? 'host' : 'none';
  }
  return 'none';
}

async function bundledTaskHash(trial: Selectable<TrialsTable>): Promise<string> {
  try {
    return (await loadTask(join(trial.bundle, bundleFiles.task))).hash;
  } catch (error) {
    // Killed while the package was being copied: the bundle has no whole task, and says so by an empty hash.
    if (isInfrabedError(error)) return '';
    throw error;
  }
}

async function removeClusters(
  { store, backend, stateDir }: RecoveryOptions,
  recovery: Recovery,
): Promise<void> {
  const rows = await store.db
    .selectFrom('clusters')
    .innerJoin('leases', 'leases.id', 'clusters.lease')
    .select(['clusters.id', 'clusters.kept', 'leases.controller'])
    .execute();
  const keep = new Set<string>();
  for (const row of rows) {
    if (row.kept === 1 || (await controllerIsAlive(store, row.controller))) keep.add(row.id);
  }
  const report = await backend.sweep(keep);
  recovery.removed.push(...report.removed);
  recovery.failed.push(...report.failed);
  if (report.failed.length > 0) return;
  for (const id of await removeStaleKeys(stateDir, keep)) recovery.removed.push(`Key of the cluster ${id}.`);
  const gone = rows.map((row) => row.id).filter((id) => !keep.has(id));
  if (gone.length > 0) await store.db.deleteFrom('clusters').where('id', 'in', gone).execute();
}

async function endLeases({ store }: RecoveryOptions, recovery: Recovery): Promise<void> {
  for (const lease of await abandonedLeases(store)) {
    if (recovery.failed.length === 0) {
      await releaseLease(store, lease);
      recovery.removed.push(`Lease ${lease.id} (${lease.purpose}).`);
    } else {
      const message = `What ran under the lease ${lease.id} could not be removed.`;
      await store.db.deleteFrom('clusters').where('lease', '=', lease.id).execute();
      await quarantineLease(store, lease, { code: 'leftovers', message });
      recovery.failed.push(`${message} Its nodes are quarantined.`);
    }
  }
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
    ...recovery.trials.map(({ trial, phase, ended }) =>
      ended === 'finish'
        ? `The controller of ${trial} died in the phase ${phase}, after its bundle was sealed: cleaned up. "infrabed trial regrade ${trial}" grades it.`
        : `The controller of ${trial} died in the phase ${phase}: the trial ended as infra_error.`,
    ),
    ...recovery.removed.map((what) => `Removed: ${what}`),
    ...recovery.failed,
  ];
}

/** @throws InfrabedError IB_NODE_FAILED when something could not be removed. */
export function assertRecovered(recovery: Recovery): void {
  if (recovery.failed.length === 0) return;
  throw new InfrabedError('IB_NODE_FAILED', recovery.failed.join(' '), {
    hint: 'End what holds it, then run "infrabed sweep".',
  });
}
