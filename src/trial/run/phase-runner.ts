/** Runs one phase: written to store and ledger before it begins and after it is verified, timed, told to the person. */
import type { Kysely } from 'kysely';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { Journal } from '../../core/journal.js';
import type { PhaseName } from '../../record/bundle/schema.js';
import type { Database, Store } from '../../record/store/store.js';

export interface PhaseRunnerOptions {
  trial: string;
  /** Whose trial it is: nothing is written any more once another controller has taken it over. */
  controller: string;
  store: Store;
  io: IoHost;
  clock: Clock;
  journal: Journal;
  /** What another controller would need to go on from here; written in the transaction of each step. */
  snapshot: () => { lease: string | null; progress: string };
}

export class PhaseRunner {
  constructor(
    private readonly options: PhaseRunnerOptions,
    /** Milliseconds a phase, for the bundle. */
    readonly timings: Partial<Record<PhaseName, number>> = {},
  ) {}

  /**
   * The phase's own error passes through, after it was written down.
   * @throws InfrabedError IB_LEASE_CONFLICT when another controller has taken the trial over.
   */
  async run<T>(phase: PhaseName, work: () => Promise<T>): Promise<T> {
    const { trial, clock, io, journal } = this.options;
    const startedAt = clock.now();
    await this.write(phase, 'begun', null);
    failpoint(`phase.${phase}.begun`);
    journal.record({ kind: 'phase.begin', actor: 'controller', node: null, payload: { phase } });
    io.notify({ type: 'phase', scope: trial, phase, state: 'begin' });
    try {
      const result = await work();
      this.timings[phase] = clock.now() - startedAt;
      journal.record({ kind: 'phase.end', actor: 'controller', node: null, payload: { phase } });
      await this.write(phase, 'verified', null);
      failpoint(`phase.${phase}.verified`);
      io.notify({ type: 'phase', scope: trial, phase, state: 'end' });
      return result;
    } catch (error) {
      this.timings[phase] = clock.now() - startedAt;
      const code = isInfrabedError(error) ? error.code : 'IB_INTERNAL';
      await this.writeFailure(phase, `${code}: ${messageOf(error)}`);
      io.notify({ type: 'phase', scope: trial, phase, state: 'failed', detail: messageOf(error) });
      throw error;
    }
  }

  /** Writes the snapshot in the middle of a phase. @throws InfrabedError IB_LEASE_CONFLICT as `run`. */
  save(): Promise<void> {
    return this.saveIn(this.options.store.db);
  }

  /** False once another controller has taken the trial over. */
  async isOurs(): Promise<boolean> {
    const { trial, controller, store } = this.options;
    const row = await store.db
      .selectFrom('trials')
      .select('id')
      .where('id', '=', trial)
      .where('controller', '=', controller)
      .where('state', '=', 'running')
      .executeTakeFirst();
    return row !== undefined;
  }

  /** A store that fails too must not take the place of the phase's own error. */
  private async writeFailure(phase: PhaseName, detail: string): Promise<void> {
    try {
      await this.write(phase, 'failed', detail);
    } catch (error) {
      const message = `That the phase ${phase} failed could not be written down: ${messageOf(error)}`;
      this.options.io.notify({ type: 'warning', message });
    }
  }

  private async write(phase: PhaseName, state: string, detail: string | null): Promise<void> {
    const { trial, store, clock } = this.options;
    const row = { trial, phase, state, at: clock.now(), detail };
    await store.db.transaction().execute(async (db) => {
      await this.saveIn(db);
      await db.insertInto('phases').values(row).execute();
    });
  }

  private async saveIn(db: Kysely<Database>): Promise<void> {
    const { trial, controller } = this.options;
    const { numUpdatedRows } = await db
      .updateTable('trials')
      .set(this.options.snapshot())
      .where('id', '=', trial)
      .where('controller', '=', controller)
      .where('state', '=', 'running')
      .executeTakeFirst();
    if (numUpdatedRows !== 1n) throw takenOver(trial);
  }
}

/** What a controller gets that was away for so long that another one has its trial now. */
export function takenOver(trial: string): InfrabedError {
  return new InfrabedError('IB_LEASE_CONFLICT', `The trial ${trial} was taken over by another controller.`, {
    hint: 'Run "infrabed trial list" to see how it ended.',
  });
}
