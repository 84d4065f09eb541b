/** One look of one check: gather within its time-out, or say why it could not be made. */
import { deadline, throwIfAborted, type Clock } from '../../core/clock.js';
import { InfrabedError, messageOf } from '../../core/errors.js';
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';
import type { CheckDefinition } from '../task/schema.js';
import { attribute, isConnectionError } from './attribution.js';
import type { CheckContext, Checker, CheckerMap, Json, Moment } from './checker.js';
import { loadLocalChecker } from './local-checker.js';
import type { ToolGuard } from './tool-guard.js';

/** What every gate and the window are given. */
export interface GateOptions {
  /** The task's effective checks; each gate takes those that name it. */
  checks: readonly CheckDefinition[];
  cluster: Cluster;
  checkers: CheckerMap;
  /** Folder of the task package. */
  taskDir: string;
  /** Differences since the baseline; called at most once a gate, when a check asks. */
  drift: CheckContext['drift'];
  clock: Clock;
  signal: AbortSignal;
  /** Takes each record, in a stable order. What it throws ends the gate. */
  onEvidence: (record: EvidenceRecord) => void | Promise<void>;
  /** Where the backend has no pristine programs. */
  guard?: ToolGuard;
}

/** A check with its checker and parsed parameters, or the reason why it has none. */
export interface PreparedCheck {
  check: CheckDefinition;
  ready: { checker: Checker; parameters: unknown } | { error: InfrabedError };
}

/** The checks of a moment, prepared. A checker that cannot be had is a fault of its check alone. */
export function prepareChecks(
  { checks, checkers, taskDir }: Pick<GateOptions, 'checks' | 'checkers' | 'taskDir'>,
  moment: Moment,
): PreparedCheck[] {
  return checks
    .filter(({ gates }) => gates.includes(moment))
    .map((check) => {
      try {
        return { check, ready: prepare(check, checkers, taskDir) };
      } catch (error) {
        if (!(error instanceof InfrabedError)) throw error;
        return { check, ready: { error } };
      }
    });
}

function prepare(
  check: CheckDefinition,
  checkers: CheckerMap,
  taskDir: string,
): { checker: Checker; parameters: unknown } {
  const checker = check.uses.startsWith('.')
    ? loadLocalChecker(`${taskDir}/${check.uses}`)
    : checkers.get(check.uses);
  if (checker === undefined) {
    throw new InfrabedError(
      'IB_CHECKER_UNKNOWN',
      `There is no checker "${check.uses}" (check "${check.id}").`,
    );
  }
  const parsed = checker.with.safeParse(check.with);
  if (parsed.success) return { checker, parameters: parsed.data };
  const message = `The checker "${check.uses}" refuses "with" of check "${check.id}": ${parsed.error.message}`;
  throw new InfrabedError('IB_TASK_INVALID', message, { cause: parsed.error });
}

export interface Occasion {
  moment: Moment;
  probe: number;
  signal: AbortSignal;
  /** Ask once more where the connection broke although the node is well; not for probes, whose point is the moment. */
  again: boolean;
}

/** @throws InfrabedError IB_CANCELLED when the signal aborts; everything else becomes a record. */
export async function look(
  prepared: PreparedCheck,
  options: GateOptions,
  occasion: Occasion,
): Promise<EvidenceRecord> {
  const { check, ready } = prepared;
  const at = options.clock.now();
  const finish = (
    rest: Omit<EvidenceRecord, 'check' | 'moment' | 'probe' | 'at' | 'durationMs'>,
  ): EvidenceRecord => ({
    check: check.id,
    moment: occasion.moment,
    probe: occasion.probe,
    at,
    durationMs: options.clock.now() - at,
    ...rest,
  });
  if ('error' in ready) {
    return finish({ outcome: 'fault', error: { code: ready.error.code, message: ready.error.message } });
  }
  const replaced = options.guard?.replaced(check.on, ready.checker.programs ?? []);
  if (replaced !== undefined)
    return finish({ outcome: 'tampered', error: { code: 'IB_NODE_FAILED', message: replaced } });
  try {
    return finish({ outcome: 'gathered', evidence: await gatherTwice(check, ready, options, occasion) });
  } catch (error) {
    throwIfAborted(occasion.signal);
    return finish(await attribute(error, check.on, options.cluster, occasion.signal));
  }
}

type Ready = Extract<PreparedCheck['ready'], { checker: Checker }>;

async function gatherTwice(
  check: CheckDefinition,
  ready: Ready,
  options: GateOptions,
  occasion: Occasion,
): Promise<Json> {
  try {
    return await gatherOnce(check, ready, options, occasion);
  } catch (error) {
    if (!occasion.again || occasion.signal.aborted || !isConnectionError(error)) throw error;
    const { standing } = await options.cluster.standing(check.on, occasion.signal);
    if (standing !== 'reachable') throw error;
    return gatherOnce(check, ready, options, occasion);
  }
}

async function gatherOnce(
  check: CheckDefinition,
  ready: Ready,
  options: GateOptions,
  occasion: Occasion,
): Promise<Json> {
  const timeoutMs = check.timeout_sec * 1000;
  const limit = deadline(timeoutMs, `Check "${check.id}"`, occasion.signal);
  const context: CheckContext = {
    cluster: options.cluster,
    node: check.on,
    moment: occasion.moment,
    signal: limit.signal,
    commandTimeoutMs: Math.round(timeoutMs * 0.8),
    taskDir: options.taskDir,
    drift: options.drift,
  };
  try {
    const seen = await Promise.race([ready.checker.gather(context, ready.parameters), aborted(limit.signal)]);
    const parsed = ready.checker.evidence.safeParse(seen);
    if (parsed.success) return parsed.data;
    const message = `The checker "${ready.checker.name}" gathered evidence of another shape than its own: ${parsed.error.message}`;
    throw new InfrabedError('IB_CHECKER_FAILED', message, { cause: parsed.error });
  } catch (error) {
    // A checker that answers the time-out with an error of its own still ran out of time.
    if (limit.signal.aborted) throwIfAborted(limit.signal);
    throw error;
  } finally {
    limit.clear();
  }
}

/** Rejects with the signal's reason, for a checker that does not heed it. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const onAbort = (): void => {
      try {
        throwIfAborted(signal);
      } catch (error) {
        reject(error instanceof Error ? error : new Error(messageOf(error)));
      }
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
}
