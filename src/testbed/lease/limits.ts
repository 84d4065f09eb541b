/** How much a user may have reserved, and how far a user's reservations go before those of others. */
import type { Kysely } from 'kysely';
import { InfrabedError } from '../../core/errors.js';
import type { Settings } from '../../core/settings.js';
import type { Database } from '../../record/store/schema.js';

/** Higher goes before lower, and only with `--preempt`. */
export function priorityOf(settings: Settings, user: string): number {
  return settings.priority.users[user] ?? settings.priority.default;
}

export interface LimitQuestion {
  owner: string;
  now: number;
  /** Lease that is changed, whose present share does not count. */
  except?: string;
  /** What the owner would have of it. */
  nodes: number;
  startsAt: number;
  endsAt: number;
}

/**
 * Counts the leases of a user that have not ended, each with its nodes times the hours it still lasts, those of
 * commands for themselves left out.
 * @throws InfrabedError IB_LEASE_LIMIT with the figures.
 */
export async function checkLimits(
  db: Kysely<Database>,
  settings: Settings,
  question: LimitQuestion,
): Promise<void> {
  const { owner, now, except = '' } = question;
  const limit = settings.limits.users[owner] ?? settings.limits.default;
  if (limit.leases === null && limit.node_hours_ahead === null) return;
  const rows = await db
    .selectFrom('leases')
    .leftJoin('bookings', 'bookings.lease', 'leases.id')
    .select(['leases.id', 'leases.starts_at', 'leases.ends_at'])
    .select((select) => select.fn.count<number>('bookings.node').as('nodes'))
    .where('leases.owner', '=', owner)
    .where('leases.own', '=', 0)
    .where('leases.state', '!=', 'ended')
    .where('leases.id', '!=', except)
    .groupBy(['leases.id', 'leases.starts_at', 'leases.ends_at'])
    .execute();
  if (limit.leases !== null && rows.length + 1 > limit.leases) {
    throw beyond(
      `${owner} has ${String(rows.length)} leases, and ${String(limit.leases)} are allowed at once.`,
      { leases: rows.length, limit: limit.leases },
    );
  }
  if (limit.node_hours_ahead === null) return;
  const present = rows.reduce((sum, row) => sum + nodeHours(row.nodes, row.starts_at, row.ends_at, now), 0);
  const asked = nodeHours(question.nodes, question.startsAt, question.endsAt, now);
  if (present + asked <= limit.node_hours_ahead) return;
  const figures = { present: round(present), asked: round(asked), limit: limit.node_hours_ahead };
  throw beyond(
    `${owner} has ${String(figures.present)} node-hours ahead and asks for ${String(figures.asked)} more; ${String(figures.limit)} are allowed.`,
    figures,
  );
}

function nodeHours(nodes: number, startsAt: number, endsAt: number, now: number): number {
  return (nodes * Math.max(0, endsAt - Math.max(startsAt, now))) / 3_600_000;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function beyond(sentence: string, details: Record<string, unknown>): InfrabedError {
  return new InfrabedError('IB_LEASE_LIMIT', sentence, {
    hint: 'Give something back ("infrabed lease release"), ask for less, or let an operator raise limits in settings.yaml.',
    details,
  });
}
