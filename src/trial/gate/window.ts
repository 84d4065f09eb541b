/** The window: watches that run from before the fault to the end, each at its own interval. */
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import { look, prepareChecks, type GateOptions, type PreparedCheck } from './look.js';
import { OrderedWriter } from './running.js';

export interface WindowOptions extends GateOptions {
  /** The watch of a controller that died goes on here: numbers go on too, and the gap is marked as a pause. */
  after?: WindowGap;
  /** Told once when a record could not be written: the watch is over then. `stop` throws the same. */
  onFailure?: (error: unknown) => void;
}

export interface WindowGap {
  /** Why nobody watched: one sentence, for the record. */
  why: string;
  /** By check: the number of its last probe, and when that was over (epoch milliseconds). */
  last: ReadonlyMap<string, { probe: number; endedAt: number }>;
}

export interface WindowWatch {
  /** From now on probes are marked as paused, and those under way are given up and marked too. */
  pause(nodes: readonly string[], why: string): void;
  resume(): void;
  /** Makes one last probe of every watch, unless the trial was cancelled, and ends. Throws what `onEvidence` threw. */
  stop(): Promise<void>;
}

/** Starts the watches of the checks that name the window. The first probe is made at once. */
export function startWindow(options: WindowOptions): WindowWatch {
  return new Watch(options);
}

class Watch implements WindowWatch {
  private readonly ending = new AbortController();
  private readonly written: OrderedWriter;
  private readonly loops: Promise<void>[];
  /** Aborted while the watches are paused; its reason says why. Each pause has one of its own. */
  private interruption = new AbortController();
  private failureTold = false;

  constructor(private readonly options: WindowOptions) {
    this.written = new OrderedWriter(options.onEvidence);
    this.loops = prepareChecks(options, 'window').map((prepared) => this.watch(prepared));
    for (const loop of this.loops) loop.catch((error: unknown) => this.tellFailure(error));
  }

  pause(nodes: readonly string[], why: string): void {
    this.interruption.abort(`${why} (${nodes.join(', ')})`);
  }

  resume(): void {
    if (this.interruption.signal.aborted) this.interruption = new AbortController();
  }

  async stop(): Promise<void> {
    this.ending.abort();
    const ended = await Promise.allSettled(this.loops);
    for (const loop of ended) if (loop.status === 'rejected') throw loop.reason;
  }

  private tellFailure(error: unknown): void {
    if (this.failureTold) return;
    this.failureTold = true;
    this.options.onFailure?.(error);
  }

  private async watch(prepared: PreparedCheck): Promise<void> {
    const { clock, signal } = this.options;
    const intervalMs = prepared.check.interval_sec * 1000;
    const begun = clock.now();
    let probe = await this.markGap(prepared.check.id);
    for (;;) {
      // Read before the probe: one that began after `stop` is the last.
      const last = this.ending.signal.aborted;
      if (signal.aborted) return;
      await this.probe(prepared, probe++);
      if (last) return;
      // Beats that a slow probe has missed are left out: the next falls on the same grid.
      const beat = Math.floor((clock.now() - begun) / intervalMs) + 1;
      await this.sleep(begun + beat * intervalMs - clock.now());
    }
  }

  /** The number of the first probe; where the watch goes on, the gap before it is on record as a pause. */
  private async markGap(check: string): Promise<number> {
    const { after, clock } = this.options;
    const last = after?.last.get(check);
    if (after === undefined || last === undefined) return 0;
    const gap: EvidenceRecord = {
      check,
      moment: 'window',
      probe: last.probe + 1,
      at: last.endedAt,
      durationMs: Math.max(0, clock.now() - last.endedAt),
      outcome: 'paused',
      error: { code: 'IB_INTERRUPTED', message: after.why },
    };
    await this.write(gap);
    return gap.probe + 1;
  }

  private async probe(prepared: PreparedCheck, probe: number): Promise<void> {
    const record = await this.lookOrPause(prepared, probe);
    if (record === undefined) return;
    await this.write(record);
  }

  private async write(record: EvidenceRecord): Promise<void> {
    this.written.add(Promise.resolve(record));
    await this.written.settled();
    this.written.throwIfFailed();
  }

  /** undefined when the trial was cancelled. A look that a pause has cut into is a pause, whatever it saw. */
  private async lookOrPause(prepared: PreparedCheck, probe: number): Promise<EvidenceRecord | undefined> {
    const { clock, signal: cancelled } = this.options;
    const at = clock.now();
    const interruption = this.interruption.signal;
    const paused = (): EvidenceRecord => ({
      check: prepared.check.id,
      moment: 'window',
      probe,
      at,
      durationMs: clock.now() - at,
      outcome: 'paused',
      error: { code: 'IB_CANCELLED', message: String(interruption.reason) },
    });
    const cutInto = (): boolean => interruption.aborted;
    if (cutInto()) return paused();
    const signal = AbortSignal.any([cancelled, interruption]);
    try {
      const record = await look(prepared, this.options, { moment: 'window', probe, signal, again: false });
      return cutInto() ? paused() : record;
    } catch (error) {
      if (cancelled.aborted) return undefined;
      if (cutInto()) return paused();
      throw error;
    }
  }

  private async sleep(durationMs: number): Promise<void> {
    const signal = AbortSignal.any([this.options.signal, this.ending.signal]);
    try {
      await this.options.clock.sleep(Math.max(0, durationMs), signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}
