/** No sequence of what people, controllers and the clock do to leases makes two overlap, or loses a node. */
import t from 'tap';
import fc from 'fast-check';
import { sql } from 'kysely';
import type { Actor } from '../../src/core/actor.js';
import { systemClock } from '../../src/core/clock.js';
import type { Clock } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { parseSettings } from '../../src/core/settings.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import type { Store } from '../../src/record/store/store.js';
import { beginDue, endDue } from '../../src/testbed/lease/due.js';
import { extendLease } from '../../src/testbed/lease/extend.js';
import { giveBackLease } from '../../src/testbed/lease/give-back.js';
import { acceptClock } from '../../src/testbed/lease/ground.js';
import type { Ground } from '../../src/testbed/lease/ground.js';
import {
  holdLease,
  moveNodes,
  putDownLease,
  releaseLease,
  takeNodes,
} from '../../src/testbed/lease/lease.js';
import type { Lease } from '../../src/testbed/lease/lease.js';
import { reserve } from '../../src/testbed/lease/reserve.js';
import { transferLease } from '../../src/testbed/lease/transfer.js';
import { listLeases } from '../../src/testbed/lease/view.js';
import { destroyedProof } from '../../src/testbed/node/clean-proof.js';
import type { CleanProof } from '../../src/testbed/node/clean-proof.js';
import { heldStates } from '../../src/testbed/node/states.js';

t.setTimeout(300_000);

const minute = 60_000;
const start = Date.UTC(2026, 5, 1, 8);
const people: Actor[] = [
  { name: 'ada', role: 'user' },
  { name: 'bob', role: 'user' },
  { name: 'root', role: 'operator' },
];
/** What may come out of a step beside success; anything else is a defect. */
const refusals = [
  'IB_NOT_ENOUGH_NODES',
  'IB_LEASE_CONFLICT',
  'IB_LEASE_ENDED',
  'IB_LEASE_INVALID',
  'IB_NOT_ALLOWED',
  'IB_CLOCK_BACK',
] as const;

const who = fc.nat(2);
const which = fc.nat(9);
const minutes = fc.integer({ min: 1, max: 240 });
const step = fc.oneof(
  fc.record({
    do: fc.constant('reserve' as const),
    who,
    count: fc.integer({ min: 1, max: 5 }),
    after: fc.nat(300),
    minutes,
    preempt: fc.boolean(),
  }),
  fc.record({
    do: fc.constant('name' as const),
    who,
    nodes: fc.uniqueArray(fc.integer({ min: 1, max: 8 }), { minLength: 1, maxLength: 3 }),
    after: fc.nat(300),
    minutes,
  }),
  fc.record({ do: fc.constant('take' as const), who, count: fc.integer({ min: 1, max: 4 }), minutes }),
  fc.record({ do: fc.constant('extend' as const), who, which, minutes }),
  fc.record({ do: fc.constant('release' as const), who, which }),
  fc.record({ do: fc.constant('transfer' as const), who, which, to: who }),
  fc.record({ do: fc.constant('hold' as const), who, which }),
  fc.record({ do: fc.constant('put-down' as const), which, used: fc.boolean() }),
  fc.record({
    do: fc.constant('clock' as const),
    minutes: fc.integer({ min: -200, max: 300 }),
    accept: fc.boolean(),
  }),
  fc.constant({ do: 'due' as const }),
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

interface World extends Ground {
  now: { ms: number };
  controller: string;
  inHand: Lease[];
}

async function carryOut(world: World, one: Step): Promise<void> {
  const { store, clock, controller, inHand, now } = world;
  const actor = 'who' in one ? people[one.who]! : people[2]!;
  const leases = await listLeases(store);
  const id = 'which' in one ? (leases[one.which % Math.max(leases.length, 1)]?.id ?? 'l-none') : '';
  switch (one.do) {
    case 'reserve':
    case 'name': {
      const nodes =
        one.do === 'reserve'
          ? { count: one.count }
          : { names: one.nodes.map((number) => `n0${String(number)}`) };
      const startsAt = one.after === 0 ? {} : { startsAt: now.ms + one.after * minute };
      const preempt = one.do === 'reserve' && one.preempt;
      await reserve(
        world,
        { nodes, durationMs: one.minutes * minute, purpose: 'p', preempt, ...startsAt },
        actor,
      );
      return;
    }
    case 'take':
      inHand.push(
        await takeNodes(store, {
          nodes: { count: one.count },
          owner: actor.name,
          purpose: 'p',
          controller,
          durationMs: one.minutes * minute,
          clock,
        }),
      );
      return;
    case 'extend':
      await extendLease(world, id, { durationMs: one.minutes * minute }, actor);
      return;
    case 'release':
      await giveBackLease(world, id, actor);
      return;
    case 'transfer':
      await transferLease(world, id, people[one.to]!.name, actor);
      return;
    case 'hold':
      if (leases.some((lease) => lease.id === id)) inHand.push(await holdLease(world, id, controller, actor));
      return;
    case 'put-down': {
      const [lease] = inHand.splice(one.which % Math.max(inHand.length, 1), 1);
      if (lease) await putDown(world, lease, one.used);
      return;
    }
    case 'clock':
      now.ms += one.minutes * minute;
      if (one.accept) await acceptClock(world, people[2]!);
      return;
    case 'due':
      await endDue(world);
      await beginDue(world);
  }
}

async function putDown({ store, clock }: World, lease: Lease, used: boolean): Promise<void> {
  const clean = new Map<string, CleanProof>();
  if (used) {
    await moveNodes(store, lease, 'provisioning', { clock });
    for (const node of lease.nodes) {
      const parts = [{ what: 'its folder', found: null }];
      const rest = { imageHash: null, generation: lease.generation, hostKey: null, lastBootId: null };
      clean.set(node, destroyedProof({ node, method: 'x', isClean: true, parts, ...rest }, lease.generation));
    }
  }
  if (lease.own) await releaseLease(store, lease, { clean, clock });
  else await putDownLease(store, lease, clean, { clock });
}

/** What is wrong with the store, or undefined. */
async function broken({ db }: Store): Promise<string | undefined> {
  const bookings = await db.selectFrom('bookings').selectAll().orderBy('node').orderBy('starts_at').execute();
  for (const [index, one] of bookings.entries()) {
    if (!(one.starts_at < one.ends_at && one.ends_at <= one.busy_until))
      return `a negative interval: ${JSON.stringify(one)}`;
    const next = bookings[index + 1];
    if (next?.node === one.node && next.starts_at < one.busy_until)
      return `overlap: ${JSON.stringify([one, next])}`;
  }
  const leases = await db.selectFrom('leases').selectAll().execute();
  const backwards = leases.find(
    (lease) => lease.ends_at <= lease.starts_at || (lease.ended_at ?? Infinity) < lease.created_at,
  );
  if (backwards) return `a lease that goes backwards: ${JSON.stringify(backwards)}`;
  if (new Set(leases.map((lease) => lease.generation)).size !== leases.length)
    return 'two leases of one generation';
  const states = new Map(leases.map((lease) => [lease.id, lease.state]));
  const nodes = await db.selectFrom('nodes').selectAll().execute();
  const lost = nodes.find((node) =>
    node.lease === null
      ? !['available', 'quarantined', 'maintenance'].includes(node.state)
      : states.get(node.lease) !== 'active' || !heldStates.some((state) => state === node.state),
  );
  if (lost) return `a lost node: ${JSON.stringify(lost)}`;
  for (const lease of leases.filter((one) => one.state === 'active')) {
    const held = nodes.filter((node) => node.lease === lease.id).map((node) => node.name);
    const booked = bookings.filter((one) => one.lease === lease.id).map((one) => one.node);
    if (held.sort().join() !== booked.sort().join())
      return `${lease.id} holds ${held.join()} and has booked ${booked.join()}`;
  }
  return undefined;
}

t.test(
  'whatever is done in whatever order, bookings stay apart and every node is accounted for',
  async (t) => {
    const done = new Map<string, number>();
    const settings = parseSettings('priority: {users: {bob: 1}}', 'settings');
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 30 }), async (steps) => {
        const store = await openStore(t.testdir());
        // What a crash of the host would lose does not matter here, and syncing takes most of the time.
        await sql`pragma synchronous = off`.execute(store.db);
        const now = { ms: start };
        const clock: Clock = { now: () => now.ms, sleep: (ms, signal) => systemClock.sleep(ms, signal) };
        try {
          const controller = await registerController(store, clock);
          const world: World = { store, settings, clock, now, controller, inHand: [] };
          for (const one of steps) {
            try {
              await carryOut(world, one);
              done.set(one.do, (done.get(one.do) ?? 0) + 1);
            } catch (error) {
              if (
                !refusals.some((code) => isInfrabedError(error, code)) &&
                !isInfrabedError(error, 'IB_LEASE_UNKNOWN')
              )
                throw error;
            }
            const problem = await broken(store);
            if (problem !== undefined) throw new Error(`after ${JSON.stringify(one)}: ${problem}`);
          }
        } finally {
          await store.close();
        }
      }),
      // Without RUNS always the same sequences, so that each kind is known to have happened; with it, others each time.
      process.env['RUNS'] === undefined ? { numRuns: 40, seed: 7 } : { numRuns: Number(process.env['RUNS']) },
    );
    for (const kind of [
      'reserve',
      'name',
      'take',
      'extend',
      'release',
      'transfer',
      'hold',
      'put-down',
      'clock',
      'due',
    ]) {
      t.ok((done.get(kind) ?? 0) > 5, `${kind}: ${String(done.get(kind) ?? 0)} times without a refusal`);
    }
  },
);
