/** What of the host the backend stands on: its control groups, its init, and the names we give to what we make. */
import { existsSync, readFileSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256 } from '../../../core/ids.js';

/** Who keeps nodes powered on: the host's systemd, or our own small supervisor. */
export type SupervisorMode = 'host-systemd' | 'own';

export interface CgroupLayout {
  /** Mount point of cgroup2, or undefined where there is none. */
  unified: string | undefined;
  /** Mount point of systemd's named hierarchy of version 1, where there is one. */
  legacySystemd: string | undefined;
  /** Mount point of the process counter of version 1, where it is not part of cgroup2. */
  pids: string | undefined;
}

/** Mount points of all hierarchies that nodes are in. */
export function hierarchies({ unified, legacySystemd, pids }: CgroupLayout): string[] {
  return [unified, legacySystemd, pids].filter((root): root is string => root !== undefined);
}

/** Reads the layout from the kernel's mount table; a pure function of its text. */
export function cgroupLayout(mountTable: string = readFileSync('/proc/self/mounts', 'utf8')): CgroupLayout {
  const layout: CgroupLayout = { unified: undefined, legacySystemd: undefined, pids: undefined };
  for (const line of mountTable.split('\n')) {
    const [, point, kind, options] = line.split(' ');
    if (point === undefined || !point.startsWith('/sys/fs/cgroup')) continue;
    if (kind === 'cgroup2') layout.unified ??= point;
    if (kind !== 'cgroup') continue;
    const controllers = options?.split(',') ?? [];
    if (controllers.includes('name=systemd')) layout.legacySystemd ??= point;
    if (controllers.includes('pids')) layout.pids ??= point;
  }
  return layout;
}

/** systemd's own test for "booted with systemd" (sd_booted(3)). INFRABED_SUPERVISOR overrides it. */
export function supervisorMode(env: NodeJS.ProcessEnv = process.env): SupervisorMode {
  const wanted = env['INFRABED_SUPERVISOR'];
  if (wanted === 'own' || wanted === 'host-systemd') return wanted;
  return existsSync('/run/systemd/system') ? 'host-systemd' : 'own';
}

/** Six hex digits that tell the clusters of one state folder from those of another. */
export async function stateTag(stateFolder: string): Promise<string> {
  return sha256(await realpath(stateFolder)).slice(0, 6);
}

/** Names of everything that a cluster has on the host. All start alike, so that a sweep knows its own. */
export interface ClusterNames {
  /** Network namespace, as `ip netns` shows it. */
  netns: string;
  netnsPath: string;
  /** Control group below the root of each hierarchy, in the mode `own`. */
  group: string;
  /** What the systemd units of its nodes start with. */
  unitPrefix: string;
}

export const slice = 'infrabed.slice';

export function clusterNames(tag: string, clusterId: string): ClusterNames {
  const netns = `ib-${tag}-${clusterId}`;
  return {
    netns,
    netnsPath: `/run/netns/${netns}`,
    group: `infrabed/${tag}-${clusterId}`,
    unitPrefix: `infrabed-${tag}-${clusterId}-`,
  };
}

/** Where one node's processes are. */
export interface NodeGroups {
  /** Mount point of cgroup2. */
  root: string;
  /** The cgroup2 folder: whether it is populated is whether the node is on. */
  unified: string;
  /** Folders in all hierarchies, for a supervisor that has to move itself there. */
  all: string[];
}

export function nodeGroups(
  layout: CgroupLayout,
  mode: SupervisorMode,
  names: ClusterNames,
  node: string,
): NodeGroups {
  const root = layout.unified ?? '/sys/fs/cgroup';
  if (mode === 'host-systemd') {
    const unified = join(root, slice, `${names.unitPrefix}${node}.service`);
    return { root, unified, all: [unified] };
  }
  const below = join(names.group, node);
  const others = hierarchies(layout).filter((other) => other !== layout.unified);
  const unified = join(root, below);
  return { root, unified, all: [...others.map((other) => join(other, below)), unified] };
}
