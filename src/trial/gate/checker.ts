/** The interface every checker implements: gather evidence from the cluster, then judge it by a pure function. */
import type { z } from 'zod';
import type { Cluster } from '../../testbed/cluster/cluster.js';
import type { DriftChange } from '../drift/drift.js';

/** Moments at which checks are made. `window` is the watch that runs from before the fault to the end. */
export const gates = ['immediate', 'running', 'reboot', 'decommission'] as const;
export type Gate = (typeof gates)[number];
export type Moment = Gate | 'window';

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

export interface CheckContext {
  cluster: Cluster;
  /** The node that the check names in `on`. */
  node: string;
  moment: Moment;
  signal: AbortSignal;
  /** Time for one command of this check: less than the check's own time-out, so that a hang becomes evidence. */
  commandTimeoutMs: number;
  /** Folder of the task package: for scripts that a check names. */
  taskDir: string;
  /**
   * Changes of the nodes since the baseline, and those that a fault-free control trial makes by itself.
   * The facts are gathered once a gate and shared by all checks.
   */
  drift: () => Promise<{
    changes: readonly DriftChange[];
    control: readonly DriftChange[];
    controlRecorded: boolean;
  }>;
}

export interface Judgement {
  verdict: 'pass' | 'fail';
  /** One sentence that a person can hold against the evidence. */
  why: string;
}

/**
 * A checker. `W` is its `with` table, `E` the evidence as it stands in the bundle.
 * `gather` throws when it could not look (never a 0, never an empty list); the gate finds out who is to blame.
 */
export interface Checker<W = unknown, E extends Json = Json> {
  readonly name: string;
  /** One line for `infrabed task lint` and the documents. */
  readonly summary: string;
  readonly with: z.ZodType<W>;
  readonly evidence: z.ZodType<E>;
  /**
   * Programs of the node that `gather` runs, beside shell and python3. Where a backend has no pristine copy of
   * them, the check fails when one was replaced.
   */
  readonly programs?: readonly string[];
  gather(context: CheckContext, parameters: W): Promise<E>;
  judge(evidence: E, parameters: W): Judgement;
}

/** Checkers by the name that `uses` gives: the explicit map that only the faces hand down. */
export type CheckerMap = ReadonlyMap<string, Checker>;

/** Keeps the types of one checker together while it is written; the map holds them erased. */
export function defineChecker<W, E extends Json>(checker: Checker<W, E>): Checker {
  return checker;
}
