/** All backends of one machine as one: new clusters are made by the chosen one, and those that there are found with any. */
import { isInfrabedError } from '../../core/errors.js';
import type { Backend, CleanEvidence, SweepReport } from './driver.js';

/**
 * A controller that works with one backend still has to know what another left: what it takes over, removes or proves
 * clean may be of any. So nothing is ever called clean because the wrong backend was asked.
 */
export function joinBackends(chosen: Backend, others: readonly Backend[]): Backend {
  const all = [chosen, ...others];
  return {
    name: chosen.name,
    offers: chosen.offers,
    ...(chosen.readyTimeoutMs === undefined ? {} : { readyTimeoutMs: chosen.readyTimeoutMs }),
    ...(chosen.loginTimeoutMs === undefined ? {} : { loginTimeoutMs: chosen.loginTimeoutMs }),
    prepareImage: (layers, io, signal) => chosen.prepareImage(layers, io, signal),
    create: (spec, journal, io, signal) => chosen.create(spec, journal, io, signal),
    probe: (signal) => chosen.probe(signal),
    async open(clusterId, journal) {
      for (const other of others) {
        try {
          return await other.open(clusterId, journal);
        } catch (error) {
          if (!isInfrabedError(error, 'IB_CLUSTER_UNKNOWN')) throw error;
        }
      }
      return await chosen.open(clusterId, journal);
    },
    async fence(clusterId, generation) {
      for (const backend of all) await backend.fence(clusterId, generation);
    },
    async proveClean(clusterId, nodes) {
      const found: CleanEvidence[][] = [];
      for (const backend of all) found.push(await backend.proveClean(clusterId, nodes));
      return nodes.flatMap((node) => joinEvidence(found.flat().filter((one) => one.node === node)));
    },
    async sweep(keep) {
      const report: SweepReport = { removed: [], failed: [] };
      for (const backend of all) {
        const { removed, failed } = await backend.sweep(keep);
        report.removed.push(...removed);
        report.failed.push(...failed);
      }
      return report;
    },
  };
}

/** What is remembered of the node comes from the backend that made it; that nothing is left has to be said by each. */
function joinEvidence(evidence: readonly CleanEvidence[]): CleanEvidence[] {
  const maker = evidence.find(({ generation }) => generation !== null) ?? evidence[0];
  if (maker === undefined) return [];
  const isClean = evidence.every((one) => one.isClean);
  const others = evidence.filter((one) => one !== maker).flatMap(({ parts }) => parts);
  // What another backend looked for and did not find belongs to machines that this one never had.
  return [{ ...maker, isClean, parts: [...maker.parts, ...others.filter(({ found }) => found !== null)] }];
}
