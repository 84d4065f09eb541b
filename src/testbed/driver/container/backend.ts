/** System containers on this machine as nodes: the embedded default. */
import { join } from 'node:path';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { systemClock, throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError } from '../../../core/errors.js';
import type { IoHost } from '../../../core/io.js';
import { silentHost } from '../../../core/io.js';
import type { Journal } from '../../../core/journal.js';
import type { Backend, ClusterSpec, DriverCluster, SweepReport } from '../driver.js';
import { proveClean } from './clean-proof.js';
import { ContainerCluster, clusterContext, removeRemnants, type ClusterContext } from './cluster.js';
import {
  clusterFolder,
  isClusterId,
  nodeFolder,
  readClusterState,
  writeClusterState,
} from './cluster-state.js';
import type { ClusterState } from './cluster-state.js';
import { clusterNames, stateTag, supervisorMode } from './host.js';
import { generateKeyPair, type KeyPair } from '../../ssh/keys.js';
import { ImageCache, imageCacheDir, type Image } from './image-cache.js';
import { makeRoomForWatches } from './inotify.js';
import { makeNetwork, nodeAddress } from './network.js';
import { identity, makeNodeFiles } from './node-files.js';
import { probeHost } from './probe.js';
import { sweepLeftovers } from './sweep.js';
import { probeMapping, sharedUidBase, shiftedCopies } from './uid-mapping.js';
import { releaseUidRange, takeUidRange } from './uid-range.js';

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
    prepareImage: async (layers, host, signal) => (await cache.prepare(layers, host, signal)).hash,
    async create(spec, journal, host, signal) {
      checkHost(context);
      checkSpec(spec);
      const image = await cache.prepare(spec.layers, host, signal);
      await makeRoomForWatches(spec.nodes.length, context.layout, host);
      return await createCluster(spec, image, context, journal, signal);
    },
    async open(clusterId, journal) {
      return new ContainerCluster(await readClusterState(options.stateDir, clusterId), context, journal);
    },
    async fence(clusterId, generation) {
      const state = await readClusterState(options.stateDir, clusterId);
      if (generation > state.generation) await writeClusterState(options.stateDir, { ...state, generation });
    },
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

async function createCluster(
  spec: ClusterSpec,
  image: Image,
  context: ClusterContext,
  journal: Journal,
  signal?: AbortSignal,
): Promise<DriverCluster> {
  const folder = clusterFolder(context.stateFolder, spec.id);
  if (existsSync(join(folder, 'cluster.json'))) {
    throw new InfrabedError('IB_LEASE_CONFLICT', `Cluster "${spec.id}" exists already.`, {
      hint: `Take it down first: infrabed cluster down ${spec.id}.`,
    });
  }
  const { state, hostKeys } = await planCluster(spec, image, context);
  const cluster = new ContainerCluster(state, context, journal);
  const payload = {
    nodes: spec.nodes,
    layers: spec.layers,
    imageHash: image.hash,
    generation: spec.generation,
  };
  try {
    journal.record({
      kind: 'cluster.create',
      actor: 'controller',
      node: null,
      payload: { state: 'begin', ...payload },
    });
    await journal.flush();
    // The record comes before what it records: after a crash a sweep knows what to look for.
    await writeClusterState(context.stateFolder, state);
    throwIfAborted(signal);
    await Promise.all([
      makeNetwork(clusterNames(state.tag, state.id).netns),
      ...state.nodes.map((node, index) =>
        makeNodeFiles(
          nodeFolder(context.stateFolder, state.id, node.name),
          identity(state, node, hostKeys[index] ?? generateKeyPair(`root@${node.name}`), spec.authorizedKeys),
          state.uidBase,
        ),
      ),
    ]);
    await Promise.all(cluster.nodes.map((node) => node.power.on(signal)));
  } catch (error) {
    await abandon(cluster, state, context);
    throw error;
  }
  journal.record({ kind: 'cluster.create', actor: 'controller', node: null, payload: { state: 'verified' } });
  await journal.flush();
  return cluster;
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
): Promise<{ state: ClusterState; hostKeys: KeyPair[] }> {
  await mkdir(context.stateFolder, { recursive: true, mode: 0o755 });
  const folder = clusterFolder(context.stateFolder, spec.id);
  const { mapping } = await probeMapping();
  const hostKeys = spec.nodes.map((name) => generateKeyPair(`root@${name}`));
  const lowers = mapping === 'idmapped' ? image.roots : await shiftedCopies(image.roots);
  const addresses = spec.nodes.map((_name, index) => nodeAddress(index));
  const uidBase = mapping === 'idmapped' ? await takeUidRange(folder) : sharedUidBase;
  try {
    const state: ClusterState = {
      version: 1,
      id: spec.id,
      generation: spec.generation,
      tag: await stateTag(context.stateFolder),
      mode: supervisorMode(),
      createdMs: context.clock.now(),
      uidBase,
      mapping,
      imageHash: image.hash,
      imageKeys: image.keys,
      lowers,
      nodes: spec.nodes.map((name, index) => ({
        name,
        address: addresses[index] ?? '',
        hostKey: (hostKeys[index]?.publicKey ?? '').split(' ').slice(0, 2).join(' '),
        machine: `n${String(index)}`,
      })),
    };
    return { state, hostKeys };
  } catch (error) {
    await releaseUidRange(uidBase, folder);
    throw error;
  }
}
