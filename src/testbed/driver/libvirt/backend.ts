/** Virtual machines of libvirt on this machine as nodes. What can be relied on stands in docs/virtual-machines.md. */
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock, throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { failpoint } from '../../../core/failpoint.js';
import { silentHost, type IoHost } from '../../../core/io.js';
import type { Journal } from '../../../core/journal.js';
import { clusterFolder, isClusterId, nodeFolder } from '../container/cluster-state.js';
import { fenceFolder, holdingOf, readFence } from '../container/fence.js';
import { cgroupLayout, clusterNames, stateTag } from '../container/host.js';
import { ImageCache, imageCacheDir } from '../container/image-cache.js';
import { networkPlan, nodeAddress } from '../container/network.js';
import { identity } from '../container/node-files.js';
import type { Backend, ClusterSpec, DriverCluster, NodeHardware, ProbeResult } from '../driver.js';
import { generateKeyPair, type KeyPair } from '../../ssh/keys.js';
import { bmcModule, bmcModuleFolder } from '../bmc/index.js';
import { accelerator } from './accelerator.js';
import { proveVmsClean } from './clean-proof.js';
import { removeRemnants, VmCluster } from './cluster.js';
import { readVmCluster, vmFolder, type VmClusterState } from './cluster-state.js';
import { hypervisorOf, reachHypervisor } from './hypervisor.js';
import { assertSocketsFit, vmAct, vmPlace, type VmContext } from './place.js';
import { rootDisk, withKernel } from './root-disk.js';
import { sweepVms } from './sweep.js';

export interface LibvirtBackendOptions {
  stateDir: string;
  clock?: Clock;
  io?: IoHost;
}

/** An emulated machine on a busy computer needs minutes to its first login; under KVM it is seconds. */
const readyTimeoutMs = 600_000;
/** Its sshd was seen to take more than 20 s on a busy computer: that is not the node's fault. */
const loginTimeoutMs = 60_000;
const usual = { memoryMiB: 512, cpus: 1, bootsFromDisk: false };
/** A machine writes some megabytes; with less than this its disk may fail in the middle of a boot. */
const leastFreeBytes = 1e9;

export function createLibvirtBackend(options: LibvirtBackendOptions): Backend {
  const clock = options.clock ?? systemClock;
  const io = options.io ?? silentHost;
  const folder = vmFolder(options.stateDir);
  const context: VmContext = { folder, clock, layout: cgroupLayout(), hypervisor: hypervisorOf(folder) };
  const cache = new ImageCache(imageCacheDir(options.stateDir), clock);
  return {
    name: 'libvirt',
    offers: { nodes: 'vm', bmc: true },
    readyTimeoutMs,
    loginTimeoutMs,
    prepareImage: async (layers, host, signal) => {
      const image = await cache.prepare(withKernel(layers), host, signal);
      await rootDisk(image, cache, host, signal);
      return image.hash;
    },
    create: (spec, journal, host, signal) => create(spec, context, cache, journal, host, signal),
    async open(clusterId, journal) {
      return new VmCluster(await openState(context, clusterId), context, journal);
    },
    fence: (clusterId, generation) => take(context, clusterId, generation),
    proveClean: (clusterId, nodes) => proveVmsClean(context, clusterId, nodes),
    probe: (signal) => probe(context, signal),
    async sweep(keep) {
      const report = await sweepVms(keep, context);
      for (const line of report.removed) io.notify({ type: 'info', message: line });
      for (const line of report.failed) io.notify({ type: 'warning', message: line });
      return report;
    },
  };
}

async function create(
  spec: ClusterSpec,
  context: VmContext,
  cache: ImageCache,
  journal: Journal,
  io: IoHost,
  signal?: AbortSignal,
): Promise<DriverCluster> {
  checkSpec(spec);
  assertSocketsFit(context.folder, spec.id, spec.nodes.length);
  // Before the image, which may take minutes.
  await makeFolder(context);
  await reachHypervisor(context.hypervisor, signal);
  const image = await cache.prepare(withKernel(spec.layers), io, signal);
  const disk = await rootDisk(image, cache, io, signal);
  const modulePath = await bmcModule(bmcModuleFolder(context.folder), signal);
  failpoint('vm.create.before-check');
  if (existsSync(join(clusterFolder(context.folder, spec.id), 'cluster.json'))) {
    throw new InfrabedError('IB_LEASE_CONFLICT', `Cluster "${spec.id}" exists already.`, {
      hint: `Take it down first: infrabed cluster down ${spec.id}.`,
    });
  }
  const { kind } = await accelerator(context.folder, join(disk, 'vmlinuz'), signal);
  const keys = new Map(spec.nodes.map((name) => [name, generateKeyPair(`root@${name}`)]));
  const state = planCluster(spec, await stateTag(context.folder), context, {
    accelerator: kind,
    imageHash: image.hash,
    imageKeys: image.keys,
    disk,
    keys,
  });
  const { nodes, layers, generation } = spec;
  const entry = { kind: 'cluster.create', actor: 'controller', node: null };
  const payload = { state: 'begin', nodes, layers, imageHash: image.hash, generation, accelerator: kind };
  journal.record({ ...entry, payload });
  await journal.flush();
  throwIfAborted(signal);
  failpoint('vm.create.intent');
  await make(state, makeRequest(spec, state, keys, context), context);
  const cluster = new VmCluster(state, context, journal);
  try {
    throwIfAborted(signal);
    // Before the machines: the firmware of each asks its BMC.
    await cluster.startBmcs(modulePath);
    await Promise.all(cluster.nodes.map((node) => node.power.on(signal)));
  } catch (error) {
    await Promise.allSettled(cluster.nodes.map((node) => node.power.off()));
    await Promise.allSettled([removeRemnants(state, context)]);
    throw error;
  }
  journal.record({ ...entry, payload: { state: 'verified' } });
  await journal.flush();
  failpoint('vm.create.verified');
  return cluster;
}

/** Others may pass through: a hypervisor may run machines as a user of its own. */
async function makeFolder({ folder }: VmContext): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new InfrabedError('IB_NOT_ROOT', 'Virtual machines need root.', {
      hint: 'Run the command with sudo.',
    });
  }
  await mkdir(folder, { recursive: true, mode: 0o711 });
}

function checkSpec(spec: ClusterSpec): void {
  if (!isClusterId(spec.id))
    throw new InfrabedError('IB_USAGE', `"${spec.id}" cannot be the id of a cluster.`);
  for (const name of spec.nodes) {
    if (/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name)) continue;
    throw new InfrabedError('IB_USAGE', `"${name}" cannot be the name of a node.`, {
      hint: 'A node is named like a host: lower-case letters, digits and hyphens.',
    });
  }
  if (new Set(spec.nodes).size !== spec.nodes.length)
    throw new InfrabedError('IB_USAGE', 'Two nodes of a cluster have the same name.');
}

function planCluster(
  spec: ClusterSpec,
  tag: string,
  context: VmContext,
  made: Pick<VmClusterState, 'accelerator' | 'imageHash' | 'imageKeys' | 'disk'> & {
    keys: Map<string, KeyPair>;
  },
): VmClusterState {
  const { keys, ...image } = made;
  return {
    version: 1,
    id: spec.id,
    generation: spec.generation,
    tag,
    createdMs: context.clock.now(),
    ...image,
    nodes: spec.nodes.map((name, index) => ({
      name,
      address: nodeAddress(index),
      hostKey: keys.get(name)?.publicKey.split(' ').slice(0, 2).join(' ') ?? '',
      uuid: randomUUID(),
      ...hardwareOf(spec.hardware?.[name]),
    })),
  };
}

function hardwareOf(
  wanted: NodeHardware = {},
): typeof usual & { disksMiB: number[]; diskIopsSec: Record<string, number> } {
  const { disksMiB = [], diskIopsSec = {} } = wanted;
  return { ...usual, ...wanted, disksMiB: [...disksMiB], diskIopsSec: { ...diskIopsSec } };
}

/** What make_vms.py is told. */
function makeRequest(
  spec: ClusterSpec,
  state: VmClusterState,
  keys: ReadonlyMap<string, KeyPair>,
  context: VmContext,
): Record<string, unknown> {
  return {
    folder: clusterFolder(context.folder, spec.id),
    state,
    past: {
      imageHash: state.imageHash,
      generation: state.generation,
      hostKeys: Object.fromEntries(state.nodes.map(({ name, hostKey }) => [name, hostKey])),
    },
    netns: clusterNames(state.tag, state.id).netns,
    network: networkPlan(state.nodes),
    image: state.disk,
    nodes: state.nodes.flatMap((node) => {
      const key = keys.get(node.name);
      if (key === undefined) return [];
      const entries = identity(state, node, key, spec.authorizedKeys);
      return [
        {
          folder: nodeFolder(context.folder, state.id, node.name),
          console: vmPlace(context, state, node).consolePath,
          disksMiB: node.disksMiB,
          entries: entries.filter(({ content }) => content !== undefined),
        },
      ];
    }),
  };
}

/** What a failed maker left goes again. */
async function make(
  state: VmClusterState,
  request: Record<string, unknown>,
  context: VmContext,
): Promise<void> {
  try {
    await vmAct(holdingOf(context.folder, state), 'make', request);
  } catch (error) {
    // A conflict means that the cluster, or the id, is another's.
    if (!isInfrabedError(error, 'IB_LEASE_CONFLICT'))
      await Promise.allSettled([removeRemnants(state, context)]);
    throw error;
  }
}

/** What cluster.json says, with the generation that has the cluster now. */
async function openState(context: VmContext, id: string): Promise<VmClusterState> {
  const made = await readVmCluster(context.folder, id);
  const { state } = await readFence(fenceFolder(context.folder, id));
  if (state?.kind === 'live') return { ...made, generation: state.generation };
  throw new InfrabedError('IB_CLUSTER_UNKNOWN', `The cluster "${id}" was given up while it was removed.`, {
    hint: 'Run "infrabed sweep".',
  });
}

/** @throws InfrabedError IB_LEASE_CONFLICT, IB_TIMEOUT. */
async function take(context: VmContext, id: string, generation: number): Promise<void> {
  if (!isClusterId(id)) throw new InfrabedError('IB_USAGE', `"${id}" cannot be the id of a cluster.`);
  await mkdir(context.folder, { recursive: true, mode: 0o711 });
  const tag = await stateTag(context.folder);
  const made = await readVmCluster(context.folder, id).catch((error: unknown) => {
    if (isInfrabedError(error, 'IB_CLUSTER_UNKNOWN') || isInfrabedError(error, 'IB_STATE_DIR'))
      return undefined;
    throw error;
  });
  if (made !== undefined) await reachHypervisor(context.hypervisor);
  await vmAct(holdingOf(context.folder, { tag, id, generation }), 'take', {
    folder: clusterFolder(context.folder, id),
    uri: context.hypervisor.uri,
    domains: made?.nodes.map((node) => vmPlace(context, made, node).domain) ?? [],
  });
}

async function probe(context: VmContext, signal?: AbortSignal): Promise<ProbeResult> {
  try {
    await makeFolder(context);
    await reachHypervisor(context.hypervisor, signal);
    const { bavail, bsize } = await statfs(context.folder);
    if (bavail * bsize < leastFreeBytes) {
      const freeMb = Math.floor((bavail * bsize) / 1e6);
      return {
        ok: false,
        code: 'IB_DISK_FULL',
        message: `Only ${String(freeMb)} MB are free for ${context.folder}.`,
      };
    }
    return { ok: true };
  } catch (error) {
    throwIfAborted(signal);
    const code = isInfrabedError(error) ? error.code : 'IB_HOST_UNFIT';
    return { ok: false, code, message: messageOf(error) };
  }
}
