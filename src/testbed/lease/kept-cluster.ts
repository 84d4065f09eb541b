/** Clusters that outlive the process that made them: raised for people who write tasks, found again, and ended. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { mayChange, type Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { newId } from '../../core/ids.js';
import type { IoHost } from '../../core/io.js';
import { nullJournal } from '../../core/journal.js';
import type { Settings } from '../../core/settings.js';
import { controllerIsAlive } from '../../record/store/controllers.js';
import type { Store } from '../../record/store/store.js';
import { createCluster, removeKeys } from '../cluster/create.js';
import type { OwnedCluster } from '../cluster/create.js';
import type { Backend } from '../driver/driver.js';
import { destroyedProofs, type CleanProof, type NamedNode } from '../node/clean-proof.js';
import { provision } from '../provision/provision.js';
import { withClusterLock } from './cluster-lock.js';
import {
  adoptLease,
  holdLease,
  moveNodes,
  putDownLease,
  quarantineLease,
  releaseLease,
  takeNodes,
} from './lease.js';
import type { Lease } from './lease.js';

/** What this file needs of a controller. */
export interface Grounds {
  store: Store;
  backend: Backend;
  stateDir: string;
  /** Id of the controller process. */
  controller: string;
  settings: Settings;
  clock: Clock;
  io: IoHost;
}

export interface RaiseOptions {
  /** How many nodes; all of the lease's where it is left out, and three without one. */
  nodeCount?: number;
  layers: readonly string[];
  /** Who asks; owner of the lease, where it takes one of its own. */
  actor: Actor;
  /** A person's lease to stand on; without it nodes are taken for `durationMs`. */
  lease?: string;
  /** How long it may stand on nodes taken for it alone. */
  durationMs: number;
  signal?: AbortSignal;
}

const defaultNodes = 3;

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
 * Makes a cluster (node0, node1, ...) on a lease or on nodes taken for it, brings the layers onto it and keeps it. What
 * was begun is removed when it fails.
 * @throws InfrabedError as takeNodes and holdLease; IB_NOT_ENOUGH_NODES when the lease has fewer nodes than asked for.
 */
export async function raiseCluster(grounds: Grounds, options: RaiseOptions): Promise<ClusterEntry> {
  const { store, clock, backend, stateDir } = grounds;
  const lease = await nodesFor(grounds, options);
  const id = newId('c', clock.now());
  const nodes = lease.nodes
    .slice(0, options.nodeCount)
    .map((node, index) => ({ name: `node${String(index)}`, node, roles: [] as string[] }));
  const entry = {
    id,
    lease: lease.id,
    owner: lease.owner,
    purpose: lease.purpose,
    backend: backend.name,
    layers: [...options.layers],
    nodes,
    createdAt: clock.now(),
  };
  try {
    await withClusterLock(stateDir, () => writeDown(store, entry));
    const owned = await build(grounds, lease, entry, options.signal);
    await owned.cluster.close();
    await store.db.updateTable('clusters').set({ kept: 1 }).where('id', '=', id).execute();
  } catch (error) {
    await abandon(grounds, lease, entry);
    throw error;
  }
  // Nobody works on it from here on: whoever comes next takes it in hand under a generation of its own.
  await leave(store, lease);
  return { ...entry, kept: true, inUse: false };
}

async function leave(store: Store, { id, generation }: Lease): Promise<void> {
  await store.db
    .updateTable('leases')
    .set({ controller: null })
    .where('id', '=', id)
    .where('generation', '=', generation)
    .execute();
}

async function nodesFor(grounds: Grounds, options: RaiseOptions): Promise<Lease> {
  const { store, clock, controller, settings, backend } = grounds;
  const { actor, lease: reserved, nodeCount, durationMs } = options;
  if (reserved === undefined) {
    return takeNodes(store, {
      nodes: { count: nodeCount ?? defaultNodes },
      owner: actor.name,
      actor,
      purpose: 'cluster up',
      controller,
      backend: backend.name,
      durationMs,
      gapMs: settings.lease.cleaning_gap_sec * 1000,
      clock,
    });
  }
  const lease = await holdLease({ store, settings, clock }, reserved, controller, actor);
  if (nodeCount === undefined || nodeCount <= lease.nodes.length) return lease;
  await putDownLease(store, lease, new Map(), { clock, actor });
  throw new InfrabedError(
    'IB_NOT_ENOUGH_NODES',
    `The lease ${reserved} has ${String(lease.nodes.length)} nodes; ${String(nodeCount)} are wanted.`,
    { hint: 'Ask for fewer, or reserve more nodes.' },
  );
}

async function writeDown(store: Store, entry: Omit<ClusterEntry, 'kept' | 'inUse'>): Promise<void> {
  const { id, lease, backend, layers, nodes, createdAt } = entry;
  const row = { id, lease, backend, layers: JSON.stringify(layers), nodes: JSON.stringify(nodes) };
  await store.db
    .insertInto('clusters')
    .values({ ...row, kept: 0, created_at: createdAt })
    .execute();
}

async function build(
  grounds: Grounds,
  lease: Lease,
  { id, nodes, layers }: Pick<ClusterEntry, 'id' | 'nodes' | 'layers'>,
  asked: AbortSignal | undefined,
): Promise<OwnedCluster> {
  const { store, backend, stateDir, clock, io } = grounds;
  const signal = asked === undefined ? lease.signal : AbortSignal.any([asked, lease.signal]);
  const used = nodes.map(({ node }) => node);
  await moveNodes(store, lease, 'provisioning', { clock, nodes: used });
  const owned = await createCluster({
    backend,
    id,
    generation: lease.generation,
    nodes,
    layers,
    stateDir,
    journal: nullJournal,
    io,
    clock,
    signal,
  });
  const workDir = join(stateDir, 'work', id);
  try {
    await mkdir(workDir, { recursive: true, mode: 0o700 });
    await provision({
      cluster: owned.cluster,
      layers,
      controllerKey: owned.controllerKey,
      nonce: id,
      workDir,
      io,
      clock,
      signal,
    });
    await moveNodes(store, lease, 'active', { clock, nodes: used });
    return owned;
  } catch (error) {
    await owned.cluster.close();
    throw error;
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
}

/** The first failure is the one to tell; one of the removal is told beside it, and left to recovery. */
async function abandon(
  grounds: Grounds,
  lease: Lease,
  entry: Pick<ClusterEntry, 'id' | 'nodes'>,
): Promise<void> {
  try {
    await takeAway(grounds, lease, entry);
  } catch (error) {
    const message = `The lease ${lease.id} is left to "infrabed sweep": ${messageOf(error)}`;
    grounds.io.notify({ type: 'warning', message });
  }
}

/** Removes a cluster, proves that nothing of it is left, and gives its lease back, or its nodes to the lease. */
async function takeAway(
  grounds: Pick<Grounds, 'backend' | 'stateDir' | 'store' | 'clock'>,
  lease: Lease,
  { id, nodes }: Pick<ClusterEntry, 'id' | 'nodes'>,
  actor?: Actor,
): Promise<void> {
  const { store, clock } = grounds;
  await clearAway(grounds, id);
  const clean = await removalProofs(grounds.backend, { id, nodes, generation: lease.generation });
  const by = { clock, removed: [id], ...(actor === undefined ? {} : { actor }) };
  if (lease.own) await releaseLease(store, lease, { ...by, clean });
  else await putDownLease(store, lease, clean, by);
}

/**
 * Proofs for the nodes of a removed cluster, by their site's names, from what the backend reads back.
 * @throws InfrabedError IB_NODE_FAILED naming what is left of it.
 */
export async function removalProofs(
  backend: Backend,
  { id, nodes, generation }: { id: string; nodes: readonly NamedNode[]; generation: number },
): Promise<Map<string, CleanProof>> {
  const names = nodes.map(({ name }) => name);
  return destroyedProofs(await backend.proveClean(id, names), nodes, generation);
}

/**
 * Sees to it that nothing of a cluster is left, removing it where it is.
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
    const others = async (): Promise<Set<string>> => {
      const rows = await store.db.selectFrom('clusters').select('id').where('id', '!=', id).execute();
      return new Set(rows.map((row) => row.id));
    };
    const report = await withClusterLock(stateDir, () => backend.sweep(others));
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
 * Ends a cluster that no living process works on: everything off and gone. Nodes taken for it alone are available again,
 * those of a person's lease still reserved.
 * @throws InfrabedError IB_CLUSTER_UNKNOWN, IB_NOT_ALLOWED, IB_LEASE_CONFLICT while a trial runs on it; what could not
 *   be removed is quarantined and thrown.
 */
export async function endCluster(grounds: Grounds, id: string, actor: Actor): Promise<void> {
  const { store, clock, controller, backend } = grounds;
  const entry = (await listClusters(store)).find((cluster) => cluster.id === id);
  if (entry === undefined) throw unknownCluster(id);
  if (!mayChange(actor, entry.owner)) {
    throw new InfrabedError('IB_NOT_ALLOWED', `The cluster ${id} belongs to ${entry.owner}.`, {
      hint: 'Ask its owner, or an operator.',
    });
  }
  const lease = await adoptLease(store, entry.lease, controller, { clock, actor });
  await moveNodes(store, lease, 'cleaning', { clock, nodes: entry.nodes.map(({ node }) => node) });
  try {
    await backend.fence(id, lease.generation);
    await takeAway(grounds, lease, entry, actor);
  } catch (error) {
    await quarantineLease(store, lease, { code: 'leftovers', message: messageOf(error) }, { clock });
    throw error;
  }
}

export function unknownCluster(id: string): InfrabedError {
  return new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster "${id}".`, {
    hint: 'Run "infrabed cluster list" to see the clusters there are.',
  });
}
