/**
 * The calendar of a store in this process's memory. The database counts every change of bookings (marks.calendar) and
 * notes it at the node (nodes.calendar_revision), so that only nodes that changed are read again, whoever changed them.
 */
import type { Kysely } from 'kysely';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { Calendar } from './calendar.js';
import type { Booking } from './calendar.js';

interface Held {
  calendar: Calendar;
  /** marks.calendar up to which everything is in the calendar. */
  revision: number;
  /** Counts refreshes: one that began before another ended starts again. */
  epoch: number;
}

const heldByStore = new WeakMap<Store, Held>();

/** SQLite takes this many parameters at once and more. */
const batch = 500;

/**
 * Brings the calendar up to the store. In a transaction call it before the first change of a booking: what is rolled
 * back must not stay in memory. Use it before the next await.
 */
export async function refreshCalendar(store: Store, db: Kysely<Database>): Promise<Calendar> {
  const held = heldByStore.get(store) ?? { calendar: new Calendar(), revision: 0, epoch: 0 };
  heldByStore.set(store, held);
  for (;;) {
    const { epoch } = held;
    const mark = await db
      .selectFrom('marks')
      .select('value')
      .where('key', '=', 'calendar')
      .executeTakeFirst();
    const revision = mark?.value ?? 0;
    if (held.epoch === epoch && revision === held.revision) return held.calendar;
    const changed = await readChanged(db, held.revision);
    if (held.epoch !== epoch) continue;
    for (const [node, bookings] of changed) held.calendar.replace(node, bookings);
    held.revision = revision;
    held.epoch++;
    return held.calendar;
  }
}

/** Bookings of all nodes that changed after a revision. */
async function readChanged(db: Kysely<Database>, since: number): Promise<Map<string, Booking[]>> {
  const rows = await db.selectFrom('nodes').select('name').where('calendar_revision', '>', since).execute();
  const changed = new Map<string, Booking[]>(rows.map((row) => [row.name, []]));
  const names = [...changed.keys()];
  for (let at = 0; at < names.length; at += batch) {
    const bookings = await db
      .selectFrom('bookings')
      .select(['lease', 'node', 'starts_at', 'busy_until', 'pinned'])
      .where('node', 'in', names.slice(at, at + batch))
      .orderBy('node')
      .orderBy('starts_at')
      .execute();
    for (const row of bookings) {
      changed.get(row.node)?.push({
        lease: row.lease,
        node: row.node,
        startsAt: row.starts_at,
        busyUntil: row.busy_until,
        movable: row.pinned === 0,
      });
    }
  }
  return changed;
}
