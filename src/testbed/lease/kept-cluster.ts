/** Clusters that outlive the process that made them: raised for people who write tasks, found again, and ended. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { newId } from '../../core/ids.js';
import type { IoHost } from '../../core/io.js';
import { nullJournal } from '../../core/journal.js';
import { controllerIsAlive } from '../../record/store/controllers.js';
import type { Store } from '../../record/store/store.js';
import { createCluster, removeKeys } from '../cluster/create.js';
import type { OwnedCluster } from '../cluster/create.js';
import type { Backend } from '../driver/driver.js';
import { provision } from '../provision/provision.js';
import { withClusterLock } from './cluster-lock.js';
import { adoptLease, moveNodes, quarantineLease, releaseLease, takeNodes } from './lease.js';
import type { Lease } from './lease.js';

/** What this file needs of a controller. */
export interface Grounds {
  store: Store;
  backend: Backend;
  stateDir: string;
  /** Id of the controller process. */
  controller: string;
  clock: Clock;
  io: IoHost;
}

export interface RaiseOptions {
  nodeCount: number;
  layers: readonly string[];
  owner: string;
  /** How long it may stand. */
  durationMs: number;
  signal?: AbortSignal;
}

const storedNodesSchema = z.array(
  z.object({ name: z.string(), node: z.string(), roles: z.array(z.string()) }),
);

/** A cluster as the store knows it. */
export interface ClusterEntry {
  id: string;
  lease: string;
  owner: string;
  purpose: string;
  backend: string;
  layers: string[];
  nodes: z.output<typeof storedNodesSchema>;
  /** Outlives its controller. */
  kept: boolean;
  /** The process that answers for it still runs. */
  inUse: boolean;
  createdAt: number;
}

/**
 * Takes nodes, makes a cluster of them (node0, node1, ...), brings the layers onto it and keeps it. What was begun is
 * removed when it fails.
 */
export async function raiseCluster(grounds: Grounds, options: RaiseOptions): Promise<ClusterEntry> {
  const { store, clock, controller } = grounds;
  const { nodeCount, layers, owner } = options;
  const lease = await takeNodes(store, {
    nodes: { count: nodeCount },
    owner,
    purpose: 'cluster up',
    controller,
    backend: grounds.backend.name,
    durationMs: options.durationMs,
    clock,
  });
  const id = newId('c', clock.now());
  const nodes = lease.nodes.map((node, index) => ({
    name: `node${String(index)}`,
    node,
    roles: [] as string[],
  }));
  const createdAt = clock.now();
  const row = {
    id,
    lease: lease.id,
    backend: grounds.backend.name,
    layers: JSON.stringify(layers),
    nodes: JSON.stringify(nodes),
    kept: 0,
    created_at: createdAt,
  };
  await withClusterLock(grounds.stateDir, () => store.db.insertInto('clusters').values(row).execute());
  try {
    const owned = await build(grounds, lease, id, nodes, options);
    await owned.cluster.close();
    await store.db.updateTable('clusters').set({ kept: 1 }).where('id', '=', id).execute();
  } catch (error) {
    await abandon(grounds, lease, id);
    throw error;
  }
  const { purpose } = lease;
  const backend = grounds.backend.name;
  return {
    id,
    lease: lease.id,
    owner,
    purpose,
    backend,
    layers: [...layers],
    nodes,
    kept: true,
    inUse: true,
    createdAt,
  };
}

async function build(
  grounds: Grounds,
  lease: Lease,
  id: string,
  nodes: ClusterEntry['nodes'],
  options: RaiseOptions,
): Promise<OwnedCluster> {
  const { store, backend, stateDir, clock, io } = grounds;
  await moveNodes(store, lease, 'provisioning', { clock });
  const owned = await createCluster({
    backend,
    id,
    generation: lease.generation,
    nodes,
    layers: options.layers,
    stateDir,
    journal: nullJournal,
    io,
    clock,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  const workDir = join(stateDir, 'work', id);
  try {
    await mkdir(workDir, { recursive: true, mode: 0o700 });
    await provision({
      cluster: owned.cluster,
      layers: options.layers,
      controllerKey: owned.controllerKey,
      nonce: id,
      workDir,
      io,
      clock,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    await moveNodes(store, lease, 'active', { clock });
    return owned;
  } catch (error) {
    await owned.cluster.close();
    throw error;
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
}

/** The first failure is the one to tell; one of the removal is told beside it, and left to recovery. */
async function abandon(grounds: Grounds, lease: Lease, id: string): Promise<void> {
  const { store, io } = grounds;
  try {
    await clearAway(grounds, id);
    await store.db.deleteFrom('clusters').where('id', '=', id).execute();
    await releaseLease(store, lease, { clock: grounds.clock });
  } catch (error) {
    const message = `The lease ${lease.id} is left to "infrabed sweep": ${messageOf(error)}`;
    io.notify({ type: 'warning', message });
  }
}

/**
 * Proves that nothing of a cluster is left, removing it where it is.
 * @throws InfrabedError IB_NODE_FAILED naming what could not be removed.
 */
export async function clearAway(
  grounds: Pick<Grounds, 'backend' | 'stateDir' | 'store'>,
  id: string,
): Promise<void> {
  const { backend, stateDir, store } = grounds;
  try {
    const driverCluster = await backend.open(id, nullJournal);
    await driverCluster.destroy();
  } catch (error) {
    if (!isInfrabedError(error, 'IB_CLUSTER_UNKNOWN')) throw error;
    // The backend's own record is gone, so only a search finds what may be left.
    const report = await withClusterLock(stateDir, async () => {
      const rows = await store.db.selectFrom('clusters').select('id').where('id', '!=', id).execute();
      return backend.sweep(new Set(rows.map((row) => row.id)));
    });
    if (report.failed.length > 0)
      throw new InfrabedError('IB_NODE_FAILED', report.failed.join(' '), { cause: error });
  }
  await removeKeys(stateDir, id);
}

/** All clusters of the store, oldest first. */
export async function listClusters(store: Store): Promise<ClusterEntry[]> {
  const rows = await store.db
    .selectFrom('clusters')
    .innerJoin('leases', 'leases.id', 'clusters.lease')
    .select([
      'clusters.id',
      'clusters.lease',
      'clusters.backend',
      'clusters.layers',
      'clusters.nodes',
      'clusters.kept',
    ])
    .select(['clusters.created_at', 'leases.owner', 'leases.purpose', 'leases.controller'])
    .orderBy('clusters.created_at')
    .execute();
  return Promise.all(
    rows.map(async ({ created_at: createdAt, controller, kept, layers, nodes, ...row }) => ({
      ...row,
      layers: z.array(z.string()).parse(JSON.parse(layers)),
      nodes: storedNodesSchema.parse(JSON.parse(nodes)),
      kept: kept === 1,
      inUse: await controllerIsAlive(store, controller),
      createdAt,
    })),
  );
}

/**
 * Ends a cluster that no living process answers for: everything off and gone, nodes available again.
 * @throws InfrabedError IB_CLUSTER_UNKNOWN, IB_LEASE_CONFLICT while a trial runs on it; what could not be removed is
 *   quarantined and thrown.
 */
export async function endCluster(grounds: Grounds, id: string): Promise<void> {
  const { store, clock, controller } = grounds;
  const row = await store.db.selectFrom('clusters').select('lease').where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw unknownCluster(id);
  const lease = await adoptLease(store, row.lease, controller);
  await moveNodes(store, lease, 'cleaning', { clock });
  try {
    await clearAway(grounds, id);
  } catch (error) {
    await store.db.deleteFrom('clusters').where('id', '=', id).execute();
    await quarantineLease(store, lease, { code: 'leftovers', message: messageOf(error) }, { clock });
    throw error;
  }
  await store.db.deleteFrom('clusters').where('id', '=', id).execute();
  await releaseLease(store, lease, { clock });
}

export function unknownCluster(id: string): InfrabedError {
  return new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster "${id}".`, {
    hint: 'Run "infrabed cluster list" to see the clusters there are.',
  });
}
