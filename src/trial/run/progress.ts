/** What a trial keeps in the store so that another controller can go on with it: what was asked for, and how far it came. */
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import { driftFileSchema, manifestSchema } from '../../record/bundle/schema.js';
import { unitSnapshotSchema } from './close-nodes.js';
import type { Trial, TrialRequest } from './trial.js';

/** Of a request, what does not die with its process. The task itself lies in the bundle. */
const requestSchema = z.strictObject({
  version: z.literal(1),
  taskHash: z.string(),
  admitted: z.boolean(),
  agent: z.string(),
  attempt: z.number(),
  network: z.enum(['none', 'host']),
  keep: z.boolean(),
  control: z.boolean(),
  agentPaths: z.array(z.string()),
  /** A person's lease, or null for one of the trial's own. */
  lease: z.string().nullable(),
  nonce: z.string(),
  /** What made its nodes. Absent where an earlier version began the trial, when there was one backend. */
  backend: z.string().default('container'),
});
export type StoredRequest = z.output<typeof requestSchema>;

const progressSchema = z.strictObject({
  version: z.literal(1),
  /** Store names of the nodes, in the order of the task's. */
  nodes: z.array(z.string()),
  units: z.record(z.string(), unitSnapshotSchema),
  /** The tools of nodes without pristine programs are compared with the opening of the window, by this process only. */
  guarded: z.boolean(),
  windowOpenedAt: z.number().nullable(),
  timedOut: manifestSchema.shape.timedOut,
  agentExit: manifestSchema.shape.agentExit,
  coverage: manifestSchema.shape.coverage,
  timings: manifestSchema.shape.timings,
  gateSeconds: manifestSchema.shape.gateSeconds,
  drift: driftFileSchema,
  outcome: z
    .strictObject({
      ending: manifestSchema.shape.ending,
      error: manifestSchema.shape.error.unwrap().nullable(),
    })
    .nullable(),
  manifestText: z.string().nullable(),
});
export type Progress = z.output<typeof progressSchema>;

export function requestText(request: TrialRequest, nonce: string, backend: string): string {
  const stored: StoredRequest = {
    version: 1,
    taskHash: request.task.hash,
    admitted: request.admitted,
    agent: request.agent,
    attempt: request.attempt,
    network: request.network,
    keep: request.keep,
    control: request.control,
    agentPaths: [...request.agentPaths],
    lease: request.lease ?? null,
    nonce,
    backend,
  };
  return JSON.stringify(stored);
}

export function progressText(
  trial: Trial,
  describe: (error: unknown) => NonNullable<Progress['outcome']>['error'],
): string {
  const { outcome } = trial;
  const progress: Progress = {
    version: 1,
    nodes: [...trial.nodes],
    units: Object.fromEntries(trial.units),
    guarded: trial.guard !== undefined,
    windowOpenedAt: trial.background?.openedAt ?? null,
    timedOut: trial.timedOut,
    agentExit: trial.agentExit,
    coverage: trial.coverage,
    timings: trial.phases.timings,
    gateSeconds: trial.gateSeconds,
    drift: trial.drift,
    outcome:
      outcome === undefined
        ? null
        : {
            ending: outcome.ending,
            error: outcome.error === undefined ? null : describe(outcome.error),
          },
    manifestText: trial.manifestText ?? null,
  };
  return JSON.stringify(progress);
}

/** @throws InfrabedError IB_INTERRUPTED for a trial of an older version, or one that was killed before it began. */
export function storedRequest(trial: { id: string; request: string | null }): StoredRequest {
  return parse(trial.id, trial.request, requestSchema);
}

/** @throws InfrabedError IB_INTERRUPTED as storedRequest. */
export function storedProgress(trial: { id: string; progress: string | null }): Progress {
  return parse(trial.id, trial.progress, progressSchema);
}

function parse<T>(trial: string, text: string | null, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(text === null ? null : JSON.parse(text));
  if (parsed.success) return parsed.data;
  throw new InfrabedError(
    'IB_INTERRUPTED',
    `What the store holds of ${trial} is not enough to go on with it.`,
    { cause: parsed.error },
  );
}
