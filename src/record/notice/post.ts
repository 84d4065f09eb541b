/** Notices: what the hook and the webhook are to be told, written in the transaction of what they tell. */
import type { Kysely } from 'kysely';
import type { Clock } from '../../core/clock.js';
import type { Database } from '../store/schema.js';

export const noticeKinds = [
  'lease.started',
  'lease.delayed',
  'lease.warning',
  'lease.ended',
  'lease.displaced',
  'trial.ended',
  'node.quarantined',
] as const;
export type NoticeKind = (typeof noticeKinds)[number];

export interface Notice {
  kind: NoticeKind;
  /** Lease, trial or node it is about. */
  subject: string;
  /** What tells this notice from another of the same kind and subject, e.g. the end that a warning is about. */
  occasion: string | number;
  /** JSON-able fields. */
  payload: Record<string, unknown>;
}

/** Posts a notice once: the same kind, subject and occasion again changes nothing. */
export async function postNotice(db: Kysely<Database>, clock: Clock, notice: Notice): Promise<void> {
  const { kind, subject, occasion, payload } = notice;
  const at = clock.now();
  await db
    .insertInto('notices')
    .values({
      id: `${kind}:${subject}:${String(occasion)}`,
      kind,
      subject,
      payload: JSON.stringify(payload),
      created_at: at,
      told: '[]',
      attempts: 0,
      next_try_at: at,
      delivered_at: null,
      error: null,
    })
    .onConflict((conflict) => conflict.column('id').doNothing())
    .execute();
}
