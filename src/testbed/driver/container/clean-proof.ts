/** What is read back of a cluster that was taken down: every place where its nodes could have left something. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { CleanEvidence } from '../driver.js';
import { bmcGroup } from './bmc.js';
import type { ClusterContext } from './cluster.js';
import { clusterFolder, nodeFolder } from './cluster-state.js';
import {
  clusterNames,
  hierarchies,
  nodeGroups,
  slice,
  stateTag,
  type ClusterNames,
  type SupervisorMode,
} from './host.js';
import { hostProcesses, processesOf } from './host-processes.js';
import { networkNames } from './network.js';
import { lastBootOf, pastOf, type Past } from './past.js';
import { sharedUidBase } from './uid-mapping.js';
import { rangeOwnerOf, rangeOwners } from './uid-range.js';

/** Changes nothing. What was known of the nodes before they went comes from the record beside the fence. */
export async function proveClean(
  context: ClusterContext,
  clusterId: string,
  nodes: readonly string[],
): Promise<CleanEvidence[]> {
  const past = await pastOf(context.stateFolder, clusterId);
  const shared = await sharedParts(context, clusterId, past);
  const tag = await stateTag(context.stateFolder);
  const boots = await Promise.all(nodes.map((node) => lastBootOf(context.stateFolder, clusterId, node)));
  return nodes.map((node, index) => {
    const parts = [...nodeParts(context, tag, clusterId, node), ...shared];
    return {
      node,
      method: 'container-destroyed',
      isClean: parts.every(({ found }) => found === null),
      parts,
      imageHash: past?.imageHash ?? null,
      generation: past?.generation ?? null,
      hostKey: past?.hostKeys[node] ?? null,
      lastBootId: boots[index] ?? null,
    };
  });
}

type Part = CleanEvidence['parts'][number];

const present = (path: string): string | null => (existsSync(path) ? path : null);

function nodeParts(context: ClusterContext, tag: string, id: string, node: string): Part[] {
  const names = clusterNames(tag, id);
  const groups = hierarchies(context.layout).map((root) => join(root, names.group, node));
  if (context.layout.unified !== undefined)
    groups.push(join(context.layout.unified, slice, `${names.unitPrefix}${node}.service`));
  return [
    {
      what: 'bmc',
      found: present(join(nodeFolder(context.stateFolder, id, node), 'bmc')) ?? bmcGroupOf(context, names),
    },
    { what: 'folder', found: present(nodeFolder(context.stateFolder, id, node)) },
    { what: 'control groups', found: groups.find((group) => existsSync(group)) ?? null },
  ];
}

/** Where the supervisor of the cluster's BMCs runs; their addresses go with the network. */
function bmcGroupOf(context: ClusterContext, names: ClusterNames): string | null {
  const modes: SupervisorMode[] = ['own', 'host-systemd'];
  const groups = modes.flatMap((mode) => nodeGroups(context.layout, mode, names, bmcGroup).all);
  return groups.find((group) => existsSync(group)) ?? null;
}

/** What the nodes of a cluster have together. */
async function sharedParts(context: ClusterContext, id: string, past?: Past): Promise<Part[]> {
  const tag = await stateTag(context.stateFolder);
  const { netns } = clusterNames(tag, id);
  const folder = clusterFolder(context.stateFolder, id);
  const all = await hostProcesses();
  // Asked after the search: a range that was given back may be another cluster's by now, and so may its processes.
  const uidBase = past === undefined ? undefined : await ownRange(past.uidBase, folder);
  const processes = processesOf(all, { tag, id, folder, ...(uidBase === undefined ? {} : { uidBase }) });
  const claims = (await rangeOwners()).includes(folder);
  return [
    { what: 'cluster folder', found: present(folder) },
    { what: 'network namespace', found: (await networkNames()).includes(netns) ? netns : null },
    { what: 'processes', found: processes.length > 0 ? `pids ${processes.join(', ')}` : null },
    { what: 'user id range', found: claims ? `claimed by ${folder}` : null },
  ];
}

/** The range, unless it is another's: all clusters have the same one where layers are copied. */
async function ownRange(uidBase: number, folder: string): Promise<number | undefined> {
  if (uidBase === sharedUidBase) return undefined;
  const owner = await rangeOwnerOf(uidBase);
  return owner === undefined || owner === folder ? uidBase : undefined;
}
