/** Finds and removes what crashed runs of this state folder left on the machine, and nothing of anyone else. */
import { readdir } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { errnoOf, messageOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import type { Backend, SweepReport } from '../driver.js';
import { groupPids } from './cgroup.js';
import { remnantsOf, throwIfLeft, type ClusterContext } from './cluster.js';
import { clusterFolder, clusterIds, clustersFolder } from './cluster-state.js';
import { act, fenceFolder, holdingOf, readFence } from './fence.js';
import { clusterNames, hierarchies, nodeGroups, stateTag } from './host.js';
import { hostProcesses, markedGenerations } from './host-processes.js';
import { networkNames } from './network.js';
import { pastOf } from './past.js';
import { sweepUidRanges } from './uid-range.js';

/** A cluster of which something is on the host, and what its fence said when it was found. */
interface Found {
  id: string;
  /** One sentence a part. */
  parts: string[];
  fenceText: string;
  /** Above every generation that was seen to have it. */
  above: number;
}

/**
 * Everything of clusters that `keep` does not name. Names on the host carry the tag of this state folder, so another
 * state folder's clusters are not seen at all. What is kept is asked after the search: what was made since is not seen.
 */
export async function sweepLeftovers(
  keep: Parameters<Backend['sweep']>[0],
  context: ClusterContext,
): Promise<SweepReport> {
  const report: SweepReport = { removed: [], failed: [] };
  if (!existsSync(context.stateFolder)) return report;
  const tag = await stateTag(context.stateFolder);
  const found = await search(tag, context);
  const units = await unitNames(tag);
  const kept = typeof keep === 'function' ? await keep() : keep;
  await sweepUnits(tag, units, (id) => kept.has(id), report);
  for (const one of found) if (!kept.has(one.id)) await retire(one, tag, context, report);
  const ours = clustersFolder(context.stateFolder);
  const isGone = (owner: string): boolean => dirname(owner) === ours && !existsSync(owner);
  for (const owner of await sweepUidRanges(isGone)) report.removed.push(`User id range of ${owner}.`);
  return report;
}

async function search(tag: string, context: ClusterContext): Promise<Found[]> {
  const parts = new Map<string, string[]>();
  const add = (id: string, part: string): void => void parts.set(id, [...(parts.get(id) ?? []), part]);
  const marked = markedGenerations(await hostProcesses(), tag);
  for (const id of marked.keys()) add(id, `Processes that acted on the cluster ${id}.`);
  for (const { id, text } of await groupsOf(tag, context)) add(id, text);
  const { netns: prefix } = clusterNames(tag, '');
  for (const name of await networkNames())
    if (name.startsWith(prefix)) add(name.slice(prefix.length), `Network namespace ${name}.`);
  for (const id of await clusterIds(context.stateFolder))
    add(id, `Cluster folder ${clusterFolder(context.stateFolder, id)}.`);
  return await Promise.all(
    [...parts].map(async ([id, found]) => {
      const { text, state } = await readFence(fenceFolder(context.stateFolder, id));
      const above = Math.max(state?.generation ?? 0, marked.get(id) ?? 0) + 1;
      return { id, parts: found, fenceText: text, above };
    }),
  );
}

/** Groups of our own supervisors; `infrabed.slice` is systemd's to remove. */
async function groupsOf(tag: string, context: ClusterContext): Promise<{ id: string; text: string }[]> {
  const found: { id: string; text: string }[] = [];
  const { unified } = context.layout;
  for (const root of hierarchies(context.layout)) {
    for (const name of await folderNames(join(root, 'infrabed'))) {
      if (!name.startsWith(`${tag}-`)) continue;
      const group = join(root, 'infrabed', name);
      const count = root === unified ? (await groupPids(group)).length : 0;
      const text = `Control group ${group}${count > 0 ? ` with ${String(count)} processes` : ''}.`;
      found.push({ id: name.slice(tag.length + 1), text });
    }
  }
  return found;
}

async function folderNames(folder: string): Promise<string[]> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

const retiredSchema = z.object({ isOthers: z.boolean(), left: z.array(z.string()) });

/** Whoever had it is fenced off and killed first, so that nothing is made again behind the removal. */
async function retire(
  found: Found,
  tag: string,
  context: ClusterContext,
  report: SweepReport,
): Promise<void> {
  const { id, above, fenceText } = found;
  try {
    const holding = holdingOf(context.stateFolder, { tag, id, generation: above });
    const nodes = Object.keys((await pastOf(context.stateFolder, id))?.hostKeys ?? {});
    const names = clusterNames(tag, id);
    const nodeGroup = (node: string): string => nodeGroups(context.layout, 'own', names, node).unified;
    const result = await act(holding, 'retire', {
      ...remnantsOf(context, tag, id),
      above,
      expected: fenceText,
      nodeGroups: nodes.map((node) => [node, nodeGroup(node)]),
    });
    // Somebody took it meanwhile: then it is not a remnant.
    if (retiredSchema.parse(result).isOthers) return;
    throwIfLeft(result, id);
    report.removed.push(...found.parts);
  } catch (error) {
    report.failed.push(`${found.parts.join(' ')} Not removed: ${messageOf(error)}`);
  }
}

async function unitNames(tag: string): Promise<string[]> {
  if (!existsSync('/run/systemd/system')) return [];
  const options = ['--all', '--plain', '--no-legend'];
  const { stdout } = await run('systemctl', ['list-units', ...options, `infrabed-${tag}-*.service`]);
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => line.trim().split(/\s+/)[0] ?? '');
}

/** Transient units of the host's systemd, whose stop also empties their groups. */
async function sweepUnits(
  tag: string,
  units: readonly string[],
  kept: (id: string) => boolean,
  report: SweepReport,
): Promise<void> {
  const prefix = `infrabed-${tag}-`;
  for (const unit of units) {
    // PREFIX CLUSTER - NODE .service: neither part is free of hyphens, so the kept ids decide.
    if (!unit.startsWith(prefix) || [...keptPrefixes(unit.slice(prefix.length))].some(kept)) continue;
    try {
      await run('systemctl', ['kill', '--signal=KILL', unit], { allowFailure: true });
      await run('systemctl', ['stop', unit], { timeoutMs: 60_000 });
      await run('systemctl', ['reset-failed', unit], { allowFailure: true });
      report.removed.push(`Unit ${unit}.`);
    } catch (error) {
      report.failed.push(`Unit ${unit}. Not removed: ${messageOf(error)}`);
    }
  }
}

/** `a-b-c.service` may be cluster `a` or `a-b`. */
function* keptPrefixes(rest: string): Generator<string> {
  for (let end = rest.indexOf('-'); end !== -1; end = rest.indexOf('-', end + 1)) yield rest.slice(0, end);
}
