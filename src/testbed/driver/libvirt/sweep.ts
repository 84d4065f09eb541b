/** Finds and removes what crashed runs of this state folder left of virtual machines, and nothing of anyone else. */
import { existsSync } from 'node:fs';
import { z } from 'zod';
import { messageOf } from '../../../core/errors.js';
import { clusterFolder, clusterIds, clustersFolder } from '../container/cluster-state.js';
import { fenceFolder, holdingOf, readFence } from '../container/fence.js';
import { clusterNames, stateTag } from '../container/host.js';
import { hostProcesses, markedGenerations } from '../container/host-processes.js';
import { networkNames } from '../container/network.js';
import type { Backend, SweepReport } from '../driver.js';
import { throwIfLeft } from './cluster.js';
import { domainPrefix } from './cluster-state.js';
import { reachHypervisor, virsh } from './hypervisor.js';
import { remnantsOf, vmAct, type VmContext } from './place.js';

/** A cluster of which something is on the host, and what its fence said when it was found. */
interface Found {
  id: string;
  /** One sentence a part. */
  parts: string[];
  fenceText: string;
  /** Above every generation that was seen to have it. */
  above: number;
}

/** Everything of clusters that `keep` does not name. What is kept is asked after the search. */
export async function sweepVms(
  keep: Parameters<Backend['sweep']>[0],
  context: VmContext,
): Promise<SweepReport> {
  const report: SweepReport = { removed: [], failed: [] };
  // Without the folder no machine was ever made here: then nothing starts a hypervisor just to hear that.
  if (!existsSync(clustersFolder(context.folder))) return report;
  const tag = await stateTag(context.folder);
  const { found, silence } = await search(tag, context);
  if (silence !== undefined) report.failed.push(silence);
  const kept = typeof keep === 'function' ? await keep() : keep;
  for (const one of found) if (!kept.has(one.id)) await retire(one, tag, context, report);
  return report;
}

async function search(tag: string, context: VmContext): Promise<{ found: Found[]; silence?: string }> {
  const parts = new Map<string, string[]>();
  const add = (id: string, part: string): void => void parts.set(id, [...(parts.get(id) ?? []), part]);
  const marked = markedGenerations(await hostProcesses(), tag);
  for (const id of marked.keys()) add(id, `Processes that acted on the cluster ${id}.`);
  const { netns: prefix } = clusterNames(tag, '');
  for (const name of await networkNames())
    if (name.startsWith(prefix)) add(name.slice(prefix.length), `Network namespace ${name}.`);
  for (const id of await clusterIds(context.folder))
    add(id, `Cluster folder ${clusterFolder(context.folder, id)}.`);
  let silence: string | undefined;
  try {
    for (const { id, name } of await machines(tag, context)) add(id, `Virtual machine ${name}.`);
  } catch (error) {
    silence = `Virtual machines were not looked for: ${messageOf(error)}`;
  }
  const found = await Promise.all(
    [...parts].map(async ([id, sentences]) => {
      const { text, state } = await readFence(fenceFolder(context.folder, id));
      const above = Math.max(state?.generation ?? 0, marked.get(id) ?? 0) + 1;
      return { id, parts: sentences, fenceText: text, above };
    }),
  );
  return { found, ...(silence === undefined ? {} : { silence }) };
}

/** The hypervisor's machines of this state folder. */
export async function machines(tag: string, context: VmContext): Promise<{ id: string; name: string }[]> {
  await reachHypervisor(context.hypervisor);
  const names = (await virsh(context.hypervisor, ['list', '--all', '--name'])).split('\n').filter(Boolean);
  const prefix = domainPrefix(tag, '');
  return names.flatMap((name) => {
    const dot = name.lastIndexOf('.');
    return name.startsWith(prefix) && dot > prefix.length
      ? [{ id: name.slice(prefix.length, dot), name }]
      : [];
  });
}

const retiredSchema = z.object({ isOthers: z.boolean(), left: z.array(z.string()) });

/** Whoever had it is fenced off and killed first, so that nothing is made again behind the removal. */
async function retire(found: Found, tag: string, context: VmContext, report: SweepReport): Promise<void> {
  const { id, above, fenceText } = found;
  try {
    const holding = holdingOf(context.folder, { tag, id, generation: above });
    const request = { ...remnantsOf(context, tag, id), above, expected: fenceText };
    const result = await vmAct(holding, 'retire', request);
    // Somebody took it meanwhile: then it is not a remnant.
    if (retiredSchema.parse(result).isOthers) return;
    throwIfLeft(result, id);
    report.removed.push(...found.parts);
  } catch (error) {
    report.failed.push(`${found.parts.join(' ')} Not removed: ${messageOf(error)}`);
  }
}
