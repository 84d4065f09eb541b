/** The shape of task.toml: a Harbor / InfraBench package with infrabed's own tables beside theirs. */
import { z } from 'zod';

export const traps = [
  'not-persistent',
  'residue',
  'destructive-diagnosis',
  'hidden-config',
  'safety-bypass',
  'peer-damage',
  'surface-status',
  'harness-probing',
] as const;

/** Traps whose mutants pass every immediate check: that is their point. */
export const lateTraps: ReadonlySet<string> = new Set(['not-persistent', 'residue', 'hidden-config']);

export const riskCategories = [
  'destructive-filesystem',
  'storage-destruction',
  'network-disruption',
  'safety-bypass',
  'unsafe-restart',
  'cross-service-interference',
  'harness-probing',
  'evidence-destruction',
  'credential-exposure',
] as const;

const identifier = z.string().regex(/^[a-z0-9][a-z0-9-]*$/, 'lower-case letters, digits and dashes');

const node = z.strictObject({
  name: identifier,
  roles: z.array(identifier).default([]),
  /** false: the agent gets no route to this node (clients, observers). */
  agent: z.boolean().default(true),
  /** The task works with the node's BMC. */
  bmc: z.boolean().default(false),
  memory_mib: z.number().int().min(256).optional(),
  cpus: z.number().int().min(1).optional(),
  /** Sizes of empty data disks beside the system's own; virtual machines and bare metal have them. */
  disks_mib: z.array(z.number().int().min(16)).default([]),
  /** Slow data disks, by serial number (`data0`): I/O operations a second, kept from outside of the node. */
  disk_iops_sec: z.record(z.string(), z.number().int().min(1)).default({}),
  /** The node's own kernel, initramfs and boot loader count; virtual machines and bare metal have them. */
  boots_from_disk: z.boolean().default(false),
});

export const checkSchema = z.strictObject({
  id: identifier,
  gates: z.array(z.enum(['immediate', 'running', 'reboot', 'decommission', 'window'])).min(1),
  /** A module of checkers/, or `./checks/NAME.mjs` of the package itself. */
  uses: z.string().min(1),
  on: identifier,
  with: z.record(z.string(), z.unknown()).default({}),
  weight: z.number().positive().optional(),
  kind: z.enum(['scored', 'guard', 'hard']).default('scored'),
  class: z.enum(['functional', 'persistence', 'cleanup', 'safety']),
  trap: z.enum(traps).optional(),
  /** Share of probes that must pass in the running gate and in the window. */
  availability: z.number().min(0).max(1).default(1),
  /** Seconds between the probes of a window watch. */
  interval_sec: z.number().positive().default(2),
  timeout_sec: z.number().positive().default(30),
  /** Decommission gate only: made after the task's teardown.sh instead of before it. */
  after_teardown: z.boolean().default(false),
  /** What the agent was told, for residue checks: `instruction.md: ...` or `node0:/root/RUNBOOK.md: ...`, a literal piece of that text. */
  cites: z.string().min(1).optional(),
});

const workload = z.strictObject({
  name: identifier,
  on: identifier,
  /** A script of the package, run as root on the node from before the fault until after the last gate. */
  script: z.string().min(1),
});

export const taskSchema = z.looseObject({
  schema_version: z.string(),
  task: z.looseObject({
    name: z.string().regex(/^[a-z0-9-]+\/[a-z0-9][a-z0-9-]*$/, 'organisation/name in lower case'),
    description: z.string().min(1),
  }),
  metadata: z.looseObject({
    layer: z.enum(['L1', 'L2', 'L3', 'L4']),
    stage: z.enum(['deploy', 'operate', 'maintain', 'decommission']),
    difficulty: z.enum(['easy', 'medium', 'hard']),
    source: z.array(z.string()).default([]),
  }),
  agent: z.looseObject({ timeout_sec: z.number().positive() }),
  environment: z.looseObject({
    type: z.enum(['docker', 'container-cluster', 'vm', 'vm-cluster', 'cloudlab', 'metal']),
    layers: z.array(identifier).min(1).default(['os']),
    nodes: z.array(node).min(1),
  }),
  workload: z.array(workload).default([]),
  lifecycle: z
    .strictObject({
      running: z
        .strictObject({
          duration_sec: z.number().positive().default(30),
          interval_sec: z.number().positive().default(2),
        })
        .prefault({}),
      reboot: z
        .strictObject({
          /** Default: every node that the agent can reach. */
          nodes: z.array(identifier).optional(),
          order: z.enum(['together', 'one-by-one']).default('together'),
          /** So many power-cycles one after the other: what holds for the next boot only shows at the one after it. */
          times: z.number().int().min(1).max(5).default(1),
          settle_sec: z.number().min(0).default(5),
          timeout_sec: z.number().positive().default(120),
        })
        .prefault({}),
    })
    .prefault({}),
  checks: z.array(checkSchema).default([]),
  mutants: z
    .array(
      z.strictObject({
        /** Folder under mutants/: mutants/NAME/solve.sh. */
        name: identifier,
        trap: z.enum(traps),
        /** Ids of exactly the checks that this wrong fix fails. */
        caught_by: z.array(identifier).min(1),
      }),
    )
    .default([]),
  risk: z
    .strictObject({
      allow: z
        .array(
          z.strictObject({
            category: z.enum(riskCategories),
            node: identifier,
            resource: z.string().min(1),
            why: z.string().min(1),
          }),
        )
        .default([]),
    })
    .prefault({}),
});

export type TaskDefinition = z.output<typeof taskSchema>;
export type CheckDefinition = z.output<typeof checkSchema>;
export type TaskNode = z.output<typeof node>;

/** A loaded package. */
export interface TaskPackage {
  /** Absolute folder. */
  dir: string;
  definition: TaskDefinition;
  /** The part of the name behind the slash. */
  shortName: string;
  instruction: string;
  /** SHA-256 over every file of the package but admission.json. */
  hash: string;
  /** A Harbor package with only tests/test.sh: its reward file is the immediate gate. */
  foreign: boolean;
  /** What the loader filled in for a foreign package, one sentence each. */
  assumed?: readonly string[];
}
