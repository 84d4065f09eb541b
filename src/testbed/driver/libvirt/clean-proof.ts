/** What is read back of a cluster of virtual machines that was taken down: every place where one could have left something. */
import { existsSync } from 'node:fs';
import { messageOf } from '../../../core/errors.js';
import { clusterFolder, clustersFolder, nodeFolder } from '../container/cluster-state.js';
import { clusterNames, stateTag } from '../container/host.js';
import { hostProcesses, processesOf } from '../container/host-processes.js';
import { networkNames } from '../container/network.js';
import { lastBootOf } from '../container/past.js';
import type { CleanEvidence } from '../driver.js';
import { pastVms } from './past.js';
import type { VmContext } from './place.js';
import { machines } from './sweep.js';

type Part = CleanEvidence['parts'][number];

/** Changes nothing. What was known of the nodes before they went comes from the record beside the fence. */
export async function proveVmsClean(
  context: VmContext,
  clusterId: string,
  nodes: readonly string[],
): Promise<CleanEvidence[]> {
  const past = await pastVms(context.folder, clusterId);
  // Where no machine was ever made there is no hypervisor to be asked, and none is started for it.
  const shared = existsSync(clustersFolder(context.folder)) ? await sharedParts(context, clusterId) : [];
  const boots = await Promise.all(nodes.map((node) => lastBootOf(context.folder, clusterId, node)));
  return nodes.map((node, index) => {
    const folder = nodeFolder(context.folder, clusterId, node);
    const parts = [{ what: 'folder and disks', found: present(folder) }, ...shared];
    return {
      node,
      method: 'vm-destroyed',
      isClean: parts.every(({ found }) => found === null),
      parts,
      imageHash: past?.imageHash ?? null,
      generation: past?.generation ?? null,
      hostKey: past?.hostKeys[node] ?? null,
      lastBootId: boots[index] ?? null,
    };
  });
}

const present = (path: string): string | null => (existsSync(path) ? path : null);

async function sharedParts(context: VmContext, id: string): Promise<Part[]> {
  const tag = await stateTag(context.folder);
  const { netns } = clusterNames(tag, id);
  const folder = clusterFolder(context.folder, id);
  const processes = processesOf(await hostProcesses(), { tag, id, folder });
  return [
    { what: 'cluster folder', found: present(folder) },
    { what: 'network namespace', found: (await networkNames()).includes(netns) ? netns : null },
    { what: 'processes', found: processes.length > 0 ? `pids ${processes.join(', ')}` : null },
    { what: 'virtual machines', found: await machinesLeft(context, tag, id) },
  ];
}

/** A hypervisor that cannot be asked has not said that there is nothing. */
async function machinesLeft(context: VmContext, tag: string, id: string): Promise<string | null> {
  try {
    const left = (await machines(tag, context)).filter((one) => one.id === id).map(({ name }) => name);
    return left.length > 0 ? left.join(', ') : null;
  } catch (error) {
    return `not known: ${messageOf(error)}`;
  }
}
