/**
 * The folder a trial leaves: every file in it, its name and its shape.
 * Trial writes it, review reads it, and neither imports the other.
 */
import { z } from 'zod';

export const bundleVersion = 1;

/** Names of the files, relative to the bundle. */
export const bundleFiles = {
  manifest: 'bundle.json',
  ledger: 'ledger.jsonl',
  seal: 'ledger.seal.json',
  evidence: 'evidence.jsonl',
  /** Looks of a gate that its controller did not live to finish, set aside when another made the gate again. */
  interrupted: 'evidence-interrupted.jsonl',
  drift: 'drift.json',
  task: 'task',
  facts: 'facts',
  sessions: 'sessions',
  objects: 'objects',
  console: 'console',
  agent: 'agent',
  score: 'score.json',
  report: 'report.html',
} as const;

export const momentSchema = z.enum(['immediate', 'running', 'reboot', 'decommission', 'window']);

/** One look of one check. The running gate and the window leave many, numbered by `probe`. */
export const evidenceSchema = z.strictObject({
  check: z.string(),
  moment: momentSchema,
  probe: z.number().int().min(0),
  /** Epoch milliseconds. */
  at: z.number(),
  durationMs: z.number(),
  /**
   * gathered: `evidence` holds it. tampered: a program it relies on was replaced. unreachable: the node could not
   * be asked, `blame` says whose doing that is. fault: the checker itself threw.
   * paused: not made, because the controller itself was rebooting the node, or was not there.
   */
  outcome: z.enum(['gathered', 'tampered', 'unreachable', 'fault', 'paused']),
  blame: z.enum(['node', 'infrastructure', 'unknown']).optional(),
  evidence: z.unknown().optional(),
  error: z.strictObject({ code: z.string(), message: z.string() }).optional(),
});
export type EvidenceRecord = z.output<typeof evidenceSchema>;

export const phaseNames = [
  'lease',
  'provision',
  'baseline',
  'bootstrap',
  'agent',
  'close',
  'immediate',
  'running',
  'reboot',
  'decommission',
  'seal',
  'clean',
  'release',
] as const;
export type PhaseName = (typeof phaseNames)[number];

/** bundle.json: what was run, on what, how it went; written last, so that its presence says the bundle is whole. */
export const manifestSchema = z.strictObject({
  version: z.literal(bundleVersion),
  infrabed: z.string(),
  trial: z.string(),
  task: z.strictObject({ name: z.string(), hash: z.string(), admitted: z.boolean() }),
  agent: z.string(),
  /** oracle, noop, mutant, script, command */
  agentKind: z.string(),
  attempt: z.number().int().min(1),
  startedAt: z.number(),
  endedAt: z.number(),
  backend: z.string(),
  imageHash: z.string(),
  /** `none` is a closed book. */
  network: z.enum(['none', 'host']),
  nonce: z.string(),
  nodes: z.array(
    z.strictObject({
      name: z.string(),
      address: z.string(),
      roles: z.array(z.string()),
      agent: z.boolean(),
      hostKey: z.string(),
    }),
  ),
  /** completed: all gates were made. Otherwise why not; the gates made before still stand in the evidence. */
  ending: z.enum(['completed', 'infra_error', 'cancelled']),
  error: z.strictObject({ code: z.string(), message: z.string(), hint: z.string().optional() }).optional(),
  timedOut: z.boolean(),
  agentExit: z
    .strictObject({ exitCode: z.number().nullable(), signal: z.string().nullable(), durationMs: z.number() })
    .nullable(),
  /** How far the record reaches, said to readers of the report, one sentence each. */
  coverage: z.array(z.string()),
  /** Milliseconds a phase. */
  timings: z.partialRecord(z.enum(phaseNames), z.number()),
  gateSeconds: z.partialRecord(momentSchema, z.number()),
  /** Software of the controller: node, systemd-nspawn, kernel, ... */
  versions: z.record(z.string(), z.string()),
});
export type Manifest = z.output<typeof manifestSchema>;

/** drift.json */
export const driftChangeSchema = z.strictObject({
  node: z.string(),
  kind: z.string(),
  subject: z.string(),
  change: z.enum(['added', 'removed', 'changed']),
  before: z.string().nullable(),
  after: z.string().nullable(),
});
export const driftFileSchema = z.strictObject({
  /** Changes against the baseline at each gate. */
  gates: z.partialRecord(momentSchema, z.array(driftChangeSchema)),
  /** What a fault-free control trial changes by itself. */
  control: z.array(driftChangeSchema),
  controlRecorded: z.boolean(),
});
export type DriftFile = z.output<typeof driftFileSchema>;
