/** The end of a trial in the store: its outcome and, in the same transaction, the notice of it. */
import type { Kysely } from 'kysely';
import type { Clock } from '../../core/clock.js';
import { postNotice } from '../../record/notice/post.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';

export interface TrialEnd {
  outcome: string;
  reward: number | null;
}

/**
 * Writes down how a trial ended; `null` where its bundle is sealed and not graded yet, which is told once it is.
 * @param also further writes of the same transaction.
 * @param controller of whom the trial has to be: undefined where the caller has made sure of it.
 * @returns false, with nothing written, when the trial is another controller's by now.
 */
export async function endTrial(
  { store, clock }: { store: Store; clock: Clock },
  id: string,
  end: TrialEnd | null,
  options: { controller?: string; also?: (db: Kysely<Database>) => Promise<void> } = {},
): Promise<boolean> {
  return store.db.transaction().execute(async (db) => {
    const trial = await db.selectFrom('trials').selectAll().where('id', '=', id).executeTakeFirst();
    if (trial === undefined) return false;
    if (options.controller !== undefined && trial.controller !== options.controller) return false;
    await db
      .updateTable('trials')
      .set({ state: 'ended', ended_at: trial.ended_at ?? clock.now(), ...end })
      .where('id', '=', id)
      .execute();
    await options.also?.(db);
    if (end === null) return true;
    const { task, agent, bundle } = trial;
    await postNotice(db, clock, {
      kind: 'trial.ended',
      subject: id,
      occasion: 'end',
      payload: { trial: id, task, agent, outcome: end.outcome, bundle },
    });
    return true;
  });
}
