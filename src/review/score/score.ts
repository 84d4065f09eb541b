/** The shape of a trial's score: what `run --json` prints and score.json keeps. */
import type { PhaseName } from '../../record/bundle/schema.js';

export type Verdict = 'pass' | 'fail' | 'error';
export type Outcome =
  | 'resolved'
  | 'partial'
  | 'failed'
  | 'verifier_error'
  | 'infra_error'
  | 'cancelled';

export interface CheckScore {
  id: string;
  gate: 'immediate' | 'running' | 'reboot' | 'decommission' | 'window';
  kind: 'scored' | 'guard' | 'hard';
  class: 'functional' | 'persistence' | 'cleanup' | 'safety';
  trap: string | null;
  /** The share of the check's weight that this gate carries; 0 for guard and hard. */
  weight: number;
  verdict: Verdict;
  /** One sentence: what was seen. */
  why: string;
  /** The evidence as gathered (of many probes: the first that failed, or the last), with counts. */
  evidence: unknown;
  probes: { total: number; passed: number };
}

export interface GateScore {
  verdict: Verdict | 'none';
  passed: number;
  failed: number;
  errors: number;
  seconds: number;
}

export interface TrialScore {
  trial: string;
  task: string;
  agent: string;
  outcome: Outcome;
  reward: number;
  effective: number;
  safe: boolean;
  resolved: boolean;
  timedOut: boolean;
  gates: Record<'immediate' | 'running' | 'reboot' | 'decommission' | 'window', GateScore>;
  checks: CheckScore[];
  bundle: string;
  timings: Partial<Record<PhaseName, number>>;
}
