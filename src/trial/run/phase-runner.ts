/** Runs one phase: written to store and ledger before it begins and after it is verified, timed, told to the person. */
import { isInfrabedError, messageOf } from '../../core/errors.js';
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { Journal } from '../../core/journal.js';
import type { PhaseName } from '../../record/bundle/schema.js';
import type { Store } from '../../record/store/store.js';

export class PhaseRunner {
  /** Milliseconds a phase, for the bundle. */
  readonly timings: Partial<Record<PhaseName, number>> = {};

  constructor(
    private readonly trial: string,
    private readonly store: Store,
    private readonly io: IoHost,
    private readonly clock: Clock,
    private readonly journal: Journal,
  ) {}

  /** The phase's own error passes through, after it was written down. */
  async run<T>(phase: PhaseName, work: () => Promise<T>): Promise<T> {
    const startedAt = this.clock.now();
    await this.write(phase, 'begun', null);
    this.journal.record({ kind: 'phase.begin', actor: 'controller', node: null, payload: { phase } });
    this.io.notify({ type: 'phase', scope: this.trial, phase, state: 'begin' });
    try {
      const result = await work();
      this.timings[phase] = this.clock.now() - startedAt;
      this.journal.record({ kind: 'phase.end', actor: 'controller', node: null, payload: { phase } });
      await this.write(phase, 'verified', null);
      this.io.notify({ type: 'phase', scope: this.trial, phase, state: 'end' });
      return result;
    } catch (error) {
      this.timings[phase] = this.clock.now() - startedAt;
      const code = isInfrabedError(error) ? error.code : 'IB_INTERNAL';
      await this.writeFailure(phase, `${code}: ${messageOf(error)}`);
      this.io.notify({ type: 'phase', scope: this.trial, phase, state: 'failed', detail: messageOf(error) });
      throw error;
    }
  }

  /** A store that fails too must not take the place of the phase's own error. */
  private async writeFailure(phase: PhaseName, detail: string): Promise<void> {
    try {
      await this.write(phase, 'failed', detail);
    } catch (error) {
      const message = `That the phase ${phase} failed could not be written down: ${messageOf(error)}`;
      this.io.notify({ type: 'warning', message });
    }
  }

  private async write(phase: PhaseName, state: string, detail: string | null): Promise<void> {
    const row = { trial: this.trial, phase, state, at: this.clock.now(), detail };
    await this.store.db.insertInto('phases').values(row).execute();
  }
}
