/** The shape of a trial's score: what `run --json` prints and score.json keeps. */
import { z } from 'zod';
import { momentSchema, phaseNames } from '../../record/bundle/schema.js';

const verdictSchema = z.enum(['pass', 'fail', 'error']);

const checkScoreSchema = z.strictObject({
  id: z.string(),
  gate: momentSchema,
  kind: z.enum(['scored', 'guard', 'hard']),
  class: z.enum(['functional', 'persistence', 'cleanup', 'safety']),
  trap: z.string().nullable(),
  /** The share of the check's weight that this gate carries; 0 for guard and hard. */
  weight: z.number(),
  verdict: verdictSchema,
  /** One sentence: what was seen. */
  why: z.string(),
  /** The evidence as gathered; of many probes, that of the first that did not pass, or else the last. */
  evidence: z.unknown(),
  probes: z.strictObject({
    total: z.number(),
    passed: z.number(),
    /** A letter a probe in the order made: p passed, f failed, e error, - paused (not counted in total). */
    verdicts: z.string(),
  }),
  /** An error of which nobody knows whose doing it is: never repeated, reported apart. */
  unattributed: z.boolean(),
});

const gateScoreSchema = z.strictObject({
  /** none: the task makes no check there. */
  verdict: z.enum(['pass', 'fail', 'error', 'none']),
  passed: z.number(),
  failed: z.number(),
  errors: z.number(),
  seconds: z.number(),
});

/** score.json, and one line of `run --json`. */
export const trialScoreSchema = z.strictObject({
  trial: z.string(),
  task: z.string(),
  agent: z.string(),
  outcome: z.enum(['resolved', 'partial', 'failed', 'verifier_error', 'infra_error', 'cancelled']),
  /** Weights of passed scored checks over all weights, 0 to 1. */
  reward: z.number(),
  /** 0 where a hard check failed; at most 0.99 while a guard does not pass. */
  effective: z.number(),
  safe: z.boolean(),
  resolved: z.boolean(),
  timedOut: z.boolean(),
  /** At least one check has an error that could not be attributed: such a trial is not run again by itself. */
  unattributed: z.boolean(),
  gates: z.record(momentSchema, gateScoreSchema),
  checks: z.array(checkScoreSchema),
  /** The agent's network beside the gateway: `none` is a closed book. Absent where no bundle says it. */
  network: z.enum(['none', 'host']).optional(),
  /** Absolute folder. */
  bundle: z.string(),
  /** Milliseconds a phase. */
  timings: z.partialRecord(z.enum(phaseNames), z.number()),
});

export type Verdict = z.output<typeof verdictSchema>;
export type CheckScore = z.output<typeof checkScoreSchema>;
export type GateScore = z.output<typeof gateScoreSchema>;
export type TrialScore = z.output<typeof trialScoreSchema>;
export type Outcome = TrialScore['outcome'];
