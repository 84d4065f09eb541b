/** Makes a cluster on a backend, and finds one again that this or another process made. */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import type { IoHost } from '../../core/io.js';
import type { Journal } from '../../core/journal.js';
import type { Backend, DriverCluster, LayerRef, NodeHardware } from '../driver/driver.js';
import { generateKeyPair } from '../ssh/keys.js';
import type { Cluster } from './cluster.js';
import { openCluster } from './open.js';

export interface ClusterMember {
  name: string;
  roles: readonly string[];
  hardware?: NodeHardware;
}

export interface CreateClusterOptions {
  backend: Backend;
  /** Short: names of namespaces and paths of sockets are made from it. */
  id: string;
  /** Fencing token of the lease. */
  generation: number;
  nodes: readonly ClusterMember[];
  /** Layers from the bottom: `os` first. */
  layers: readonly LayerRef[];
  stateDir: string;
  journal: Journal;
  io: IoHost;
  clock?: Clock;
  signal?: AbortSignal;
  /** Public keys beside the controller's own that root on every node accepts. */
  authorizedKeys?: readonly string[];
  /** From the start of the nodes to the last SSH session. Default: the backend's, else 120 000. */
  readyTimeoutMs?: number;
}

/** A cluster and what its maker needs to end it. */
export interface OwnedCluster {
  cluster: Cluster;
  driverCluster: DriverCluster;
  /** Private key that root on every node accepts. */
  controllerKey: string;
  /** Closes connections, switches everything off and removes it, its keys too. */
  destroy(): Promise<void>;
}

/** What logging in to a cluster takes; beside the backend's own folder, which is the backend's to remove. */
export function keyFolder(stateDir: string, clusterId: string): string {
  return join(stateDir, 'cluster-keys', clusterId);
}

/** Where a cluster's private key lies, mode 0600, so that another process can log in too. */
export function controllerKeyPath(stateDir: string, clusterId: string): string {
  return join(keyFolder(stateDir, clusterId), 'controller.key');
}

/**
 * Fresh nodes that answer SSH. What was begun is removed again when it fails.
 * @throws InfrabedError as the backend's create, and IB_TIMEOUT naming the nodes that do not answer.
 */
export async function createCluster(options: CreateClusterOptions): Promise<OwnedCluster> {
  const { backend, id, io, journal, signal, stateDir } = options;
  const scope = `cluster ${id}`;
  const readyTimeoutMs = options.readyTimeoutMs ?? backend.readyTimeoutMs ?? 120_000;
  const keys = generateKeyPair('operations');
  await writeKey(stateDir, id, keys.privateKey);
  let owned: OwnedCluster | undefined;
  try {
    io.notify({ type: 'phase', scope, phase: 'start', state: 'begin' });
    const spec = {
      id,
      generation: options.generation,
      nodes: options.nodes.map((node) => node.name),
      hardware: Object.fromEntries(
        options.nodes.flatMap(({ name, hardware }) => (hardware === undefined ? [] : [[name, hardware]])),
      ),
      layers: options.layers,
      authorizedKeys: [keys.publicKey, ...(options.authorizedKeys ?? [])],
    };
    const driverCluster = await backend.create(spec, journal, io, signal);
    owned = own(driverCluster, keys.privateKey, options.nodes, options);
    await owned.cluster.waitForSsh(spec.nodes, readyTimeoutMs, signal);
    io.notify({ type: 'phase', scope, phase: 'start', state: 'end' });
    return owned;
  } catch (error) {
    io.notify({ type: 'phase', scope, phase: 'start', state: 'failed' });
    await (owned?.destroy() ?? removeKeys(stateDir, id)).catch((left: unknown) => {
      // The first failure is the one to tell; this one is told beside it.
      const message = `What was begun of the cluster ${id} could not be removed: ${messageOf(left)}`;
      io.notify({ type: 'warning', message });
    });
    throw error;
  }
}

/**
 * The handle on a cluster that exists.
 * @throws InfrabedError IB_CLUSTER_UNKNOWN when the backend or the state folder does not know it.
 */
export async function openExistingCluster(
  options: Pick<CreateClusterOptions, 'backend' | 'id' | 'nodes' | 'stateDir' | 'journal' | 'clock'>,
): Promise<OwnedCluster> {
  const { backend, id, journal, stateDir } = options;
  const driverCluster = await backend.open(id, journal);
  return own(driverCluster, await readKey(stateDir, id), options.nodes, options);
}

function own(
  driverCluster: DriverCluster,
  controllerKey: string,
  nodes: readonly ClusterMember[],
  options: Pick<CreateClusterOptions, 'backend' | 'journal' | 'clock' | 'stateDir'>,
): OwnedCluster {
  const { loginTimeoutMs } = options.backend;
  const cluster = openCluster({
    driverCluster,
    controllerKey,
    roles: Object.fromEntries(nodes.map((node) => [node.name, node.roles])),
    journal: options.journal,
    ...(options.clock === undefined ? {} : { clock: options.clock }),
    ...(loginTimeoutMs === undefined ? {} : { loginTimeoutMs }),
  });
  return {
    cluster,
    driverCluster,
    controllerKey,
    async destroy() {
      await cluster.close();
      await driverCluster.destroy();
      await removeKeys(options.stateDir, driverCluster.id);
    },
  };
}

async function writeKey(stateDir: string, clusterId: string, privateKey: string): Promise<void> {
  await mkdir(keyFolder(stateDir, clusterId), { recursive: true, mode: 0o700 });
  await writeFile(controllerKeyPath(stateDir, clusterId), privateKey, { mode: 0o600, flag: 'wx' });
}

async function readKey(stateDir: string, clusterId: string): Promise<string> {
  try {
    return await readFile(controllerKeyPath(stateDir, clusterId), 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    throw new InfrabedError(
      'IB_CLUSTER_UNKNOWN',
      `The key of the cluster ${clusterId} is not in ${stateDir}.`,
      {
        hint: 'Run "infrabed cluster list" to see the clusters there are.',
        cause: error,
      },
    );
  }
}

/** Removes the keys of clusters that are not in `keep`: of those whose maker was killed. Returns their ids. */
export async function removeStaleKeys(stateDir: string, keep: ReadonlySet<string>): Promise<string[]> {
  let ids: string[];
  try {
    ids = await readdir(dirname(keyFolder(stateDir, 'any')));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
  const stale = ids.filter((id) => !keep.has(id));
  for (const id of stale) await removeKeys(stateDir, id);
  return stale;
}

/** Removes the keys of one cluster, where there are any. */
export async function removeKeys(stateDir: string, clusterId: string): Promise<void> {
  await rm(keyFolder(stateDir, clusterId), { recursive: true, force: true });
}
