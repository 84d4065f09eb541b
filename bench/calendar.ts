// Reservations at the size of a large site: the earliest slot among 1,000 nodes and 100,000 leases to come, cold and
// warm, and 1,000 reservations from 20 processes at once on one SQLite file.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sql } from 'kysely';
import { systemClock } from '../src/core/clock.js';
import { defaultSettings } from '../src/core/settings.js';
import { openStore } from '../src/record/store/store.js';
import type { Store } from '../src/record/store/store.js';
import type { Ground } from '../src/testbed/lease/ground.js';
import { reserve } from '../src/testbed/lease/reserve.js';
import { findSlots } from '../src/testbed/lease/slots.js';

const nodeCount = Number(process.argv[2] ?? 1000);
const leaseCount = Number(process.argv[3] ?? 100_000);
const minute = 60_000;
const hour = 60 * minute;
const site = 'bench';
const ground = (store: Store): Ground => ({ store, settings: defaultSettings, clock: systemClock });
const name = (index: number): string => `${site}/n${String(index).padStart(4, '0')}`;

/** A site whose nodes were just enrolled and cleaned. */
async function makeSite({ db }: Store, nodes: number): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    await transaction.insertInto('sites').values({ name: site, inventory: '{}' }).execute();
    for (let index = 0; index < nodes; index++) {
      const node = { name: name(index), site, backend: 'container', fault: null, lease: null };
      await transaction
        .insertInto('nodes')
        .values({ ...node, state: 'cleaning' })
        .execute();
      const clean = { node: node.name, lease: null, method: 'never-made', proof: '{}', at: 0 };
      const { id } = await transaction
        .insertInto('clean_records')
        .values(clean)
        .returning('id')
        .executeTakeFirstOrThrow();
      await transaction
        .updateTable('nodes')
        .set({ state: 'available', clean_record: id })
        .where('name', '=', node.name)
        .execute();
    }
  });
}

/**
 * Leases laid end to end on each node with gaps too short for what is asked, so that the sweep has to go over all of
 * them to find the earliest start: the worst case.
 */
async function fill({ db }: Store): Promise<void> {
  const perNode = Math.ceil(leaseCount / nodeCount);
  const now = Date.now();
  await sql`pragma synchronous = off`.execute(db);
  await db.transaction().execute(async (transaction) => {
    for (let number = 0; number < leaseCount; number++) {
      const node = number % nodeCount;
      const round = Math.floor(number / nodeCount);
      // The first of a node is over or begins within fifty minutes; after each come fifty minutes that are free.
      const starts_at = now - 130 * minute + ((node * 7) % 180) * minute + round * 3 * hour;
      const id = `l-bench-${String(number)}`;
      const times = { starts_at, ends_at: starts_at + 2 * hour };
      const wanted = JSON.stringify({ count: 1 });
      const who = {
        owner: 'bench',
        purpose: 'bench',
        site,
        wanted,
        own: 0,
        priority: 0,
        generation: number + 1,
      };
      const rest = { ended_at: null, end_reason: null, state: 'reserved', controller: null, created_at: now };
      await transaction
        .insertInto('leases')
        .values({ id, ...who, ...times, ...rest })
        .execute();
      const busy_until = times.ends_at + 600_000;
      await transaction
        .insertInto('bookings')
        .values({ lease: id, node: name(node), ...times, busy_until, pinned: 0 })
        .execute();
    }
  });
  if (perNode * 3 * hour > defaultSettings.lease.horizon_sec * 1000) throw new Error('beyond the horizon');
}

async function milliseconds(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

const median = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]!;

async function earliest(stateDir: string): Promise<boolean> {
  const writer = await openStore(stateDir);
  await makeSite(writer, nodeCount);
  await fill(writer);
  await writer.close();
  const store = await openStore(stateDir);
  // Two hours and the gap fit nowhere between the others.
  const request = { site, nodes: { count: 3 }, durationMs: 2 * hour, limit: 1 };
  let found: number | undefined;
  const look = async (): Promise<void> => {
    found = (await findSlots(ground(store), request))[0]?.startsAt;
  };
  const coldMs = await milliseconds(look);
  const warm: number[] = [];
  for (let run = 0; run < 15; run++) warm.push(await milliseconds(look));
  const after: number[] = [];
  for (let run = 0; run < 5; run++) {
    // Somebody reserves, so that a part of the calendar is read again.
    const startsAt = Date.now() + 300 * 24 * hour + run * hour * 3;
    const mine = { site, nodes: { count: 3 }, durationMs: hour, startsAt, purpose: 'bench' };
    await reserve(ground(store), mine, { name: 'bench', role: 'user' });
    after.push(await milliseconds(look));
  }
  await store.close();
  const daysAhead = ((found ?? 0) - Date.now()) / (24 * hour);
  const result = {
    bench: 'earliest-slot',
    nodes: nodeCount,
    leases: leaseCount,
    coldMs: Math.round(coldMs),
    warmMs: Number(median(warm).toFixed(1)),
    afterReservationMs: Number(median(after).toFixed(1)),
    daysAhead: Number(daysAhead.toFixed(1)),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
  return result.coldMs < 1000 && result.warmMs < 50;
}

/** A process of its own, as each command is. Prints how long its slowest reservation took. */
function reserveInChild(stateDir: string, count: number): Promise<number> {
  const file = join(import.meta.dirname, '..', 'test', 'testbed', 'reserve-child.ts');
  const child = spawn(process.execPath, ['--import=tsx', file, stateDir, site, String(count)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (data: Buffer) => (output += data.toString()));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => {
      if (status === 0) resolve((JSON.parse(output) as { slowestMs: number }).slowestMs);
      else reject(new Error(`a process that reserves ended with status ${String(status)}`));
    });
  });
}

async function race(stateDir: string, processes: number, each: number): Promise<void> {
  const store = await openStore(stateDir);
  await makeSite(store, 50);
  const begun = performance.now();
  const slowest = await Promise.all(Array.from({ length: processes }, () => reserveInChild(stateDir, each)));
  const seconds = (performance.now() - begun) / 1000;
  const { rows: overlaps } = await sql<{ node: string }>`select a.node from bookings a join bookings b
    on a.node = b.node and a.lease < b.lease
    and a.starts_at < b.busy_until and b.starts_at < a.busy_until`.execute(store.db);
  const leases = await store.db.selectFrom('leases').select('id').execute();
  await store.close();
  if (overlaps.length > 0) throw new Error(`${String(overlaps.length)} bookings overlap`);
  if (leases.length !== processes * each) throw new Error(`${String(leases.length)} leases were made`);
  const result = {
    bench: 'reservations-at-once',
    processes,
    reservations: leases.length,
    seconds: Number(seconds.toFixed(1)),
    perSecond: Math.round(leases.length / seconds),
    slowestMs: Math.round(Math.max(...slowest)),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

for (const work of [
  async (folder: string) => {
    if (!(await earliest(folder))) process.exitCode = 1;
  },
  (folder: string) => race(folder, 20, 50),
]) {
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-bench-calendar-'));
  try {
    await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
