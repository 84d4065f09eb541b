/** Who has which node when, for a look at it. */
import { defaultSite, nodesOfSite } from './eligible.js';
import type { Ground } from './ground.js';
import { enrollFirst } from './slots.js';
import type { LeaseView } from './view.js';

export interface CalendarRow {
  node: string;
  site: string;
  /** Of the node, now. */
  state: string;
  bookings: {
    lease: string;
    owner: string;
    purpose: string;
    state: LeaseView['state'];
    own: boolean;
    startsAt: number;
    endsAt: number;
    /** End of the cleaning gap. */
    busyUntil: number;
  }[];
}

const dayMs = 24 * 3600 * 1000;

/** The bookings of every node that is in use, over some days, one row a node. */
export async function calendarView(
  ground: Ground,
  options: { site?: string; from?: number; days?: number } = {},
): Promise<CalendarRow[]> {
  const { db } = ground.store;
  const from = options.from ?? ground.clock.now();
  const to = from + (options.days ?? 7) * dayMs;
  if (options.site === undefined) await enrollFirst(ground, await defaultSite());
  let nodes = db.selectFrom('nodes').select(['name', 'site', 'state']).where('retired', '=', 0);
  if (options.site !== undefined) {
    await nodesOfSite(db, options.site);
    nodes = nodes.where('site', '=', options.site);
  }
  const bookings = await db
    .selectFrom('bookings')
    .innerJoin('leases', 'leases.id', 'bookings.lease')
    .select([
      'bookings.node',
      'bookings.lease',
      'bookings.starts_at',
      'bookings.ends_at',
      'bookings.busy_until',
    ])
    .select(['leases.owner', 'leases.purpose', 'leases.state', 'leases.own'])
    .where('bookings.starts_at', '<', to)
    .where('bookings.busy_until', '>', from)
    .orderBy('bookings.starts_at')
    .execute();
  const byNode = new Map<string, CalendarRow['bookings']>();
  for (const row of bookings) {
    const list = byNode.get(row.node) ?? [];
    list.push({
      lease: row.lease,
      owner: row.owner,
      purpose: row.purpose,
      state: row.state as LeaseView['state'],
      own: row.own === 1,
      startsAt: row.starts_at,
      endsAt: row.ends_at,
      busyUntil: row.busy_until,
    });
    byNode.set(row.node, list);
  }
  const rows = await nodes.orderBy('name').execute();
  return rows.map(({ name, site, state }) => ({ node: name, site, state, bookings: byNode.get(name) ?? [] }));
}
