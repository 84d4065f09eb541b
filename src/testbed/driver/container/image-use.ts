/** Which layers of the image cache are in use: those of clusters that exist, and those that a cluster may ask for. */
import { basename, dirname } from 'node:path';
import { isInfrabedError } from '../../../core/errors.js';
import { clusterIds, readClusterState } from './cluster-state.js';
import { layerNames, layerStack, planLayers } from './image-layers.js';
import { rangeOwners } from './uid-range.js';

/** Keys of the layers that nodes have mounted, those of other state folders of this machine included. */
export async function mountedLayers(stateFolder: string): Promise<Set<string>> {
  const clusters = (await clusterIds(stateFolder)).map((id) => ({ stateFolder, id }));
  for (const owner of await rangeOwners()) {
    clusters.push({ stateFolder: dirname(dirname(owner)), id: basename(owner) });
  }
  const keys = new Set<string>();
  for (const cluster of clusters) {
    try {
      const state = await readClusterState(cluster.stateFolder, cluster.id);
      for (const key of state.imageKeys) keys.add(key);
    } catch (error) {
      // A claim or a folder without a cluster: nothing is mounted for it.
      if (!isInfrabedError(error, 'IB_CLUSTER_UNKNOWN')) throw error;
    }
  }
  return keys;
}

/** Keys of the layers that the files of playbooks/images describe today, each on what it requires. */
export async function currentLayers(): Promise<Set<string>> {
  const keys = new Set<string>();
  for (const name of await layerNames()) {
    for (const plan of await planLayers(await layerStack(name))) keys.add(plan.key);
  }
  return keys;
}
