/**
 * What a node is and has at one moment, gathered by one script on the node and parsed here.
 * Comparing two of these is trial/drift.
 */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import { asset } from '../../core/paths.js';
import type { CommandResult, NodeCommand } from '../driver/driver.js';

const fileFact = z.object({
  type: z.enum(['file', 'directory', 'symlink', 'other']),
  /** Four octal digits. */
  mode: z.string(),
  owner: z.string(),
  group: z.string(),
  sizeBytes: z.number().optional(),
  /** Of regular files in the trees whose contents are read. */
  sha256: z.string().optional(),
  /** `mtime.ctime` in nanoseconds, of files in the large system trees, whose contents are not read. */
  stamp: z.string().optional(),
  target: z.string().optional(),
});
export type FileFact = z.output<typeof fileFact>;

/** A kind is null where the node could not be asked about it; `notes` says why. */
export const nodeFactsSchema = z.object({
  version: z.literal(1),
  node: z.string(),
  /** Epoch milliseconds. */
  gatheredAt: z.number(),
  durationMs: z.number(),
  /** `name:architecture`. */
  packages: z.record(z.string(), z.object({ version: z.string(), status: z.string() })),
  units: z
    .record(
      z.string(),
      z.object({
        enabled: z.string().optional(),
        load: z.string().optional(),
        active: z.string().optional(),
        sub: z.string().optional(),
      }),
    )
    .nullable(),
  /** Timer unit and the unit it starts. */
  timers: z.record(z.string(), z.string()).nullable(),
  files: z.record(z.string(), fileFact),
  users: z.record(
    z.string(),
    z.object({
      uid: z.number(),
      gid: z.string(),
      home: z.string(),
      shell: z.string(),
      /** locked, empty, none, or `set:` and a short hash of the hash. */
      password: z.string(),
    }),
  ),
  groups: z.record(z.string(), z.object({ gid: z.number(), members: z.array(z.string()) })),
  authorizedKeys: z.array(
    z.object({ user: z.string(), fingerprint: z.string(), comment: z.string(), options: z.string() }),
  ),
  /** Lines in force, by file. */
  sudoers: z.record(z.string(), z.array(z.string())),
  cron: z.record(z.string(), z.array(z.string())),
  mounts: z.array(
    z.object({
      target: z.string(),
      root: z.string(),
      options: z.string(),
      type: z.string(),
      source: z.string(),
    }),
  ),
  /** Listening ones only. */
  sockets: z
    .array(z.object({ protocol: z.string(), local: z.string(), processes: z.array(z.string()) }))
    .nullable(),
  /** Text of each nftables table, without counters and handles, by `family name`. */
  firewall: z.record(z.string(), z.string()).nullable(),
  sysctls: z.record(z.string(), z.string()),
  routes: z
    .array(
      z.object({
        family: z.string(),
        destination: z.string(),
        table: z.string(),
        device: z.string(),
        gateway: z.string(),
        protocol: z.string(),
        metric: z.number(),
        type: z.string(),
        options: z.string(),
      }),
    )
    .nullable(),
  rules: z.array(z.string()).nullable(),
  links: z
    .record(
      z.string(),
      z.object({
        mtu: z.number(),
        flags: z.array(z.string()),
        master: z.string(),
        addresses: z.array(z.string()),
      }),
    )
    .nullable(),
  /** What could not be looked at, one sentence each. */
  notes: z.array(z.string()),
});
export type NodeFacts = z.output<typeof nodeFactsSchema>;

/** What gathering needs of a cluster: its trusted way to run a command. */
export interface FactsSource {
  exec(node: string, command: NodeCommand): Promise<CommandResult>;
}

export interface GatherOptions {
  /** Further folders whose files are recorded with the hash of their contents. */
  trees?: readonly string[];
  signal?: AbortSignal;
  timeoutMs?: number;
  /** Epoch milliseconds; default the system's clock. */
  now?: () => number;
}

const script = asset('src/testbed/facts/gather-facts.py');
const maxFactsBytes = 64 * 1024 * 1024;

/**
 * Records the facts of one node; about half a second on a container, many on an emulated machine.
 * @throws InfrabedError IB_NODE_UNREACHABLE or IB_NODE_OFF from the source, IB_NODE_FAILED when the script fails
 *   or what it prints has another shape.
 */
export async function gatherFacts(
  source: FactsSource,
  node: string,
  options: GatherOptions = {},
): Promise<NodeFacts> {
  const now = options.now ?? Date.now;
  const begun = now();
  const result = await source.exec(node, {
    argv: ['python3', '-I', '-', JSON.stringify({ trees: options.trees ?? [] })],
    stdin: await readFile(script),
    timeoutMs: options.timeoutMs ?? 180_000,
    maxOutputBytes: maxFactsBytes,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  if (result.exitCode !== 0 || result.truncated) throw gatheringFailed(node, result);
  return parseFacts(node, result.stdout, { gatheredAt: begun, durationMs: now() - begun });
}

/** Facts from the script's output. @throws InfrabedError IB_NODE_FAILED. */
export function parseFacts(
  node: string,
  output: string,
  times: { gatheredAt: number; durationMs: number },
): NodeFacts {
  let raw: unknown;
  try {
    raw = JSON.parse(output);
  } catch (error) {
    throw new InfrabedError('IB_NODE_FAILED', `The facts of ${node} are not JSON.`, { cause: error });
  }
  const parsed = nodeFactsSchema.safeParse({ ...(raw as object), version: 1, node, ...times });
  if (!parsed.success) {
    throw new InfrabedError('IB_NODE_FAILED', `The facts of ${node} have another shape than expected.`, {
      details: { problems: z.prettifyError(parsed.error).slice(0, 1000) },
    });
  }
  return parsed.data;
}

function gatheringFailed(node: string, result: CommandResult): InfrabedError {
  const how = result.timedOut
    ? 'did not end in time'
    : result.truncated
      ? `printed more than ${String(maxFactsBytes)} bytes`
      : `ended with ${result.signal ?? `status ${String(result.exitCode)}`}: ${lastLines(result.stderr, 2)}`;
  return new InfrabedError(
    'IB_NODE_FAILED',
    `The facts of ${node} could not be gathered: the script ${how}.`,
    {
      hint: 'Look at the console of the node in the bundle.',
      details: { exitCode: result.exitCode, signal: result.signal, timedOut: result.timedOut },
    },
  );
}
