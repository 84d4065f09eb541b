/** The running gate: probes at fixed times under the task's workload; a slow probe does not shift the next. */
import pLimit from 'p-limit';
import { throwIfAborted } from '../../core/clock.js';
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import { look, prepareChecks, type GateOptions } from './look.js';

export interface RunningGateOptions extends GateOptions {
  durationMs: number;
  intervalMs: number;
}

/** More probes than these at once wait for one to end; `at` of each record says when it really began. */
const concurrentProbes = 16;

/** Offsets of the probes, in milliseconds: at the start, every interval, and none behind the end. */
export function probeTimes(durationMs: number, intervalMs: number): number[] {
  return Array.from({ length: Math.floor(durationMs / intervalMs) + 1 }, (_, probe) => probe * intervalMs);
}

/** Makes every probe of every check of the running gate; records come in the order in which the probes were due. */
export async function runRunningGate(options: RunningGateOptions): Promise<void> {
  const prepared = prepareChecks(options, 'running');
  await options.guard?.examine(options.signal);
  if (prepared.length === 0) return;
  const limit = pLimit(concurrentProbes);
  const begun = options.clock.now();
  const written = new OrderedWriter(options.onEvidence);
  try {
    for (const [probe, offset] of probeTimes(options.durationMs, options.intervalMs).entries()) {
      const waitMs = begun + offset - options.clock.now();
      if (waitMs > 0) await options.clock.sleep(waitMs, options.signal);
      throwIfAborted(options.signal);
      for (const one of prepared) {
        const occasion = { moment: 'running' as const, probe, signal: options.signal, again: false };
        written.add(limit(() => look(one, options, occasion)));
      }
      written.throwIfFailed();
    }
  } finally {
    await written.settled();
  }
  written.throwIfFailed();
}

/** Hands on the results of many looks in the order in which they were begun. */
export class OrderedWriter {
  private tail: Promise<void> = Promise.resolve();
  private failure: { error: unknown } | undefined;

  constructor(private readonly write: GateOptions['onEvidence']) {}

  add(pending: Promise<EvidenceRecord>): void {
    pending.catch(() => undefined);
    this.tail = this.tail.then(async () => {
      if (this.failure !== undefined) return;
      try {
        await this.write(await pending);
      } catch (error) {
        this.failure = { error };
      }
    });
  }

  /** Ends when everything that was added is written or given up. */
  settled(): Promise<void> {
    return this.tail;
  }

  throwIfFailed(): void {
    if (this.failure !== undefined) throw this.failure.error;
  }
}
