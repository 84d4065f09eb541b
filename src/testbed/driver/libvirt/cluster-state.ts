/** cluster.json: what another process, or the next start after a crash, has to know of a cluster of virtual machines. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { InfrabedError, errnoOf } from '../../../core/errors.js';
import { clusterFolder, isClusterId } from '../container/cluster-state.js';

const vmClusterSchema = z.strictObject({
  version: z.literal(1),
  id: z.string(),
  /** The generation that made it; whose it is now stands in the fence. */
  generation: z.number(),
  /** Tag of the folder of the virtual machines: part of every name that the cluster has on the host. */
  tag: z.string(),
  createdMs: z.number(),
  accelerator: z.enum(['kvm', 'tcg']),
  imageHash: z.string(),
  imageKeys: z.array(z.string()),
  /** Folder of the shared disk, its kernel and its initramfs. */
  disk: z.string(),
  nodes: z.array(
    z.strictObject({
      name: z.string(),
      address: z.string(),
      hostKey: z.string(),
      uuid: z.string(),
      memoryMiB: z.number(),
      cpus: z.number(),
      disksMiB: z.array(z.number()),
      /** By the disk's serial number; clusters of before have none. */
      diskIopsSec: z.record(z.string(), z.number()).default({}),
      bootsFromDisk: z.boolean(),
    }),
  ),
});

export type VmClusterState = z.infer<typeof vmClusterSchema>;
export type VmNodeState = VmClusterState['nodes'][number];

/**
 * Where everything of virtual machines lies in a state folder. Apart from the containers', so that neither backend takes
 * the other's clusters for remnants of its own.
 */
export const vmFolder = (stateFolder: string): string => join(stateFolder, 'vm');

/** @throws InfrabedError IB_CLUSTER_UNKNOWN when there is none of that id. */
export async function readVmCluster(folder: string, id: string): Promise<VmClusterState> {
  const path = join(clusterFolder(folder, id), 'cluster.json');
  try {
    if (!isClusterId(id)) throw Object.assign(new Error('not an id'), { code: 'ENOENT' });
    return vmClusterSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') {
      throw new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster "${id}" of virtual machines.`, {
        hint: 'See "infrabed cluster list".',
      });
    }
    throw new InfrabedError('IB_STATE_DIR', `${path} cannot be read as the record of a cluster.`, {
      hint: `Run "infrabed sweep" to remove what is left of it.`,
      cause: error,
    });
  }
}

/** Machines of a cluster on the hypervisor are named PREFIX.NODE. No node's name holds a dot. */
export const domainPrefix = (tag: string, id: string): string => `ib-${tag}-${id}`;
