/** Leases as people and programs are shown them. */
import type { Kysely } from 'kysely';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { leaseRow } from './rows.js';
import type { EndReason, LeaseRow } from './rows.js';

export interface LeaseView {
  id: string;
  owner: string;
  purpose: string;
  site: string;
  /** `local/n01`, ...: bound nodes of a reservation, or those it has or had; none once it ended without having begun. */
  nodes: string[];
  /** Epoch milliseconds, half-open. */
  startsAt: number;
  endsAt: number;
  endedAt: number | null;
  endReason: EndReason | null;
  generation: number;
  state: 'reserved' | 'active' | 'ended';
  /** Taken by a command for itself. */
  own: boolean;
  /** The controller in whose hands it is. */
  controller: string | null;
  /** Ids of the clusters that stand on it. */
  clusters: string[];
}

/** Leases by their start: those that have not ended, or all. */
export async function listLeases(
  store: Store,
  options: { all?: boolean; owner?: string } = {},
): Promise<LeaseView[]> {
  let query = store.db.selectFrom('leases').selectAll();
  if (options.all !== true) query = query.where('state', '!=', 'ended');
  if (options.owner !== undefined) query = query.where('owner', '=', options.owner);
  const rows = await query.orderBy('starts_at').orderBy('id').execute();
  return views(store.db, rows, options.all === true || rows.length > 500 ? 'all' : rows.map((row) => row.id));
}

/** @throws InfrabedError IB_LEASE_UNKNOWN. */
export async function showLease(store: Store, id: string): Promise<LeaseView> {
  return viewOf(store.db, await leaseRow(store.db, id));
}

/** The view of a row that was just read or written. */
export async function viewOf(db: Kysely<Database>, row: LeaseRow): Promise<LeaseView> {
  const [view] = await views(db, [row], [row.id]);
  if (view) return view;
  throw new TypeError('one row gives one view');
}

async function views(
  db: Kysely<Database>,
  rows: readonly LeaseRow[],
  ids: readonly string[] | 'all',
): Promise<LeaseView[]> {
  if (rows.length === 0) return [];
  let bookings = db.selectFrom('bookings').select(['lease', 'node']).orderBy('node');
  let clusters = db.selectFrom('clusters').select(['id', 'lease']).orderBy('id');
  if (ids !== 'all') {
    bookings = bookings.where('lease', 'in', ids);
    clusters = clusters.where('lease', 'in', ids);
  }
  const nodesOf = group((await bookings.execute()).map(({ lease, node }) => [lease, node]));
  const clustersOf = group((await clusters.execute()).map(({ lease, id }) => [lease, id]));
  return rows.map((row) => ({
    id: row.id,
    owner: row.owner,
    purpose: row.purpose,
    site: row.site,
    nodes: nodesOf.get(row.id) ?? [],
    startsAt: row.starts_at,
    endsAt: row.ends_at,
    endedAt: row.ended_at,
    endReason: row.end_reason as EndReason | null,
    generation: row.generation,
    state: row.state as LeaseView['state'],
    own: row.own === 1,
    controller: row.controller,
    clusters: clustersOf.get(row.id) ?? [],
  }));
}

function group(pairs: [string, string][]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const [key, value] of pairs) {
    const group = groups.get(key) ?? [];
    group.push(value);
    groups.set(key, group);
  }
  return groups;
}
