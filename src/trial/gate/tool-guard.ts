/**
 * The guard for backends without pristine programs: what checks rely on is compared with the opening of the window.
 * It asks with the node's own python3, so it finds what agents do, not what was made to deceive exactly this script.
 */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { throwIfAborted } from '../../core/clock.js';
import { lastLines } from '../../core/exec.js';
import { asset } from '../../core/paths.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';

const snapshotSchema = z.strictObject({
  /** Loader, shells, python3, preload, PATH, mounts over program folders: every check relies on them. */
  core: z.record(z.string(), z.string()),
  /** Real path and hash by name of the program. */
  programs: z.record(z.string(), z.string()),
});
export type ToolSnapshot = z.output<typeof snapshotSchema>;

/** @throws InfrabedError IB_NODE_UNREACHABLE, or IB_NODE_FAILED when the node does not answer with a snapshot. */
export async function snapshotTools(
  cluster: Cluster,
  node: string,
  programs: readonly string[],
  signal?: AbortSignal,
): Promise<ToolSnapshot> {
  const result = await cluster.ssh(node, {
    argv: ['/usr/bin/python3', '-I', '-', JSON.stringify(programs)],
    stdin: await readFile(asset('src/trial/gate/snapshot-tools.py'), 'utf8'),
    // An emulated machine hashes a hundred times slower than this one.
    timeoutMs: 180_000,
    ...(signal === undefined ? {} : { signal }),
  });
  const parsed = result.exitCode === 0 ? snapshotSchema.safeParse(jsonOf(result.stdout)) : undefined;
  if (parsed?.success) return parsed.data;
  const said = lastLines(result.stderr || result.stdout, 2);
  throw new InfrabedError('IB_NODE_FAILED', `The tools of ${node} could not be examined: ${said}`, {
    details: { node },
  });
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Names whose value is otherwise than before, came or went. */
export function changedTools(
  before: ToolSnapshot,
  after: ToolSnapshot,
): { core: string[]; programs: string[] } {
  const changed = (a: Record<string, string>, b: Record<string, string>): string[] =>
    [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((name) => a[name] !== b[name]).sort();
  return { core: changed(before.core, after.core), programs: changed(before.programs, after.programs) };
}

export interface ToolGuard {
  /** Compares every node with the opening of the window; gates call it before they look. */
  examine(signal: AbortSignal): Promise<void>;
  /** A sentence when something that a check on the node relies on was replaced. */
  replaced(node: string, programs: readonly string[]): string | undefined;
}

/** Takes the snapshots; to be called when the window opens. */
export async function openToolGuard(options: {
  cluster: Cluster;
  nodes: readonly string[];
  programs: readonly string[];
  signal?: AbortSignal;
}): Promise<ToolGuard> {
  const { cluster, nodes, programs, signal } = options;
  const before = new Map<string, ToolSnapshot>();
  for (const node of nodes) before.set(node, await snapshotTools(cluster, node, programs, signal));
  return new SnapshotGuard(cluster, before, programs);
}

class SnapshotGuard implements ToolGuard {
  private readonly found = new Map<string, { core: string[]; programs: string[] }>();

  constructor(
    private readonly cluster: Cluster,
    private readonly before: ReadonlyMap<string, ToolSnapshot>,
    private readonly programs: readonly string[],
  ) {}

  async examine(signal: AbortSignal): Promise<void> {
    for (const [node, before] of this.before) {
      this.found.delete(node);
      try {
        this.found.set(
          node,
          changedTools(before, await snapshotTools(this.cluster, node, this.programs, signal)),
        );
      } catch (error) {
        throwIfAborted(signal);
        // A node that cannot be reached is for the checks to attribute; one that answers strangely was changed.
        const failed = error instanceof InfrabedError && error.code === 'IB_NODE_FAILED';
        if (failed) this.found.set(node, { core: [messageOf(error)], programs: [] });
      }
    }
  }

  replaced(node: string, programs: readonly string[]): string | undefined {
    const found = this.found.get(node);
    if (found === undefined) return undefined;
    const concerned = [...found.core, ...found.programs.filter((name) => programs.includes(name))];
    if (concerned.length === 0) return undefined;
    return `On ${node} was changed, since the window was opened, what this check relies on: ${concerned.join(', ')}.`;
  }
}
