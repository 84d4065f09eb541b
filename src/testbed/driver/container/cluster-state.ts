/** cluster.json: what another process, or the next start after a crash, has to know of a cluster. */
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { InfrabedError, errnoOf } from '../../../core/errors.js';

const clusterStateSchema = z.strictObject({
  version: z.literal(1),
  id: z.string(),
  /** The generation that made it; whose it is now stands in the fence. */
  generation: z.number(),
  /** Tag of the state folder: part of every name that the cluster has on the host. */
  tag: z.string(),
  mode: z.enum(['own', 'host-systemd']),
  createdMs: z.number(),
  /** First uid of the cluster's range on the host. */
  uidBase: z.number(),
  /** How the image's owners get into that range. */
  mapping: z.enum(['idmapped', 'shifted-copy']),
  imageHash: z.string(),
  imageKeys: z.array(z.string()),
  /** Root folders of the image's layers, from the bottom up. */
  lowers: z.array(z.string()),
  nodes: z.array(
    z.strictObject({ name: z.string(), address: z.string(), hostKey: z.string(), machine: z.string() }),
  ),
});

export type ClusterState = z.infer<typeof clusterStateSchema>;
export type NodeState = ClusterState['nodes'][number];

export const clustersFolder = (stateFolder: string): string => join(stateFolder, 'clusters');
export const clusterFolder = (stateFolder: string, id: string): string =>
  join(clustersFolder(stateFolder), id);
export const nodeFolder = (stateFolder: string, id: string, node: string): string =>
  join(clusterFolder(stateFolder, id), 'nodes', node);

/** An id becomes part of folder, group and namespace names. */
export function isClusterId(id: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$/.test(id);
}

/** @throws InfrabedError IB_CLUSTER_UNKNOWN when there is none of that id. */
export async function readClusterState(stateFolder: string, id: string): Promise<ClusterState> {
  const path = join(clusterFolder(stateFolder, id), 'cluster.json');
  try {
    if (!isClusterId(id)) throw Object.assign(new Error('not an id'), { code: 'ENOENT' });
    return clusterStateSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') {
      throw new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster "${id}".`, {
        hint: 'See "infrabed cluster list".',
      });
    }
    throw new InfrabedError('IB_STATE_DIR', `${path} cannot be read as the record of a cluster.`, {
      hint: `Run "infrabed sweep" to remove what is left of it.`,
      cause: error,
    });
  }
}

/** Ids of the clusters that have a folder here, whether or not they are whole. */
export async function clusterIds(stateFolder: string): Promise<string[]> {
  try {
    return await readdir(clustersFolder(stateFolder));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}
