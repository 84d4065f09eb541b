/** Clusters as recovery sees them: on which lease they stand, and the proof that nothing of one is left. */
import { z } from 'zod';
import type { Store } from '../../record/store/store.js';
import type { Backend } from '../../testbed/driver/driver.js';
import { removalProofs } from '../../testbed/lease/kept-cluster.js';
import type { CleanProof, NamedNode } from '../../testbed/node/clean-proof.js';

export interface StandingCluster {
  id: string;
  lease: string;
  /** Of the lease, now. */
  generation: number;
  /** In whose hands the lease is. */
  controller: string | null;
  isKept: boolean;
  nodes: NamedNode[];
}

const membersSchema = z.array(z.object({ name: z.string(), node: z.string() }));

/** All clusters of the store, or those of a lease. */
export async function clustersOf(store: Store, lease?: string): Promise<StandingCluster[]> {
  const rows = await store.db
    .selectFrom('clusters')
    .innerJoin('leases', 'leases.id', 'clusters.lease')
    .select(['clusters.id', 'clusters.lease', 'clusters.kept', 'clusters.nodes'])
    .select(['leases.controller', 'leases.generation'])
    .execute();
  return rows
    .filter((row) => lease === undefined || row.lease === lease)
    .map(({ kept, nodes, ...row }) => ({
      ...row,
      isKept: kept === 1,
      nodes: membersSchema.parse(JSON.parse(nodes)),
    }));
}

/** @throws InfrabedError IB_NODE_FAILED naming what is left of one. */
export async function proofsOf(
  clusters: readonly StandingCluster[],
  backend: Backend,
): Promise<Map<string, CleanProof>> {
  const proofs = new Map<string, CleanProof>();
  for (const cluster of clusters) {
    for (const [node, proof] of await removalProofs(backend, cluster)) proofs.set(node, proof);
  }
  return proofs;
}

export async function forgetClusters(
  store: Store,
  clusters: readonly Pick<StandingCluster, 'id'>[],
): Promise<void> {
  if (clusters.length === 0) return;
  const ids = clusters.map(({ id }) => id);
  await store.db.deleteFrom('clusters').where('id', 'in', ids).execute();
}
