/** Operations on clusters that stay: make one on a lease, see what there is, end it. */
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import {
  endCluster,
  listClusters,
  raiseCluster,
  type ClusterEntry,
  type Grounds,
} from '../../testbed/lease/kept-cluster.js';
import { hostBackendNames, type HostBackend } from '../../testbed/driver/index.js';
import { instant, isoUtc } from './instant.js';
import { operation, type AnyOperation, type Desk } from './operation.js';

const clusterShape = z.object({
  cluster: z.string(),
  lease: z.string(),
  owner: z.string(),
  purpose: z.string(),
  backend: z.string(),
  layers: z.array(z.string()),
  nodes: z.array(
    z.object({
      name: z.string().describe('within the cluster: node0'),
      node: z.string().describe('in the inventory: local/n01'),
      roles: z.array(z.string()),
    }),
  ),
  kept: z.boolean().describe('outlives the process that made it'),
  inUse: z.boolean().describe('a living controller works on it'),
  created: instant,
});
export type ClusterJson = z.output<typeof clusterShape>;

function clusterJson(entry: ClusterEntry): ClusterJson {
  const { id: cluster, createdAt, ...rest } = entry;
  return { cluster, ...rest, created: isoUtc(createdAt) };
}

async function groundsOf(desk: Desk, backend: HostBackend = 'container'): Promise<Grounds> {
  const { store, stateDir, settings, clock, io } = desk;
  return {
    store,
    backend: desk.backendNamed(backend),
    stateDir,
    settings,
    clock,
    io,
    controller: await desk.controller(),
  };
}

export const clusterUp = operation({
  name: 'cluster.up',
  method: 'POST',
  path: '/v1/clusters',
  summary: 'Make a cluster and leave it running',
  role: 'user',
  slow: true,
  input: z.strictObject({
    nodes: z.number().int().min(1).optional().describe('left out: all of the lease, or three without one'),
    layers: z.array(z.string().min(1)).min(1).default(['os']),
    lease: z.string().min(1).optional().describe('a lease to stand on; left out: one is taken for it'),
    durationSec: z.number().int().min(60).optional().describe('of a lease taken for it'),
    backend: z.enum(hostBackendNames).default('container').describe('what its nodes are made by'),
  }),
  output: clusterShape,
  async handle(desk, input, actor) {
    const { nodes, layers, lease, durationSec, backend } = input;
    if (lease !== undefined && durationSec !== undefined) {
      throw new InfrabedError('IB_USAGE', 'On a lease a cluster stands until that ends.', {
        hint: 'Leave out the duration, or extend the lease.',
      });
    }
    const entry = await raiseCluster(await groundsOf(desk, backend), {
      actor,
      layers: layers[0] === 'os' ? layers : ['os', ...layers],
      durationMs: (durationSec ?? desk.settings.lease.own_sec) * 1000,
      signal: desk.signal,
      ...(nodes === undefined ? {} : { nodeCount: nodes }),
      ...(lease === undefined ? {} : { lease }),
    });
    return clusterJson(entry);
  },
});

export const clusterList = operation({
  name: 'cluster.list',
  method: 'GET',
  path: '/v1/clusters',
  summary: 'The clusters there are, oldest first',
  role: 'user',
  input: z.strictObject({}),
  output: z.object({ clusters: z.array(clusterShape) }),
  async handle(desk) {
    return { clusters: (await listClusters(desk.store)).map(clusterJson) };
  },
});

export const clusterDown = operation({
  name: 'cluster.down',
  method: 'POST',
  path: '/v1/clusters/:id/down',
  summary: 'End a cluster; everything on its nodes is lost',
  role: 'user',
  slow: true,
  input: z.strictObject({ id: z.string().min(1) }),
  output: z.object({ ended: z.string() }),
  async handle(desk, { id }, actor) {
    await endCluster(await groundsOf(desk), id, actor);
    return { ended: id };
  },
});

export const clusterOperations: readonly AnyOperation[] = [clusterDown, clusterList, clusterUp];
