/**
 * Failures in a row, and the probes of idle nodes. Call `recordFailure` where the backend or the node is to blame (failed
 * provisioning, failed clean, failed probe), and `recordSuccess` where it did what was asked.
 */
import { sql, type Kysely } from 'kysely';
import { z } from 'zod';
import { controllerActor } from '../../core/actor.js';
import { systemClock, throwIfAborted, type Clock } from '../../core/clock.js';
import type { Settings } from '../../core/settings.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import type { Backend } from '../driver/driver.js';
import { parseFault, type NodeFault } from './fault.js';
import { mayFollow } from './states.js';
import { nodeRow, parseState, transition } from './transition.js';

type HealthSettings = Pick<Settings, 'health'>;

/**
 * Counts a failure. At the limit of the settings the node is quarantined with the fault `consecutive-failures`; one under
 * a lease carries the fault from then on, and is quarantined when it is given back. Returns the failures in a row.
 */
export async function recordFailure(
  db: Kysely<Database>,
  node: string,
  failure: Pick<NodeFault, 'code' | 'message'>,
  settings: HealthSettings,
  clock: Clock = systemClock,
): Promise<number> {
  if (!db.isTransaction) {
    return db.transaction().execute((inner) => recordFailure(inner, node, failure, settings, clock));
  }
  const row = await nodeRow(db, node);
  const failures = row.failures + 1;
  await db.updateTable('nodes').set({ failures }).where('name', '=', node).execute();
  const { code, message } = failure;
  const detail = { code, message, failures };
  await recordChange(db, clock, { actor: controllerActor, kind: 'node.failed', subject: node, detail });
  const limit = settings.health.failures;
  if (failures < limit || parseFault(row.fault) !== null) return failures;
  const state = parseState(row.state);
  const fault: NodeFault = {
    code: 'consecutive-failures',
    message: `It failed ${String(failures)} times in a row, the last time so: ${message}`,
    last: await lastFailures(db, node, limit),
  };
  if (row.lease !== null) await setPendingFault(db, node, fault, clock);
  else if (mayFollow(state, 'quarantined')) await transition(db, node, 'quarantined', { fault, clock });
  return failures;
}

/** Ends a row of failures. */
export async function recordSuccess(
  db: Kysely<Database>,
  node: string,
  clock: Clock = systemClock,
): Promise<void> {
  if (!db.isTransaction) return db.transaction().execute((inner) => recordSuccess(inner, node, clock));
  const { failures } = await nodeRow(db, node);
  if (failures === 0) return;
  await db.updateTable('nodes').set({ failures: 0 }).where('name', '=', node).execute();
  const detail = { failures };
  await recordChange(db, clock, { actor: controllerActor, kind: 'node.recovered', subject: node, detail });
}

/** A fault of a node under a lease: it comes into force when the node is given back (see `transition`). */
export async function setPendingFault(
  db: Kysely<Database>,
  node: string,
  fault: NodeFault,
  clock: Clock,
  actor = controllerActor,
): Promise<void> {
  const stored = { ...fault, at: clock.now() };
  await db
    .updateTable('nodes')
    .set({ fault: JSON.stringify(stored) })
    .where('name', '=', node)
    .execute();
  const detail = { fault: stored };
  await recordChange(db, clock, { actor, kind: 'node.fault', subject: node, detail });
}

async function lastFailures(db: Kysely<Database>, node: string, limit: number): Promise<unknown[]> {
  const rows = await db
    .selectFrom('changes')
    .select(['at', 'detail'])
    .where('subject', '=', node)
    .where('kind', '=', 'node.failed')
    .orderBy('id', 'desc')
    .limit(limit)
    .execute();
  const detail = z.object({ code: z.string(), message: z.string() });
  return rows.map(({ at, detail: text }) => ({ at, ...detail.parse(JSON.parse(text)) }));
}

export interface ProbeGround {
  store: Store;
  backend: Pick<Backend, 'name' | 'probe'>;
  settings: HealthSettings;
  clock: Clock;
  /** In [0, 1), for the jitter. */
  random?: () => number;
  signal?: AbortSignal;
}

export interface ProbeOutcome {
  node: string;
  /** null: well. */
  fault: { code: string; message: string } | null;
  failures: number;
}

/**
 * Probes the idle nodes of this backend whose time has come, and sets their next time. A node that is seen for the first
 * time is only given one, somewhere in the interval. None that a lease has is ever probed.
 */
export async function probeDue(ground: ProbeGround): Promise<ProbeOutcome[]> {
  const { store, backend, settings, clock, random = Math.random } = ground;
  if (settings.health.interval_sec === 0) return [];
  const due = await store.db
    .selectFrom('nodes')
    .select(['name', 'probe_at'])
    .where('state', '=', 'available')
    .where('retired', '=', 0)
    .where('lease', 'is', null)
    .where('backend', '=', backend.name)
    .where((where) => where.or([where('probe_at', 'is', null), where('probe_at', '<=', clock.now())]))
    .orderBy('name')
    .execute();
  const outcomes: ProbeOutcome[] = [];
  for (const { name, probe_at: at } of due) {
    throwIfAborted(ground.signal);
    const intervalMs = settings.health.interval_sec * 1000;
    const next = clock.now() + (at === null ? random() * intervalMs : jittered(settings, random()));
    if (!(await claim(store, name, at, Math.round(next)))) continue;
    if (at !== null) outcomes.push(await probe(ground, name));
  }
  return outcomes;
}

/** The wait until the next probe: the interval, longer or shorter by up to its share. `share` is in [0, 1). */
export function jittered({ health }: HealthSettings, share: number): number {
  return health.interval_sec * 1000 * (1 + health.jitter * (2 * share - 1));
}

/** Two controllers see the same node due: the one that sets its next time probes it. */
async function claim(store: Store, node: string, at: number | null, next: number): Promise<boolean> {
  const { numUpdatedRows } = await store.db
    .updateTable('nodes')
    .set({ probe_at: next })
    .where('name', '=', node)
    .where('state', '=', 'available')
    .where('lease', 'is', null)
    .where(sql`probe_at`, 'is', at)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

async function probe(ground: ProbeGround, node: string): Promise<ProbeOutcome> {
  const { store, backend, settings, clock, signal } = ground;
  const result = await backend.probe(signal);
  if (result.ok) {
    await recordSuccess(store.db, node, clock);
    return { node, fault: null, failures: 0 };
  }
  const { code, message } = result;
  const failures = await recordFailure(store.db, node, { code, message }, settings, clock);
  return { node, fault: { code, message }, failures };
}
