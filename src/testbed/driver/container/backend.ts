/** System containers on this machine as nodes: the embedded default. */
import { join } from 'node:path';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { z } from 'zod';
import { systemClock, throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError } from '../../../core/errors.js';
import { failpoint } from '../../../core/failpoint.js';
import type { IoHost } from '../../../core/io.js';
import { silentHost } from '../../../core/io.js';
import type { Journal } from '../../../core/journal.js';
import type { Backend, ClusterSpec, DriverCluster, SweepReport } from '../driver.js';
import { bmcModule, bmcModuleFolder } from '../bmc/index.js';
import { proveClean } from './clean-proof.js';
import { ContainerCluster, clusterContext, removeRemnants, type ClusterContext } from './cluster.js';
import { clusterFolder, isClusterId, nodeFolder, readClusterState } from './cluster-state.js';
import type { ClusterState } from './cluster-state.js';
import { act, fenceFolder, holdingOf, readFence } from './fence.js';
import { clusterNames, stateTag, supervisorMode } from './host.js';
import { generateKeyPair, type KeyPair } from '../../ssh/keys.js';
import { ImageCache, imageCacheDir, type Image } from './image-cache.js';
import { makeRoomForWatches } from './inotify.js';
import { networkPlan, nodeAddress } from './network.js';
import { identity } from './node-files.js';
import { probeHost } from './probe.js';
import { sweepLeftovers } from './sweep.js';
import { probeMapping, sharedUidBase, shiftedCopies } from './uid-mapping.js';
import { uidRegistry } from './uid-range.js';

export interface ContainerBackendOptions {
  stateDir: string;
  clock?: Clock;
  io?: IoHost;
}

/** What nodes are made of and what can be relied on stands in docs/container-backend.md. */
export function createContainerBackend(options: ContainerBackendOptions): Backend {
  const clock = options.clock ?? systemClock;
  const io = options.io ?? silentHost;
  const context = clusterContext(options.stateDir, clock);
  const cache = new ImageCache(imageCacheDir(options.stateDir), clock);
  return {
    name: 'container',
    offers: { nodes: 'container', bmc: true },
    prepareImage: async (layers, host, signal) => (await cache.prepare(layers, host, signal)).hash,
    async create(spec, journal, host, signal) {
      checkHost(context);
      checkSpec(spec);
      const image = await cache.prepare(spec.layers, host, signal);
      await makeRoomForWatches(spec.nodes.length, context.layout, host);
      const modulePath = await bmcModule(bmcModuleFolder(imageCacheDir(context.stateFolder)), signal);
      return await createCluster(spec, image, modulePath, context, journal, signal);
    },
    async open(clusterId, journal) {
      return new ContainerCluster(await openState(options.stateDir, clusterId), context, journal);
    },
    fence: (clusterId, generation) => takeCluster(context, clusterId, generation),
    proveClean: (clusterId, nodes) => proveClean(context, clusterId, nodes),
    probe: (signal) => probeHost(context, cache, signal),
    async sweep(keep): Promise<SweepReport> {
      const report = await sweepLeftovers(keep, context);
      for (const line of report.removed) io.notify({ type: 'info', message: line });
      for (const line of report.failed) io.notify({ type: 'warning', message: line });
      return report;
    },
  };
}

/** @throws InfrabedError IB_NOT_ROOT, IB_HOST_UNFIT. `infrabed doctor` looks at everything; this only at what must be. */
function checkHost(context: ClusterContext): void {
  if (process.getuid?.() !== 0) {
    throw new InfrabedError('IB_NOT_ROOT', 'Container nodes need root.', {
      hint: 'Run the command with sudo.',
    });
  }
  if (context.layout.unified === undefined) {
    throw new InfrabedError('IB_HOST_UNFIT', 'There is no cgroup2 file system on this machine.', {
      hint: 'Run "infrabed doctor".',
    });
  }
}

function checkSpec(spec: ClusterSpec): void {
  if (!isClusterId(spec.id))
    throw new InfrabedError('IB_USAGE', `"${spec.id}" cannot be the id of a cluster.`);
  for (const name of spec.nodes) {
    if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name)) {
      throw new InfrabedError('IB_USAGE', `"${name}" cannot be the name of a node.`, {
        hint: 'A node is named like a host: lower-case letters, digits and hyphens.',
      });
    }
  }
  if (new Set(spec.nodes).size !== spec.nodes.length) {
    throw new InfrabedError('IB_USAGE', 'Two nodes of a cluster have the same name.');
  }
}

/** What cluster.json says, with the generation that has the cluster now. */
async function openState(stateFolder: string, id: string): Promise<ClusterState> {
  const made = await readClusterState(stateFolder, id);
  const { state } = await readFence(fenceFolder(stateFolder, id));
  if (state?.kind === 'live') return { ...made, generation: state.generation };
  throw new InfrabedError('IB_CLUSTER_UNKNOWN', `The cluster "${id}" was given up while it was removed.`, {
    hint: 'Run "infrabed sweep".',
  });
}

/** @throws InfrabedError IB_LEASE_CONFLICT, IB_TIMEOUT. */
async function takeCluster(context: ClusterContext, id: string, generation: number): Promise<void> {
  if (!isClusterId(id)) throw new InfrabedError('IB_USAGE', `"${id}" cannot be the id of a cluster.`);
  await mkdir(context.stateFolder, { recursive: true, mode: 0o755 });
  const tag = await stateTag(context.stateFolder);
  const holding = holdingOf(context.stateFolder, { tag, id, generation });
  await act(holding, 'take', { folder: clusterFolder(context.stateFolder, id) });
}

async function createCluster(
  spec: ClusterSpec,
  image: Image,
  modulePath: string,
  context: ClusterContext,
  journal: Journal,
  signal?: AbortSignal,
): Promise<DriverCluster> {
  failpoint('container.create.before-check');
  const folder = clusterFolder(context.stateFolder, spec.id);
  if (existsSync(join(folder, 'cluster.json'))) {
    throw new InfrabedError('IB_LEASE_CONFLICT', `Cluster "${spec.id}" exists already.`, {
      hint: `Take it down first: infrabed cluster down ${spec.id}.`,
    });
  }
  const { state: plan, request } = await planCluster(spec, image, context);
  const { nodes, layers, generation } = spec;
  const payload = { nodes, layers, imageHash: image.hash, generation };
  const entry = { kind: 'cluster.create', actor: 'controller', node: null };
  journal.record({ ...entry, payload: { state: 'begin', ...payload } });
  await journal.flush();
  throwIfAborted(signal);
  failpoint('container.create.intent');
  const state = await make(plan, request, context);
  const cluster = new ContainerCluster(state, context, journal);
  try {
    throwIfAborted(signal);
    const starts = [cluster.startBmcs(modulePath), ...cluster.nodes.map((node) => node.power.on(signal))];
    // To their end, all of them: what is still being made cannot be removed.
    const failed = (await Promise.allSettled(starts)).find(({ status }) => status === 'rejected');
    if (failed?.status === 'rejected') throw failed.reason;
  } catch (error) {
    await abandon(cluster, state, context);
    throw error;
  }
  journal.record({ ...entry, payload: { state: 'verified' } });
  await journal.flush();
  failpoint('container.create.verified');
  return cluster;
}

/** The state with what only the maker knows: the uid range that was free. What a failed maker left goes again. */
async function make(
  plan: ClusterState,
  request: Record<string, unknown>,
  context: ClusterContext,
): Promise<ClusterState> {
  try {
    const made = await act(holdingOf(context.stateFolder, plan), 'make', request);
    return { ...plan, ...z.object({ uidBase: z.number() }).parse(made) };
  } catch (error) {
    // A conflict means that the cluster, or the id, is another's.
    if (!isInfrabedError(error, 'IB_LEASE_CONFLICT'))
      await Promise.allSettled([removeRemnants(plan, context)]);
    throw error;
  }
}

/** After a failure: all that was made goes; what cannot be removed is left to the sweep, and the first error counts. */
async function abandon(
  cluster: ContainerCluster,
  state: ClusterState,
  context: ClusterContext,
): Promise<void> {
  await Promise.allSettled(cluster.nodes.map((node) => node.power.off()));
  await Promise.allSettled([removeRemnants(state, context)]);
}

async function planCluster(
  spec: ClusterSpec,
  image: Image,
  context: ClusterContext,
): Promise<{ state: ClusterState; request: Record<string, unknown> }> {
  await mkdir(context.stateFolder, { recursive: true, mode: 0o755 });
  const { mapping } = await probeMapping();
  const keys = spec.nodes.map((name) => ({ name, pair: generateKeyPair(`root@${name}`) }));
  const state: ClusterState = {
    version: 1,
    id: spec.id,
    generation: spec.generation,
    tag: await stateTag(context.stateFolder),
    mode: supervisorMode(),
    createdMs: context.clock.now(),
    uidBase: sharedUidBase,
    mapping,
    imageHash: image.hash,
    imageKeys: image.keys,
    lowers: mapping === 'idmapped' ? image.roots : await shiftedCopies(image.roots),
    nodes: keys.map(({ name, pair }, index) => ({
      name,
      address: nodeAddress(index),
      hostKey: pair.publicKey.split(' ').slice(0, 2).join(' '),
      machine: `n${String(index)}`,
    })),
  };
  return {
    state,
    request: makeRequest(
      spec,
      state,
      keys.map(({ pair }) => pair),
      context,
    ),
  };
}

/** What make_cluster.py is told. */
function makeRequest(
  spec: ClusterSpec,
  state: ClusterState,
  keys: readonly KeyPair[],
  context: ClusterContext,
): Record<string, unknown> {
  return {
    folder: clusterFolder(context.stateFolder, spec.id),
    state,
    registry: state.mapping === 'idmapped' ? uidRegistry : null,
    past: {
      imageHash: state.imageHash,
      generation: state.generation,
      hostKeys: Object.fromEntries(state.nodes.map(({ name, hostKey }) => [name, hostKey])),
    },
    netns: clusterNames(state.tag, state.id).netns,
    network: networkPlan(state.nodes),
    nodes: state.nodes.flatMap((node, index) => {
      const key = keys[index];
      const folder = nodeFolder(context.stateFolder, state.id, node.name);
      return key === undefined ? [] : [{ folder, entries: identity(state, node, key, spec.authorizedKeys) }];
    }),
  };
}
