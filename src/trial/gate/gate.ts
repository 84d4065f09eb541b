/** The gates that look once: immediate, reboot (behind the power-cycle) and decommission. */
import pLimit from 'p-limit';
import { throwIfAborted } from '../../core/clock.js';
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import type { Gate } from './checker.js';
import { look, prepareChecks, type GateOptions, type PreparedCheck } from './look.js';
import type { RebootResult } from './reboot.js';

/** Looks made at the same time: checks are short commands, and sshd's limits are shared with nobody now. */
const concurrentLooks = 4;

export interface RunGateOptions extends GateOptions {
  moment: Exclude<Gate, 'running'>;
  /** Of the reboot gate: checks on a node that did not come back are not made, and have its blame. */
  rebooted?: readonly RebootResult[];
}

/**
 * Makes every check of the moment once; records come in the order of the checks.
 * @throws InfrabedError IB_CANCELLED when the signal aborts, and what `onEvidence` throws.
 */
export async function runGate(options: RunGateOptions): Promise<void> {
  const prepared = prepareChecks(options, options.moment);
  await options.guard?.examine(options.signal);
  const shared = { ...options, drift: once(options.drift) };
  const limit = pLimit(concurrentLooks);
  const looks = prepared.map((one) => limit(() => lookUnlessLost(one, shared)));
  // All are awaited below, in order; an early failure of a later one must not count as unhandled until then.
  for (const pending of looks) pending.catch(() => undefined);
  try {
    for (const pending of looks) await options.onEvidence(await pending);
  } finally {
    limit.clearQueue();
  }
  throwIfAborted(options.signal);
}

function lookUnlessLost(prepared: PreparedCheck, options: RunGateOptions): Promise<EvidenceRecord> {
  const { check } = prepared;
  const lost = options.rebooted?.find(({ node, outcome }) => node === check.on && outcome === 'not-back');
  if (lost?.outcome !== 'not-back') {
    return look(prepared, options, { moment: options.moment, probe: 0, signal: options.signal, again: true });
  }
  return Promise.resolve({
    check: check.id,
    moment: options.moment,
    probe: 0,
    at: options.clock.now(),
    durationMs: 0,
    outcome: 'unreachable',
    blame: lost.blame,
    error: { code: 'IB_NODE_UNREACHABLE', message: lost.why },
  });
}

/** A function whose first call does the work for all. */
function once<T>(work: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => (result ??= work());
}
