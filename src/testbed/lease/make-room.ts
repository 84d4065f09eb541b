/** Finding nodes on the store's calendar for a request, and writing down what has to move for it. */
import type { Kysely } from 'kysely';
import { z } from 'zod';
import type { Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import type { Draft, Move } from './draft.js';
import type { SiteNodeState } from './eligible.js';
import { findRoom, reachOf } from './find-room.js';
import type { EligibleOf, Room, RoomRequest } from './find-room.js';
import type { Wanted } from './ground.js';

const wantedSchema = z.union([
  z.object({ names: z.array(z.string()) }),
  z.object({ count: z.number(), tags: z.array(z.string()).optional(), backend: z.string().optional() }),
]);

/** What a lease asked for, as its row keeps it. Leases from before reservations have nothing written down. */
export function parseWanted(stored: string): Wanted {
  const parsed = wantedSchema.safeParse(JSON.parse(stored));
  if (!parsed.success) return { names: [] };
  if ('names' in parsed.data) return parsed.data;
  const { count, tags, backend } = parsed.data;
  return { count, ...(tags === undefined ? {} : { tags }), ...(backend === undefined ? {} : { backend }) };
}

/** SQLite and PostgreSQL both take as many parameters in one statement, and more. */
const batch = 500;

/** Which nodes the movable leases that have to do with a span of time may be bound to. */
export async function movablesOf(
  db: Kysely<Database>,
  draft: Draft,
  nodes: readonly SiteNodeState[],
  span: { from: number; busyUntil: number },
): Promise<EligibleOf> {
  const names = nodes.map((node) => node.name);
  const reach = reachOf(draft, names, span);
  const overlapping = names.flatMap((name) => draft.overlapping(name, reach.from, reach.busyUntil));
  const ids = [...new Set(overlapping.filter((one) => one.movable).map((one) => one.lease))];
  const usable = nodes.filter((node) => node.isUsable);
  const byLease = new Map<string, readonly string[]>();
  const byWanted = new Map<string, readonly string[]>();
  for (let at = 0; at < ids.length; at += batch) {
    const rows = await db
      .selectFrom('leases')
      .select(['id', 'wanted'])
      .where('id', 'in', ids.slice(at, at + batch))
      .execute();
    for (const { id, wanted } of rows) {
      const fitting = byWanted.get(wanted) ?? fit(usable, parseWanted(wanted));
      byWanted.set(wanted, fitting);
      byLease.set(id, fitting);
    }
  }
  return (lease) => byLease.get(lease) ?? [];
}

function fit(nodes: readonly SiteNodeState[], wanted: Wanted): string[] {
  if ('names' in wanted) return [...wanted.names];
  const { tags = [], backend } = wanted;
  return nodes
    .filter((node) => backend === undefined || node.backend === backend)
    .filter((node) => tags.every((tag) => node.tags.includes(tag)))
    .map((node) => node.name);
}

/** Nodes for a request, with what has to move for it; undefined when there is no room. Writes nothing. */
export async function seekRoom(
  db: Kysely<Database>,
  draft: Draft,
  nodes: readonly SiteNodeState[],
  request: RoomRequest,
): Promise<Room | undefined> {
  return findRoom(draft, request) ?? findRoom(draft, request, await movablesOf(db, draft, nodes, request));
}

/** Binds bookings to other nodes. All go before one comes, so that the database never sees two at one place. */
export async function applyMoves(
  db: Kysely<Database>,
  moves: readonly Move[],
  who: { actor: Actor; clock: Clock; because: string },
): Promise<void> {
  const taken = [];
  for (const { lease, from, to } of moves) {
    const place = (
      await db
        .deleteFrom('bookings')
        .where('lease', '=', lease)
        .where('node', '=', from)
        .returningAll()
        .execute()
    ).map((row) => ({ ...row, node: to }));
    taken.push(...place);
  }
  for (const row of taken) await db.insertInto('bookings').values(row).execute();
  const leases = new Set(moves.map((move) => move.lease));
  for (const lease of leases) {
    const moved = moves.filter((move) => move.lease === lease).map(({ from, to }) => ({ from, to }));
    await recordChange(db, who.clock, {
      actor: who.actor,
      kind: 'lease.rebound',
      subject: lease,
      detail: { moved, because: who.because },
    });
  }
}
