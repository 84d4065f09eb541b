/** Finds and removes what crashed runs of this state folder left on the machine, and nothing of anyone else. */
import { readdir, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { errnoOf, isInfrabedError, messageOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import type { Backend, SweepReport } from '../driver.js';
import { emptyGroup, groupPids, removeGroup } from './cgroup.js';
import { removeRemnants, type ClusterContext } from './cluster.js';
import { clusterFolder, clusterIds, clustersFolder, readClusterState } from './cluster-state.js';
import { hierarchies, stateTag } from './host.js';
import { networkNames, removeNetwork } from './network.js';
import { sweepUidRanges } from './uid-range.js';

/**
 * Everything of clusters that `keep` does not name: processes first, then groups, namespaces, folders, uid ranges.
 * Names on the host carry the tag of this state folder, so another state folder's clusters are not seen at all.
 */
export async function sweepLeftovers(
  keep: Parameters<Backend['sweep']>[0],
  context: ClusterContext,
): Promise<SweepReport> {
  const report: SweepReport = { removed: [], failed: [] };
  if (!existsSync(context.stateFolder)) return report;
  const tag = await stateTag(context.stateFolder);
  const keepNow = typeof keep === 'function' ? await keep() : keep;
  const kept = (id: string): boolean => keepNow.has(id);
  await sweepUnits(tag, kept, report);
  await sweepGroups(tag, kept, context, report);
  await sweepNetworks(tag, kept, report);
  await sweepFolders(kept, context, report);
  const ours = clustersFolder(context.stateFolder);
  const isGone = (owner: string): boolean => dirname(owner) === ours && !existsSync(owner);
  for (const owner of await sweepUidRanges(isGone)) report.removed.push(`User id range of ${owner}.`);
  return report;
}

async function attempt(what: string, report: SweepReport, work: () => Promise<void>): Promise<void> {
  try {
    await work();
    report.removed.push(what);
  } catch (error) {
    report.failed.push(`${what} Not removed: ${messageOf(error)}`);
  }
}

/** Transient units of the host's systemd, whose stop also empties their groups. */
async function sweepUnits(tag: string, kept: (id: string) => boolean, report: SweepReport): Promise<void> {
  if (!existsSync('/run/systemd/system')) return;
  const prefix = `infrabed-${tag}-`;
  const { stdout } = await run('systemctl', [
    'list-units',
    '--all',
    '--plain',
    '--no-legend',
    `${prefix}*.service`,
  ]);
  for (const line of stdout.split('\n').filter(Boolean)) {
    const unit = line.trim().split(/\s+/)[0] ?? '';
    // PREFIX CLUSTER - NODE .service: neither part is free of hyphens, so the kept ids decide.
    const rest = unit.slice(prefix.length);
    if (!unit.startsWith(prefix) || [...keptPrefixes(rest)].some(kept)) continue;
    await attempt(`Unit ${unit}.`, report, async () => {
      await run('systemctl', ['kill', '--signal=KILL', unit], { allowFailure: true });
      await run('systemctl', ['stop', unit], { timeoutMs: 60_000 });
      await run('systemctl', ['reset-failed', unit], { allowFailure: true });
    });
  }
}

/** `a-b-c.service` may be cluster `a` or `a-b`. */
function* keptPrefixes(rest: string): Generator<string> {
  for (let end = rest.indexOf('-'); end !== -1; end = rest.indexOf('-', end + 1)) yield rest.slice(0, end);
}

/** Groups of our own supervisors; `infrabed.slice` is systemd's to remove. */
async function sweepGroups(
  tag: string,
  kept: (id: string) => boolean,
  context: ClusterContext,
  report: SweepReport,
): Promise<void> {
  const { unified } = context.layout;
  for (const root of hierarchies(context.layout)) {
    for (const name of await folderNames(join(root, 'infrabed'))) {
      if (!name.startsWith(`${tag}-`) || kept(name.slice(tag.length + 1))) continue;
      const group = join(root, 'infrabed', name);
      const count = root === unified ? (await groupPids(group)).length : 0;
      await attempt(
        `Control group ${group}${count > 0 ? ` with ${String(count)} processes` : ''}.`,
        report,
        async () => {
          if (root === unified) await emptyGroup(group);
          await removeGroup(group);
        },
      );
    }
  }
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

async function sweepNetworks(tag: string, kept: (id: string) => boolean, report: SweepReport): Promise<void> {
  const prefix = `ib-${tag}-`;
  for (const name of await networkNames()) {
    if (!name.startsWith(prefix) || kept(name.slice(prefix.length))) continue;
    await attempt(`Network namespace ${name}.`, report, () => removeNetwork(name));
  }
}

async function sweepFolders(
  kept: (id: string) => boolean,
  context: ClusterContext,
  report: SweepReport,
): Promise<void> {
  for (const id of await clusterIds(context.stateFolder)) {
    if (kept(id)) continue;
    const folder = clusterFolder(context.stateFolder, id);
    await attempt(`Cluster folder ${folder}.`, report, async () => {
      try {
        await removeRemnants(await readClusterState(context.stateFolder, id), context);
      } catch (error) {
        // A folder whose record was never written, or is broken, has nothing to tell: its groups went above.
        if (!isInfrabedError(error, 'IB_CLUSTER_UNKNOWN') && !isInfrabedError(error, 'IB_STATE_DIR'))
          throw error;
        await rm(folder, { recursive: true, force: true });
      }
    });
  }
}
