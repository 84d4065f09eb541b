/** Reservations on a real store: what is refused and why, extending, giving back, holding, expiry, limits, the clock. */
import t from 'tap';
import type { Test } from 'tap';
import type { Actor } from '../../src/core/actor.js';
import { systemClock } from '../../src/core/clock.js';
import type { Clock } from '../../src/core/clock.js';
import { defaultSettings, parseSettings } from '../../src/core/settings.js';
import type { Settings } from '../../src/core/settings.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import { calendarView } from '../../src/testbed/lease/calendar-view.js';
import { beginDue, endDue, warnDue } from '../../src/testbed/lease/due.js';
import { extendLease } from '../../src/testbed/lease/extend.js';
import { giveBackLease } from '../../src/testbed/lease/give-back.js';
import { acceptClock } from '../../src/testbed/lease/ground.js';
import type { Ground } from '../../src/testbed/lease/ground.js';
import {
  adoptLease,
  abandonedLeases,
  holdLease,
  moveNodes,
  putDownLease,
  refreshHeld,
  releaseLease,
  seizeLease,
  takeNodes,
} from '../../src/testbed/lease/lease.js';
import { reserve } from '../../src/testbed/lease/reserve.js';
import type { ReserveRequest } from '../../src/testbed/lease/reserve.js';
import { findSlots } from '../../src/testbed/lease/slots.js';
import { transferLease } from '../../src/testbed/lease/transfer.js';
import { listLeases, showLease } from '../../src/testbed/lease/view.js';
import type { LeaseView } from '../../src/testbed/lease/view.js';
import { destroyedProof } from '../../src/testbed/node/clean-proof.js';
import type { CleanProof } from '../../src/testbed/node/clean-proof.js';
import { transition } from '../../src/testbed/node/transition.js';

t.setTimeout(240_000);

const minute = 60_000;
const hour = 60 * minute;
const gap = defaultSettings.lease.cleaning_gap_sec * 1000;
const start = Date.UTC(2026, 5, 1, 8);
const ada: Actor = { name: 'ada', role: 'user' };
const bob: Actor = { name: 'bob', role: 'user' };
const operator: Actor = { name: 'root', role: 'operator' };

interface Bench extends Ground {
  /** Sets the clock, in milliseconds after the start. */
  at(ms: number): void;
  /** Reserves for ada one node for an hour, save what is said otherwise. */
  book(request?: Partial<ReserveRequest>, actor?: Actor): Promise<LeaseView>;
  changes(subject: string): Promise<string[]>;
  notices(): Promise<string[]>;
  state(node: string): Promise<string>;
}

async function ground(t: Test, settings: Settings = defaultSettings): Promise<Bench> {
  const store = await openStore(t.testdir());
  t.teardown(() => store.close());
  let now = start;
  const clock: Clock = { now: () => now, sleep: (ms, signal) => systemClock.sleep(ms, signal) };
  const one: Ground = { store, settings, clock };
  return {
    ...one,
    at: (ms) => (now = start + ms),
    book: (request = {}, actor = ada) =>
      reserve(one, { nodes: { count: 1 }, durationMs: hour, purpose: 'a test', ...request }, actor),
    changes: async (subject) => {
      const rows = await store.db
        .selectFrom('changes')
        .selectAll()
        .where('subject', '=', subject)
        .orderBy('id')
        .execute();
      return rows.map((row) => `${row.actor} ${row.kind}`);
    },
    notices: async () =>
      (await store.db.selectFrom('notices').select(['kind', 'subject']).orderBy('created_at').execute()).map(
        (row) => `${row.kind} ${row.subject}`,
      ),
    state: async (node) =>
      (await store.db.selectFrom('nodes').select('state').where('name', '=', node).executeTakeFirstOrThrow())
        .state,
  };
}

const all = Array.from({ length: 8 }, (_, index) => `local/n0${String(index + 1)}`);

/** Proof of a container that was taken away. */
function gone(node: string, generation: number): CleanProof {
  return destroyedProof(
    {
      node,
      method: 'container-destroyed',
      isClean: true,
      parts: [{ what: 'its folder', found: null }],
      imageHash: null,
      generation,
      hostKey: null,
      lastBootId: null,
    },
    generation,
  );
}

t.test('what cannot be is refused with what could be', async (t) => {
  const bench = await ground(t);
  await t.test('durations and starts', async (t) => {
    for (const durationMs of [0, -hour, Number.NaN, 1.5]) {
      await t.rejects(bench.book({ durationMs }), { code: 'IB_LEASE_INVALID', hint: /4h/ });
      const slots = findSlots(bench, { nodes: { count: 1 }, durationMs });
      await t.rejects(slots, { code: 'IB_LEASE_INVALID' });
    }
    await t.rejects(bench.book({ startsAt: start - 1 }), {
      code: 'IB_LEASE_INVALID',
      message: /in the past/,
    });
    await t.rejects(bench.book({ durationMs: 31 * 24 * hour }), {
      code: 'IB_LEASE_INVALID',
      message: /longest is 720 h/,
    });
    await t.rejects(bench.book({ startsAt: start + 366 * 24 * hour }), {
      code: 'IB_LEASE_INVALID',
      message: /too far ahead/,
    });
  });
  await t.test('nodes, tags and sites', async (t) => {
    await t.rejects(bench.book({ nodes: { count: 0 } }), { code: 'IB_LEASE_INVALID' });
    await t.rejects(bench.book({ nodes: { count: 9 } }), {
      code: 'IB_NOT_ENOUGH_NODES',
      message: /at most 8 such nodes of the site local could ever be free/,
    });
    await t.rejects(bench.book({ nodes: { names: ['local/n99'] } }), {
      code: 'IB_NODE_UNKNOWN',
      hint: /local\/n01, local\/n02/,
    });
    await t.rejects(bench.book({ nodes: { names: ['n01', 'local/n01'] } }), {
      code: 'IB_LEASE_INVALID',
      message: /named twice/,
    });
    await t.rejects(bench.book({ site: 'mars' }), { code: 'IB_SITE_UNKNOWN', hint: /site add/ });
    await bench.book({ startsAt: start + hour });
    await bench.store.db
      .updateTable('nodes')
      .set({ spec: '{"tags":["gpu","big"]}' })
      .where('name', 'in', all.slice(0, 2))
      .execute();
    await bench.store.db
      .updateTable('nodes')
      .set({ spec: '{"tags":[]}' })
      .where('name', 'in', all.slice(2))
      .execute();
    await t.rejects(bench.book({ nodes: { count: 1, tags: ['tpu'] } }), {
      code: 'IB_LEASE_INVALID',
      hint: /There are: big, gpu\./,
    });
    await t.rejects(bench.book({ nodes: { count: 1, backend: 'moon' } }), {
      code: 'IB_LEASE_INVALID',
      hint: /container/,
    });
    await t.rejects(bench.book({ nodes: { count: 3, tags: ['gpu'] } }), {
      code: 'IB_NOT_ENOUGH_NODES',
      message: /at most 2 such nodes/,
    });
    t.strictSame(
      (await bench.book({ nodes: { count: 2, tags: ['gpu'] }, startsAt: start + 9 * hour })).nodes,
      all.slice(0, 2),
    );
    await transition(bench.store.db, 'local/n01', 'maintenance', { actor: operator, why: 'a fan' });
    await t.rejects(bench.book({ nodes: { count: 8 } }), {
      code: 'IB_NOT_ENOUGH_NODES',
      message: /at most 7 .* could ever be free .*1 maintenance/,
    });
    await t.rejects(bench.book({ nodes: { names: ['n01'] } }), {
      code: 'IB_NOT_ENOUGH_NODES',
      message: /at most 0/,
    });
  });
  await t.test('leases that are not there', async (t) => {
    await t.rejects(showLease(bench.store, 'l-none'), { code: 'IB_LEASE_UNKNOWN' });
    await t.rejects(extendLease(bench, 'l-none', { durationMs: hour }, ada), { code: 'IB_LEASE_UNKNOWN' });
    await t.rejects(giveBackLease(bench, 'l-none', ada), { code: 'IB_LEASE_UNKNOWN' });
  });
});

t.test('reserving', async (t) => {
  await t.test(
    'a lease from now on begins at once; one for later has its nodes bound, and begins when it is due',
    async (t) => {
      const bench = await ground(t);
      const now = await bench.book({ nodes: { count: 2 } });
      t.match(now, { state: 'active', nodes: all.slice(0, 2), owner: 'ada', own: false, controller: null });
      t.equal(await bench.state('local/n01'), 'leased');
      const later = await bench.book({ nodes: { count: 8 }, startsAt: start + 2 * hour });
      t.match(later, { state: 'reserved', nodes: all, startsAt: start + 2 * hour, endsAt: start + 3 * hour });
      t.strictSame(await beginDue(bench), { begun: [], delayed: [] });
      bench.at(hour);
      t.match(await endDue(bench), { ended: [now.id], asked: [], overdue: [] });
      t.match(await showLease(bench.store, now.id), {
        state: 'ended',
        endReason: 'expired',
        nodes: all.slice(0, 2),
      });
      t.equal(await bench.state('local/n01'), 'available');
      bench.at(2 * hour);
      t.strictSame(await beginDue(bench), { begun: [later.id], delayed: [] });
      t.match(await showLease(bench.store, later.id), { state: 'active' });
      t.strictSame(
        (await listLeases(bench.store)).map((lease) => lease.id),
        [later.id],
      );
      t.equal((await listLeases(bench.store, { all: true, owner: 'ada' })).length, 2);
      t.strictSame(await listLeases(bench.store, { all: true, owner: 'bob' }), []);
      t.strictSame(await bench.changes(later.id), ['ada lease.reserved', 'controller lease.started']);
      t.strictSame(await bench.notices(), [
        `lease.started ${now.id}`,
        `lease.ended ${now.id}`,
        `lease.started ${later.id}`,
      ]);
    },
  );

  await t.test(
    'what is not free now is refused with the earliest start, which then can be had',
    async (t) => {
      const bench = await ground(t);
      await bench.book({ nodes: { count: 6 } });
      const refused = await bench.book({ nodes: { count: 3 } }).catch((error: unknown) => error);
      t.match(refused, { code: 'IB_NOT_ENOUGH_NODES', message: /2 of 8 are free/ });
      const { earliest } = (refused as { details: { earliest: number } }).details;
      t.equal(earliest, start + hour + gap, 'after the hour and the cleaning gap');
      t.match((await bench.book({ nodes: { count: 3 }, startsAt: earliest })).state, 'reserved');
      await t.rejects(bench.book({ nodes: { names: ['n01'] }, startsAt: start + hour }), {
        code: 'IB_NOT_ENOUGH_NODES',
        message: /local\/n01 is not free from 2026-06-01T09:00:00Z/,
      });
    },
  );

  await t.test('a command takes only nodes that nobody has reserved for any of its time', async (t) => {
    const bench = await ground(t);
    const { store, clock } = bench;
    const later = await bench.book({ nodes: { names: all.slice(0, 6) }, startsAt: start + hour });
    const take = (count: number, durationMs: number): ReturnType<typeof takeNodes> =>
      takeNodes(store, {
        nodes: { count },
        owner: 'bob',
        purpose: 'x',
        controller: 'c-1-1-dead',
        durationMs,
        clock,
      });
    await t.rejects(take(3, 2 * hour), {
      code: 'IB_NOT_ENOUGH_NODES',
      message: /6 available ones are reserved before/,
    });
    t.strictSame((await take(2, 2 * hour)).nodes, all.slice(6));
    t.equal((await take(6, hour - gap)).nodes.length, 6, 'a short one fits before');
    t.equal((await showLease(store, later.id)).nodes.length, 6);
  });

  await t.test('reservations by count move where that makes room for named nodes', async (t) => {
    const bench = await ground(t);
    const startsAt = start + hour;
    const flexible = await bench.book({ nodes: { count: 2 }, startsAt });
    t.strictSame(flexible.nodes, ['local/n01', 'local/n02']);
    const named = await bench.book({ nodes: { names: ['n01'] }, startsAt }, bob);
    t.strictSame(named.nodes, ['local/n01']);
    t.strictSame((await showLease(bench.store, flexible.id)).nodes, ['local/n02', 'local/n03']);
    t.strictSame(await bench.changes(flexible.id), ['ada lease.reserved', 'bob lease.rebound']);
    await t.rejects(bench.book({ nodes: { names: ['n01'] }, startsAt }), { code: 'IB_NOT_ENOUGH_NODES' });
  });

  await t.test(
    'one whose node is not available in time begins with another, or waits and says so',
    async (t) => {
      const bench = await ground(t);
      const counted = await bench.book({ startsAt: start + hour });
      const named = await bench.book({ nodes: { names: ['n05'] }, startsAt: start + hour });
      const fault = { code: 'broken', message: 'It is broken.' };
      for (const node of ['local/n01', 'local/n05']) {
        await transition(bench.store.db, node, 'quarantined', { fault, clock: bench.clock });
      }
      bench.at(hour);
      t.strictSame(await beginDue(bench), { begun: [counted.id], delayed: [named.id] });
      t.match((await showLease(bench.store, counted.id)).nodes, ['local/n02']);
      bench.at(hour + minute);
      t.strictSame(await beginDue(bench), { begun: [], delayed: [named.id] });
      t.equal((await bench.notices()).filter((one) => one === `lease.delayed ${named.id}`).length, 1);
      bench.at(2 * hour);
      t.match((await endDue(bench)).ended.sort(), [counted.id, named.id].sort());
      t.match(await showLease(bench.store, named.id), { endReason: 'expired', nodes: [] });
    },
  );
});

t.test('slots are the earliest start, then starts on the grid, with what could be had', async (t) => {
  const bench = await ground(t);
  await bench.book({ nodes: { count: 6 }, durationMs: hour + 7 * minute });
  await bench.book({ nodes: { names: ['n08'] }, startsAt: start + 10 * hour });
  const [first, second, ...others] = await findSlots(bench, { nodes: { count: 3 }, durationMs: hour });
  t.match(first, {
    startsAt: start + hour + 17 * minute,
    endsAt: start + 2 * hour + 17 * minute,
    freeNodes: 8,
  });
  t.equal(first?.nodes.length, 3);
  t.match(second, { startsAt: start + 1.5 * hour });
  t.equal(others.length, 8);
  const whole = await findSlots(bench, { nodes: { count: 8 }, durationMs: hour, limit: 1 });
  t.match(whole, [{ startsAt: start + hour + 17 * minute, extendableUntil: start + 10 * hour - gap }]);
  t.match(await findSlots(bench, { nodes: { count: 2 }, durationMs: hour, limit: 1 }), [{ startsAt: start }]);
  const rows = await calendarView(bench, { from: start, days: 1 });
  t.equal(rows.length, 8);
  t.match(rows.at(-1), { node: 'local/n08', bookings: [{ owner: 'ada', startsAt: start + 10 * hour }] });
});

t.test('extending', async (t) => {
  await t.test('goes up to the next reservation and says until when', async (t) => {
    const bench = await ground(t);
    const lease = await bench.book({ nodes: { names: ['n01'] } });
    await bench.book({ nodes: { names: ['n01'] }, startsAt: start + 4 * hour }, bob);
    t.match(await extendLease(bench, lease.id, { durationMs: hour }, ada), { endsAt: start + 2 * hour });
    const refused = extendLease(bench, lease.id, { durationMs: 2 * hour }, ada);
    await t.rejects(refused, { code: 'IB_LEASE_CONFLICT', details: { until: start + 4 * hour - gap } });
    t.match(await extendLease(bench, lease.id, { until: start + 4 * hour - gap }, ada), {
      endsAt: start + 4 * hour - gap,
    });
    await t.rejects(extendLease(bench, lease.id, { durationMs: 1 }, ada), {
      message: /cannot be made longer at all/,
    });
    await t.rejects(extendLease(bench, lease.id, { until: start + hour }, ada), { code: 'IB_LEASE_INVALID' });
    await t.rejects(extendLease(bench, lease.id, { durationMs: 0 }, ada), { code: 'IB_LEASE_INVALID' });
    await t.rejects(extendLease(bench, lease.id, { durationMs: hour }, bob), { code: 'IB_NOT_ALLOWED' });
  });

  await t.test('moves reservations by count out of the way, its own among them', async (t) => {
    const bench = await ground(t);
    const lease = await bench.book({ nodes: { names: all.slice(0, 7) } });
    const movable = await bench.book({ nodes: { count: 1 }, startsAt: start + 2 * hour });
    t.strictSame(movable.nodes, ['local/n01'], 'close behind the other, so that n08 stays whole');
    await bench.book({ nodes: { names: ['n01'] }, startsAt: start + 6 * hour }, bob);
    await extendLease(bench, movable.id, { until: start + 7 * hour }, ada);
    t.match(
      (await showLease(bench.store, movable.id)).nodes,
      ['local/n02'],
      'it went to another node as a whole',
    );
    await extendLease(bench, lease.id, { until: start + 3 * hour }, ada);
    t.match(await showLease(bench.store, movable.id), { nodes: ['local/n08'], endsAt: start + 7 * hour });
    t.match(await bench.changes(movable.id), [
      'ada lease.reserved',
      'ada lease.extended',
      'ada lease.rebound',
    ]);
    const longer = extendLease(bench, lease.id, { until: start + 6 * hour }, ada);
    await t.rejects(longer, { code: 'IB_LEASE_CONFLICT', details: { until: start + 6 * hour - gap } });
  });

  await t.test('is refused after the end', async (t) => {
    const bench = await ground(t);
    const lease = await bench.book();
    bench.at(hour);
    await t.rejects(
      extendLease(bench, lease.id, { durationMs: hour }, ada),
      { code: 'IB_LEASE_ENDED' },
      'in its grace',
    );
    await endDue(bench);
    await t.rejects(extendLease(bench, lease.id, { durationMs: hour }, ada), { code: 'IB_LEASE_ENDED' });
    await t.rejects(giveBackLease(bench, lease.id, ada), { code: 'IB_LEASE_ENDED' });
  });
});

t.test('giving back and handing on', async (t) => {
  await t.test(
    'frees what was booked; another person may not, an operator may, and it is recorded',
    async (t) => {
      const bench = await ground(t);
      const lease = await bench.book({ nodes: { count: 8 }, durationMs: 5 * hour });
      const later = await bench.book({ nodes: { count: 8 }, startsAt: start + 6 * hour });
      await t.rejects(giveBackLease(bench, lease.id, bob), {
        code: 'IB_NOT_ALLOWED',
        message: /belongs to ada/,
      });
      bench.at(hour);
      t.match(await giveBackLease(bench, lease.id, operator), {
        state: 'ended',
        endReason: 'released',
        endedAt: start + hour,
      });
      t.match(await bench.changes(lease.id), [
        'ada lease.reserved',
        'ada lease.started',
        'root lease.released',
      ]);
      const change = await bench.store.db
        .selectFrom('changes')
        .selectAll()
        .where('kind', '=', 'lease.released')
        .executeTakeFirstOrThrow();
      t.match(JSON.parse(change.detail), { owner: 'ada', by: 'operator' });
      t.match(await giveBackLease(bench, later.id, ada), { endReason: 'cancelled', nodes: [] });
      t.match(
        await bench.book({ nodes: { count: 8 }, durationMs: 9 * hour }, bob),
        { state: 'active' },
        'all is free again',
      );
    },
  );

  await t.test('waits for what stands on it', async (t) => {
    const bench = await ground(t);
    const { store, clock } = bench;
    const controller = await registerController(store, clock);
    const lease = await bench.book();
    const held = await holdLease(bench, lease.id, controller, ada);
    await t.rejects(giveBackLease(bench, lease.id, ada), {
      code: 'IB_LEASE_CONFLICT',
      message: /hands of another/,
    });
    await t.rejects(transferLease(bench, lease.id, 'bob', ada), { code: 'IB_LEASE_CONFLICT' });
    await putDownLease(store, held, new Map(), { clock });
    const row = {
      id: 'k1',
      lease: lease.id,
      backend: 'container',
      layers: '[]',
      nodes: '[]',
      kept: 1,
      created_at: 1,
    };
    await store.db.insertInto('clusters').values(row).execute();
    await t.rejects(giveBackLease(bench, lease.id, ada), {
      code: 'IB_LEASE_CONFLICT',
      hint: /cluster down k1/,
    });
    t.match(await showLease(store, lease.id), { clusters: ['k1'] });
    await t.rejects(holdLease(bench, lease.id, controller, ada), {
      code: 'IB_LEASE_CONFLICT',
      hint: /cluster down k1/,
    });
  });

  await t.test('a lease handed on has a new owner and generation', async (t) => {
    const bench = await ground(t);
    const lease = await bench.book();
    await t.rejects(transferLease(bench, lease.id, 'bob', bob), { code: 'IB_NOT_ALLOWED' });
    await t.rejects(transferLease(bench, lease.id, 'ada', ada), { code: 'IB_LEASE_INVALID' });
    const given = await transferLease(bench, lease.id, 'bob', ada);
    t.equal(given.owner, 'bob');
    t.ok(given.generation > lease.generation);
    await t.rejects(giveBackLease(bench, lease.id, ada), { code: 'IB_NOT_ALLOWED' });
    const user = { name: 'eve', role: 'user', token_hash: 'x', created_at: 1, revoked_at: null };
    await bench.store.db.insertInto('users').values(user).execute();
    await t.rejects(transferLease(bench, lease.id, 'eva', bob), { code: 'IB_USER_UNKNOWN', hint: /eve/ });
    t.equal((await transferLease(bench, lease.id, 'eve', bob)).owner, 'eve');
  });
});

t.test('a lease in hand', async (t) => {
  await t.test(
    'has one controller at a time, and each taking in hand gives it a new generation',
    async (t) => {
      const bench = await ground(t);
      const { store, clock } = bench;
      const mine = await registerController(store, clock);
      const other = await registerController(store, clock, process.ppid);
      const lease = await bench.book({ nodes: { count: 2 } });
      t.strictSame(await abandonedLeases(store, clock), [], 'nobody had it in hand');
      await t.rejects(holdLease(bench, lease.id, mine, bob), { code: 'IB_NOT_ALLOWED' });
      const held = await holdLease(bench, lease.id, mine, ada);
      t.match(held, { nodes: lease.nodes, own: false });
      t.ok(held.generation > lease.generation);
      await t.rejects(holdLease(bench, lease.id, other, operator), { code: 'IB_LEASE_CONFLICT' });
      await t.rejects(adoptLease(store, lease.id, other, { clock }), { code: 'IB_LEASE_CONFLICT' });

      await moveNodes(store, held, 'provisioning', { clock, nodes: [held.nodes[0]!] });
      await t.rejects(putDownLease(store, held, new Map(), { clock }), {
        code: 'IB_NODE_STATE',
        message: /clean record/,
      });
      const clean = new Map([[held.nodes[0]!, gone(held.nodes[0]!, held.generation)]]);
      await putDownLease(store, held, clean, { clock });
      t.match(await showLease(store, lease.id), { state: 'active', controller: null, nodes: lease.nodes });
      t.strictSame([await bench.state('local/n01'), await bench.state('local/n02')], ['leased', 'leased']);
      t.ok(held.signal.aborted);

      const again = await holdLease(bench, lease.id, mine, ada);
      const seized = await seizeLease(store, lease.id, other, { clock });
      t.ok(seized.generation > again.generation);
      await t.rejects(moveNodes(store, again, 'provisioning', { clock }), { code: 'IB_LEASE_CONFLICT' });
      await refreshHeld(store, [again, seized], clock);
      t.match(again.signal.reason, { code: 'IB_LEASE_CONFLICT' });
      t.notOk(seized.signal.aborted);
      await extendLease(bench, lease.id, { durationMs: hour }, ada);
      bench.at(hour);
      await refreshHeld(store, [seized], clock);
      t.notOk(seized.signal.aborted, 'it was extended');
      bench.at(2 * hour);
      await refreshHeld(store, [seized], clock);
      t.match(seized.signal.reason, { code: 'IB_LEASE_ENDED' });
      t.match(await endDue(bench), { ended: [], asked: [{ id: lease.id, controller: other }], overdue: [] });
      bench.at(2 * hour + defaultSettings.lease.grace_sec * 1000);
      t.match(await endDue(bench), { ended: [], asked: [], overdue: [{ id: lease.id, clusters: [] }] });
    },
  );

  await t.test('is begun by who holds it when it is due, and not before', async (t) => {
    const bench = await ground(t);
    const controller = await registerController(bench.store, bench.clock);
    const lease = await bench.book({ startsAt: start + hour });
    await t.rejects(holdLease(bench, lease.id, controller, ada), {
      code: 'IB_LEASE_CONFLICT',
      message: /begins at/,
    });
    bench.at(hour);
    t.match(await holdLease(bench, lease.id, controller, ada), { nodes: lease.nodes });
    const late = await bench.book({ startsAt: start + 2 * hour }, bob);
    bench.at(3 * hour);
    await t.rejects(holdLease(bench, late.id, controller, bob), { code: 'IB_LEASE_ENDED' });
  });

  await t.test(
    'left by a dead controller is work for recovery, with the same lease under a new generation',
    async (t) => {
      const bench = await ground(t);
      const { store, clock } = bench;
      const controller = await registerController(store, clock);
      const lease = await bench.book();
      const held = await holdLease(bench, lease.id, 'c-1-1-dead', ada);
      await moveNodes(store, held, 'provisioning', { clock });
      t.strictSame(
        (await abandonedLeases(store, clock)).map((one) => one.id),
        [lease.id],
      );
      await t.rejects(holdLease(bench, lease.id, controller, ada), {
        code: 'IB_LEASE_CONFLICT',
        hint: /resume/,
      });
      const adopted = await adoptLease(store, lease.id, controller, { clock });
      t.ok(adopted.generation > held.generation);
      await t.rejects(releaseLease(store, held, { clock }), { code: 'IB_LEASE_CONFLICT' });
      await putDownLease(
        store,
        adopted,
        new Map([[lease.nodes[0]!, gone(lease.nodes[0]!, adopted.generation)]]),
        { clock },
      );
      t.match(await showLease(store, lease.id), { state: 'active', controller: null });
    },
  );
});

t.test('a warning goes out once for each end', async (t) => {
  const bench = await ground(t);
  const lease = await bench.book();
  t.strictSame(await warnDue(bench), []);
  bench.at(hour - defaultSettings.lease.warning_sec * 1000);
  await warnDue(bench);
  t.strictSame(await warnDue(bench), [lease.id]);
  await extendLease(bench, lease.id, { durationMs: hour }, ada);
  t.strictSame(await warnDue(bench), []);
  bench.at(2 * hour - minute);
  await warnDue(bench);
  t.equal((await bench.notices()).filter((one) => one === `lease.warning ${lease.id}`).length, 2);
});

t.test('limits count what is still ahead', async (t) => {
  const bench = await ground(
    t,
    parseSettings('limits: {default: {node_hours_ahead: 10}, users: {bob: {leases: 2}}}', 'x'),
  );
  const lease = await bench.book({ nodes: { count: 4 }, durationMs: 2 * hour });
  const more = { nodes: { count: 1 }, durationMs: 3 * hour, startsAt: start + 10 * hour };
  await t.rejects(bench.book(more), {
    code: 'IB_LEASE_LIMIT',
    message: /8 node-hours ahead and asks for 3 more; 10/,
  });
  bench.at(hour);
  t.match(await bench.book(more), { state: 'reserved' }, 'an hour of four nodes is over');
  await t.rejects(extendLease(bench, lease.id, { durationMs: hour }, ada), { code: 'IB_LEASE_LIMIT' });
  const bobs = [await bench.book({}, bob), await bench.book({}, bob)];
  await t.rejects(bench.book({}, bob), {
    code: 'IB_LEASE_LIMIT',
    message: /bob has 2 leases, and 2 are allowed/,
  });
  await t.rejects(transferLease(bench, lease.id, 'bob', ada), { code: 'IB_LEASE_LIMIT' });
  await giveBackLease(bench, bobs[0]!.id, bob);
  t.match(await bench.book({}, bob), { state: 'active' });
});

t.test('priority displaces only where nothing else makes room, and no more than needed', async (t) => {
  const bench = await ground(t, parseSettings('priority: {users: {bob: 5, eve: 5}}', 'x'));
  const startsAt = start + 2 * hour;
  const first = await bench.book({ nodes: { names: all.slice(0, 4) }, startsAt });
  bench.at(1000);
  const second = await bench.book({ nodes: { names: ['n05', 'n06'] }, startsAt });
  const big = { nodes: { count: 4 }, startsAt };
  await t.rejects(bench.book(big, bob), { code: 'IB_NOT_ENOUGH_NODES' }, 'not without asking for it');
  await t.rejects(bench.book({ ...big, preempt: true }, { name: 'carl', role: 'user' }), {
    code: 'IB_NOT_ENOUGH_NODES',
  });
  const won = await bench.book({ ...big, preempt: true }, bob);
  t.match(
    await showLease(bench.store, second.id),
    { state: 'ended', endReason: 'displaced', nodes: [] },
    'the newer one went',
  );
  t.match(await showLease(bench.store, first.id), { state: 'reserved', nodes: all.slice(0, 4) });
  t.strictSame(won.nodes, all.slice(4));
  t.ok((await bench.notices()).includes(`lease.displaced ${second.id}`));
  t.strictSame(await bench.changes(second.id), ['ada lease.reserved', 'bob lease.displaced']);
  await t.rejects(
    bench.book({ nodes: { names: all }, startsAt, preempt: true }, { name: 'eve', role: 'user' }),
    {
      code: 'IB_NOT_ENOUGH_NODES',
    },
    'not of an equal',
  );
  const running = await bench.book({ nodes: { names: ['n07'] }, durationMs: 30 * minute });
  await t.rejects(bench.book({ nodes: { names: ['n07'] }, preempt: true, durationMs: 10 * minute }, bob), {
    code: 'IB_NOT_ENOUGH_NODES',
  });
  t.match(await showLease(bench.store, running.id), { state: 'active' }, 'what has begun stays');
});

t.test('a clock that goes back', async (t) => {
  const bench = await ground(t);
  const lease = await bench.book();
  bench.at(-30_000);
  t.match(await bench.book({ nodes: { count: 1 } }), { startsAt: start }, 'half a minute is made up for');
  bench.at(10 * hour);
  await endDue(bench);
  bench.at(hour);
  for (const refused of [bench.book(), extendLease(bench, lease.id, { durationMs: hour }, ada)]) {
    await t.rejects(refused, { code: /IB_CLOCK_BACK|IB_LEASE_ENDED/ });
  }
  const take = (): ReturnType<typeof takeNodes> =>
    takeNodes(bench.store, {
      nodes: { count: 8 },
      owner: 'ada',
      purpose: 'x',
      controller: 'c',
      durationMs: hour,
      clock: bench.clock,
    });
  await t.rejects(bench.book(), { code: 'IB_CLOCK_BACK', hint: /clock accept/ });
  await t.rejects(take(), { code: 'IB_CLOCK_BACK' });
  await t.rejects(acceptClock(bench, ada), { code: 'IB_NOT_ALLOWED' });
  t.strictSame(await acceptClock(bench, operator), { before: start + 10 * hour, now: start + hour });
  t.strictSame(await bench.changes('clock'), ['root clock.accepted']);
  t.equal((await take()).nodes.length, 8, 'what is over keeps nobody from a node');
});
