/** The life cycle of a node: its table, proofs, holds, faults, failures in a row, probes, and what is on record of it. */
import t from 'tap';
import type { Test } from 'tap';
import fc from 'fast-check';
import { sql } from 'kysely';
import type { Actor } from '../../src/core/actor.js';
import type { Clock } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { defaultSettings } from '../../src/core/settings.js';
import { openStore } from '../../src/record/store/store.js';
import type { Store } from '../../src/record/store/store.js';
import type { CleanEvidence, ProbeResult } from '../../src/testbed/driver/driver.js';
import {
  cleanProofSchema,
  destroyedProof,
  destroyedProofs,
  neverMadeProof,
  storedProof,
  untouchedProof,
} from '../../src/testbed/node/clean-proof.js';
import type { CleanProof } from '../../src/testbed/node/clean-proof.js';
import { jittered, probeDue, recordFailure, recordSuccess } from '../../src/testbed/node/health.js';
import { quarantineNode, setMaintenance } from '../../src/testbed/node/operate.js';
import { followers, heldStates, mayFollow, nodeStates, stateTable } from '../../src/testbed/node/states.js';
import type { NodeState } from '../../src/testbed/node/states.js';
import { transition } from '../../src/testbed/node/transition.js';
import type { TransitionOptions } from '../../src/testbed/node/transition.js';
import { listNodes, nodeHistory, showNode } from '../../src/testbed/node/view.js';

t.setTimeout(120_000);

const ada: Actor = { name: 'ada', role: 'operator' };
const bob: Actor = { name: 'bob', role: 'user' };
const lease = { id: 'l1', generation: 7 };
const node = 'lab/n1';
const fault = { code: 'IB_POWER', message: 'Its BMC is silent.' };

interface Bench {
  store: Store;
  clock: Clock & { time: number };
  move: (to: NodeState, options?: TransitionOptions) => Promise<NodeState>;
  row: () => ReturnType<typeof rowOf>;
}

const rowOf = (store: Store, name = node) =>
  store.db.selectFrom('nodes').selectAll().where('name', '=', name).executeTakeFirstOrThrow();

/** A store with one site, some nodes that are enrolled, and one active lease. */
async function bench(t: Test, names: readonly string[] = [node]): Promise<Bench> {
  const store = await openStore(t.testdir());
  t.teardown(() => store.close());
  const clock = {
    time: 1_000_000,
    now: () => clock.time,
    sleep: () => Promise.resolve(),
  };
  await store.db.insertInto('sites').values({ name: 'lab', inventory: '{}' }).execute();
  for (const name of names) {
    const row = { name, site: 'lab', backend: 'container', state: 'enrolled', fault: null, lease: null };
    await store.db.insertInto('nodes').values(row).execute();
  }
  await store.db
    .insertInto('leases')
    .values({
      ...lease,
      owner: 'bob',
      purpose: 'p',
      site: 'lab',
      wanted: '{}',
      own: 0,
      priority: 0,
      starts_at: 0,
      ends_at: 9e12,
      ended_at: null,
      end_reason: null,
      state: 'active',
      controller: null,
      created_at: 0,
    })
    .execute();
  return {
    store,
    clock,
    move: (to, options = {}) => transition(store.db, node, to, { clock, ...options }),
    row: () => rowOf(store),
  };
}

const evidence = (overrides: Partial<CleanEvidence> = {}): CleanEvidence => ({
  node: 'node0',
  method: 'container-destroyed',
  isClean: true,
  parts: [
    { what: 'folder', found: null },
    { what: 'processes', found: null },
  ],
  imageHash: 'a'.repeat(64),
  generation: 7,
  hostKey: null,
  lastBootId: '8c3ac6b2-1f2d-4a3e-9e6b-0a1b2c3d4e5f',
  ...overrides,
});
const destroyed = destroyedProof(evidence(), 7);
const verified: CleanProof = {
  ...(destroyed as Extract<CleanProof, { method: 'container-destroyed' }>),
  method: 'verified-boot',
  image: { hash: 'a'.repeat(64), known: 'backend' },
  bootId: { value: '8c3ac6b2-1f2d-4a3e-9e6b-0a1b2c3d4e5f' },
  dataAreas: [{ path: '/home', state: 'empty' }],
};

/** To `available`, as a node comes there first. */
async function makeAvailable({ move }: Bench): Promise<void> {
  await move('cleaning');
  await move('available', { clean: neverMadeProof('container') });
}

t.test('the table', (t) => {
  t.strictSame(
    nodeStates.filter((from) => mayFollow(from, 'leased')),
    ['available'],
    'a node is lent only when it is available',
  );
  t.strictSame(
    nodeStates.filter((from) => mayFollow(from, 'available')),
    ['cleaning'],
    'and becomes available only out of its cleaning',
  );
  t.strictSame(followers('cleaning'), ['available', 'quarantined', 'maintenance']);
  t.strictSame(followers('maintenance'), ['cleaning'], "a fault does not end a person's hold");
  t.strictSame(heldStates, ['leased', 'provisioning', 'active']);
  for (const state of nodeStates) {
    const { kind, afterCrash } = stateTable[state];
    if (kind === 'in progress') t.not(afterCrash, 'stays', `a crash in "${state}" is work for somebody`);
  }
  t.end();
});

t.test('a node moves only as the table and the conditions say, and otherwise not at all', async (t) => {
  const { move, row, store } = await bench(t);
  await t.rejects(move('available', { clean: neverMadeProof('container') }), { code: 'IB_NODE_STATE' });
  await move('cleaning');
  await t.rejects(move('available'), { code: 'IB_NODE_STATE', message: /takes a clean record/ });
  t.equal(await move('available', { clean: neverMadeProof('container') }), 'available');
  await t.rejects(move('leased'), { code: 'IB_NODE_STATE', message: /takes a lease/ });
  await t.rejects(move('leased', { lease: { id: 'l1', generation: 6 } }), {
    code: 'IB_LEASE_CONFLICT',
    message: /old generation/,
  });
  await t.rejects(move('leased', { lease: { id: 'l0', generation: 7 } }), { code: 'IB_LEASE_CONFLICT' });
  await move('leased', { lease });
  await t.rejects(move('active', { lease }), { code: 'IB_NODE_STATE', message: /leased .* become active/ });
  await t.rejects(move('provisioning'), { code: 'IB_LEASE_CONFLICT', message: /is held by the lease l1/ });
  await move('provisioning', { lease });
  await move('active', { lease });
  await move('cleaning', { lease });
  await t.rejects(move('quarantined', { lease }), { code: 'IB_NODE_STATE', message: /takes a fault/ });
  t.equal((await row()).state, 'cleaning');
  await move('quarantined', { lease, fault });
  t.match(JSON.parse((await row()).fault!), fault);
  t.match(await row(), { state: 'quarantined', lease: null });
  await store.db.updateTable('leases').set({ state: 'ended' }).execute();
  await t.rejects(move('cleaning', { lease }), { code: 'IB_LEASE_CONFLICT', message: /has ended/ });
  await t.rejects(transition(store.db, 'lab/n9', 'cleaning'), { code: 'IB_NODE_UNKNOWN' });
});

t.test('proofs', async (t) => {
  await t.test('one that lacks something is refused, and what it lacks is named', async (t) => {
    const all = await bench(t);
    const { move, row } = all;
    await move('cleaning');
    const broken = (change: object): CleanProof => ({ ...verified, ...change });
    const cases: [object, RegExp][] = [
      [{ method: 'by-hand' }, /method/],
      [{ image: { hash: null, known: 'none-ran' } }, /image/],
      [{ image: { hash: 'abc', known: 'node' } }, /image/],
      [{ hostKeyGeneration: null }, /hostKeyGeneration/],
      [{ bootId: { value: null, why: 'unknown' } }, /bootId/],
      [{ dataAreas: [] }, /dataAreas/],
      [{ dataAreas: [{ path: '/home', state: 'full' }] }, /dataAreas/],
      [{ readBack: [] }, /readBack/],
      [{ bmc: { users: [], bootOverride: 'pxe', asInInventory: false } }, /asInInventory/],
      [{ colour: 'green' }, /colour/],
    ];
    for (const [change, message] of cases) {
      await t.rejects(move('available', { clean: broken(change) }), { code: 'IB_NODE_STATE', message });
    }
    t.match(await row(), { state: 'cleaning', clean_record: null });
    t.equal(await move('available', { clean: verified }), 'available');
    const [record] = await all.store.db.selectFrom('clean_records').selectAll().execute();
    t.strictSame(storedProof(record!.method, record!.proof), verified);
    t.equal(
      storedProof('container-destroyed', '{"clusters":0}'),
      undefined,
      'older rows are not taken for proofs',
    );
  });

  await t.test('a node with a BMC is not clean without a word on it', async (t) => {
    const { move, store } = await bench(t);
    const spec = JSON.stringify({ power: { driver: 'ipmi', address: '192.0.2.1' } });
    await store.db.updateTable('nodes').set({ spec }).execute();
    await move('cleaning');
    await t.rejects(move('available', { clean: verified }), { code: 'IB_NODE_STATE', message: /its BMC/ });
    const bmc = { users: ['admin'], bootOverride: null, asInInventory: true as const };
    t.equal(await move('available', { clean: { ...verified, bmc } as CleanProof }), 'available');
  });

  await t.test('"never-made" serves once, and "untouched" only where nothing was made', async (t) => {
    const all = await bench(t);
    const { move, row } = all;
    await makeAvailable(all);
    await move('cleaning');
    await t.rejects(move('available', { clean: neverMadeProof('container') }), {
      message: /not "never-made"/,
    });
    await move('available', { clean: destroyed });
    const previous = (await row()).clean_record!;

    await move('leased', { lease });
    await move('cleaning', { lease });
    await t.rejects(move('available', { lease, clean: untouchedProof(previous - 1) }), { message: /newest/ });
    t.equal(await move('available', { lease, clean: untouchedProof(previous) }), 'available');
    t.not((await row()).clean_record, previous, 'each lending has a record of its own');

    await move('leased', { lease });
    await move('provisioning', { lease });
    await move('cleaning', { lease });
    const now = (await row()).clean_record!;
    await t.rejects(move('available', { lease, clean: untouchedProof(now) }), {
      code: 'IB_NODE_STATE',
      message: /was provisioning before/,
    });
  });

  await t.test('what a backend still found is no proof', (t) => {
    const left = [{ what: 'folder', found: '/x' }];
    t.throws(() => destroyedProof(evidence({ parts: left }), 1), {
      code: 'IB_NODE_FAILED',
      message: /folder \(\/x\)/,
    });
    t.throws(() => destroyedProof(evidence({ isClean: false }), 1), { code: 'IB_NODE_FAILED' });
    const nodes = [
      { name: 'node0', node: 'lab/n1' },
      { name: 'node1', node: 'lab/n2' },
    ];
    t.throws(() => destroyedProofs([evidence()], nodes, 1), {
      message: /says nothing about node1 \(lab\/n2\)/,
    });
    const never = destroyedProof(evidence({ imageHash: null, lastBootId: null, generation: null }), 3);
    t.ok(cleanProofSchema.safeParse(never).success, 'a node that never got to run is gone too');
    t.match(never, { hostKeyGeneration: 3, bootId: { value: null } });
    t.end();
  });

  await t.test('the database itself refuses "available" without a new record of the node', async (t) => {
    const all = await bench(t, [node, 'lab/n2']);
    const { store } = all;
    const set = (fields: object): Promise<unknown> =>
      store.db
        .updateTable('nodes')
        .set({ state: 'available', ...fields })
        .where('name', '=', node)
        .execute();
    await t.rejects(set({}), { message: /not proven clean/ });
    await transition(store.db, 'lab/n2', 'cleaning');
    await transition(store.db, 'lab/n2', 'available', { clean: verified });
    const other = (await rowOf(store, 'lab/n2')).clean_record;
    await t.rejects(set({ clean_record: other }), { message: /not proven clean/ }, "another node's record");
    await t.rejects(set({ clean_record: 99 }), { message: /not proven clean/ }, 'no record at all');
    await makeAvailable(all);
    await all.move('cleaning');
    await t.rejects(set({}), { message: /not proven clean/ }, 'the record of an earlier clean');
  });
});

t.test("a person's hold", async (t) => {
  await t.test('is for operators, says why, and takes an idle node out at once', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    const hold = (why: string, actor = ada): Promise<unknown> =>
      setMaintenance(all, node, { on: true, why }, actor);
    await t.rejects(hold('fan', bob), { code: 'IB_NOT_ALLOWED' });
    await t.rejects(hold('fan', { name: 'controller', role: 'operator' }), { code: 'IB_NOT_ALLOWED' });
    await t.rejects(hold('  '), { code: 'IB_USAGE' });
    t.strictSame(await hold('new fan'), { node, isInForce: true });
    t.match(await showNode(all.store, node, 0), {
      state: 'maintenance',
      hold: { by: 'ada', why: 'new fan', at: 1_000_000 },
    });
    await t.rejects(hold('again'), { code: 'IB_NODE_STATE' });
    await t.rejects(all.move('cleaning'), { code: 'IB_NODE_STATE', message: /only a person/ });
    t.strictSame(await setMaintenance(all, node, { on: false }, ada), { node, isInForce: true });
    t.match(await all.row(), { state: 'cleaning', hold: null }, 'what the person did is cleaned away first');
    await t.rejects(setMaintenance(all, node, { on: false }, ada), { code: 'IB_NODE_STATE' });
  });

  await t.test(
    'of a node in use changes nothing for who uses it, and comes into force at the end',
    async (t) => {
      const all = await bench(t);
      const { move, row } = all;
      await makeAvailable(all);
      await move('leased', { lease });
      t.strictSame(await setMaintenance(all, node, { on: true, why: 'disk' }, ada), {
        node,
        isInForce: false,
      });
      await move('provisioning', { lease });
      await move('active', { lease });
      await move('cleaning', { lease });
      t.equal(await move('available', { lease, clean: destroyed }), 'maintenance');
      t.match(await row(), { state: 'maintenance', lease: null });
      t.match(JSON.parse((await row()).hold!), { by: 'ada', why: 'disk' });
    },
  );

  await t.test('that is taken back before it came into force leaves no trace but the record', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    await all.move('leased', { lease });
    await setMaintenance(all, node, { on: true, why: 'disk' }, ada);
    await setMaintenance(all, node, { on: false }, ada);
    t.match(await all.row(), { state: 'leased', hold: null });
    t.match(
      (await nodeHistory(all.store, node)).slice(-2).map(({ kind, actor }) => [kind, actor]),
      [
        ['node.hold', 'ada'],
        ['node.hold-ended', 'ada'],
      ],
    );
  });

  await t.test('outlives a quarantine', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    await all.move('leased', { lease });
    await setMaintenance(all, node, { on: true, why: 'disk' }, ada);
    await all.move('quarantined', { lease, fault });
    await all.move('cleaning');
    t.equal(await all.move('available', { clean: verified }), 'maintenance');
  });
});

t.test('faults', async (t) => {
  await t.test(
    'of an idle node take it out at once, with a notice and a record of who said so',
    async (t) => {
      const all = await bench(t);
      await makeAvailable(all);
      await t.rejects(quarantineNode(all, node, 'smoke', bob), { code: 'IB_NOT_ALLOWED' });
      t.strictSame(await quarantineNode(all, node, 'smoke', ada), { node, isInForce: true });
      t.match(await showNode(all.store, node, 0), {
        state: 'quarantined',
        fault: { code: 'reported', message: 'smoke' },
      });
      const [notice] = await all.store.db.selectFrom('notices').selectAll().execute();
      t.match(notice, { kind: 'node.quarantined', subject: node });
      t.match(JSON.parse(notice!.payload), { node, fault: { code: 'reported' }, from: 'available' });
      t.match((await nodeHistory(all.store, node)).at(-1), { kind: 'node.quarantined', actor: 'ada' });
    },
  );

  await t.test('of a node in use come into force when it is given back', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    await all.move('leased', { lease });
    t.strictSame(await quarantineNode(all, node, 'smoke', ada), { node, isInForce: false });
    await t.rejects(quarantineNode(all, node, 'fire', ada), { code: 'IB_NODE_STATE' });
    t.equal((await all.row()).state, 'leased');
    await all.move('provisioning', { lease });
    await all.move('cleaning', { lease });
    t.equal(await all.move('available', { lease, clean: destroyed }), 'quarantined');
    t.match(await all.row(), { state: 'quarantined', lease: null });
    t.equal((await all.store.db.selectFrom('notices').selectAll().execute()).length, 1);
  });

  await t.test('are cleared by a verified boot only', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    await quarantineNode(all, node, 'smoke', ada);
    await all.move('cleaning');
    t.equal(
      await all.move('available', { clean: destroyed }),
      'quarantined',
      'that it is empty does not mend it',
    );
    await all.move('cleaning');
    t.equal(await all.move('available', { clean: verified }), 'available');
    t.match(await all.row(), { fault: null });
  });
});

t.test('failures in a row', async (t) => {
  const failure = { code: 'IB_PROVISION', message: 'It did not come up.' };
  const fail = ({ store, clock }: Bench): Promise<number> =>
    recordFailure(store.db, node, failure, defaultSettings, clock);

  await t.test('quarantine an idle node at the limit, and tell the last ones', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    t.equal(await fail(all), 1);
    t.equal(await fail(all), 2);
    t.equal((await all.row()).state, 'available');
    t.equal(await fail(all), 3);
    t.match(await showNode(all.store, node, 0), {
      state: 'quarantined',
      failures: 3,
      fault: { code: 'consecutive-failures', last: [failure, failure, failure] },
    });
    await all.move('cleaning');
    await all.move('available', { clean: verified });
    t.equal((await all.row()).failures, 0, 'a verified clean begins anew');
  });

  await t.test('are ended by a success', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    await fail(all);
    await fail(all);
    await recordSuccess(all.store.db, node, all.clock);
    await recordSuccess(all.store.db, node, all.clock);
    t.equal(await fail(all), 1);
    const kinds = (await nodeHistory(all.store, node)).map(({ kind }) => kind);
    t.equal(kinds.filter((kind) => kind === 'node.recovered').length, 1);
  });

  await t.test('quarantine a node in use when it is given back', async (t) => {
    const all = await bench(t);
    await makeAvailable(all);
    await all.move('leased', { lease });
    for (let count = 0; count < 4; count += 1) await fail(all);
    t.equal((await all.row()).state, 'leased');
    await all.move('provisioning', { lease });
    await all.move('cleaning', { lease });
    t.equal(await all.move('available', { lease, clean: destroyed }), 'quarantined');
    t.match(await showNode(all.store, node, 0), { fault: { code: 'consecutive-failures' }, failures: 4 });
  });
});

t.test('probes', async (t) => {
  const hourMs = 3_600_000;
  const names = ['lab/n1', 'lab/n2'];
  async function idle(
    t: Test,
  ): Promise<Bench & { probe: (result?: ProbeResult) => ReturnType<typeof probeDue>; asked: () => number }> {
    const all = await bench(t, names);
    for (const name of names) {
      await transition(all.store.db, name, 'cleaning');
      await transition(all.store.db, name, 'available', { clean: neverMadeProof('container') });
    }
    let asked = 0;
    const probe = (result: ProbeResult = { ok: true }): ReturnType<typeof probeDue> =>
      probeDue({
        ...all,
        settings: defaultSettings,
        random: () => 0.5,
        backend: {
          name: 'container',
          probe: () => {
            asked += 1;
            return Promise.resolve(result);
          },
        },
      });
    return { ...all, probe, asked: () => asked };
  }

  await t.test('come once an interval to each idle node, at a time of its own', async (t) => {
    const { probe, asked, clock, row } = await idle(t);
    t.strictSame(await probe(), [], 'the first look only sets a time');
    t.equal((await row()).probe_at, 1_000_000 + hourMs / 2);
    clock.time += hourMs / 2 - 1;
    t.strictSame(await probe(), []);
    clock.time += 1;
    t.match(await probe(), [
      { node: 'lab/n1', fault: null },
      { node: 'lab/n2', fault: null },
    ]);
    t.strictSame(await probe(), [], 'and not twice');
    t.equal(asked(), 2);
    t.equal((await row()).probe_at, clock.time + hourMs);
  });

  await t.test('never come to a node that a lease has, or that is no longer lent', async (t) => {
    const { probe, clock, store, move, asked } = await idle(t);
    await probe();
    clock.time += hourMs;
    await move('leased', { lease });
    await store.db.updateTable('nodes').set({ retired: 1 }).where('name', '=', 'lab/n2').execute();
    t.strictSame(await probe(), []);
    t.equal(asked(), 0);
    t.equal((await rowOf(store)).probe_at, null, 'its time is set anew when it is idle again');
  });

  await t.test('that fail count, and quarantine at the limit', async (t) => {
    const { probe, clock, store } = await idle(t);
    await probe();
    const full: ProbeResult = { ok: false, code: 'IB_DISK_FULL', message: 'Only 3 MB are free.' };
    for (let count = 1; count <= 3; count += 1) {
      clock.time += 2 * hourMs;
      const [first] = await probe(full);
      t.match(first, { node, fault: { code: 'IB_DISK_FULL' }, failures: count });
    }
    t.match(await showNode(store, node, 0), {
      state: 'quarantined',
      fault: { code: 'consecutive-failures' },
    });
  });

  await t.test('of two controllers at once are made once', async (t) => {
    const { probe, clock, asked } = await idle(t);
    await probe();
    clock.time += hourMs;
    const outcomes = await Promise.all([probe(), probe()]);
    t.equal(outcomes.flat().length, 2);
    t.equal(asked(), 2);
  });

  await t.test('are jittered within the share of the settings, and off at interval 0', async (t) => {
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (share) => {
        const wait = jittered(defaultSettings, share);
        return wait >= 0.8 * hourMs && wait <= 1.2 * hourMs;
      }),
    );
    const all = await bench(t);
    const off = { health: { ...defaultSettings.health, interval_sec: 0 } };
    const backend = { name: 'container', probe: () => Promise.reject(new Error('asked')) };
    t.strictSame(await probeDue({ ...all, settings: off, backend }), []);
  });
});

t.test('what people see', async (t) => {
  const all = await bench(t, [node, 'lab/n2']);
  const { store } = all;
  await makeAvailable(all);
  await store.db
    .updateTable('nodes')
    .set({ spec: JSON.stringify({ tags: ['gpu'] }) })
    .where('name', '=', 'lab/n2')
    .execute();
  await store.db
    .insertInto('bookings')
    .values({ lease: 'l1', node, starts_at: 5000, ends_at: 6000, busy_until: 6000, pinned: 1 })
    .execute();

  await t.test('lists by site, state and tag', async (t) => {
    const names = async (filter: Parameters<typeof listNodes>[1]): Promise<string[]> =>
      (await listNodes(store, filter)).map(({ name }) => name);
    t.strictSame(await names({}), [node, 'lab/n2']);
    t.strictSame(await names({ state: 'enrolled' }), ['lab/n2']);
    t.strictSame(await names({ tag: 'gpu', site: 'lab' }), ['lab/n2']);
    t.strictSame(await names({ site: 'elsewhere' }), []);
  });

  await t.test('shows the next booking and the last clean', async (t) => {
    t.match(await showNode(store, node, 4000), {
      state: 'available',
      since: 1_000_000,
      nextBooking: { lease: 'l1', startsAt: 5000 },
      lastClean: { method: 'never-made', proof: { method: 'never-made' } },
    });
    t.match(await showNode(store, node, 5000), { nextBooking: null });
    await t.rejects(showNode(store, 'lab/n9', 0), { code: 'IB_NODE_UNKNOWN' });
  });

  await t.test('tells its history with leases and clean records', async (t) => {
    await all.move('leased', { lease, actor: bob });
    const history = await nodeHistory(store, node);
    t.match(
      history.map(({ kind }) => kind),
      ['node.cleaning', 'node.available', 'node.leased'],
    );
    t.match(history[1], { clean: { method: 'never-made' }, lease: null, detail: { from: 'cleaning' } });
    t.match(history[2], { actor: 'bob', clean: null, lease: { id: 'l1', owner: 'bob' } });
    t.strictSame(await nodeHistory(store, 'lab/n2'), []);
    await t.rejects(nodeHistory(store, 'lab/n9'), { code: 'IB_NODE_UNKNOWN' });
  });
});

t.test(
  'no sequence of moves makes a node available without a proof, or clears a hold but by a person',
  async (t) => {
    const proofs: (CleanProof | undefined)[] = [
      undefined,
      destroyed,
      verified,
      neverMadeProof('container'),
      untouchedProof(1),
      { ...verified, dataAreas: [] },
    ];
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('move' as const),
        to: fc.constantFrom(...nodeStates),
        clean: fc.constantFrom(...proofs),
        isLeased: fc.boolean(),
        hasFault: fc.boolean(),
        actor: fc.constantFrom(undefined, ada),
      }),
      fc.record({ kind: fc.constant('hold' as const), on: fc.boolean() }),
      fc.record({ kind: fc.constant('fail' as const) }),
      fc.record({ kind: fc.constant('raw' as const) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 25 }), async (steps) => {
        const all = await bench(t);
        const { store, clock } = all;
        for (const one of steps) {
          clock.time += 1;
          const before = await all.row();
          try {
            if (one.kind === 'move') {
              await all.move(one.to, {
                ...(one.clean ? { clean: one.clean } : {}),
                ...(one.isLeased ? { lease } : {}),
                ...(one.hasFault ? { fault } : {}),
                ...(one.actor ? { actor: one.actor, why: 'so' } : {}),
              });
            } else if (one.kind === 'hold') await setMaintenance(all, node, { on: one.on, why: 'so' }, ada);
            else if (one.kind === 'fail') await recordFailure(store.db, node, fault, defaultSettings, clock);
            else if (before.state !== 'available')
              await sql`update nodes set state = 'available'`.execute(store.db);
          } catch (error) {
            if (!isInfrabedError(error)) throw error;
            const after = await all.row();
            if (JSON.stringify(after) !== JSON.stringify(before))
              throw new Error('what was refused changed something', { cause: error });
            continue;
          }
          await check(all, before, one);
        }
        await store.close();
      }),
      { numRuns: 25 },
    );
    t.pass();

    async function check(
      all: Bench,
      before: Awaited<ReturnType<typeof rowOf>>,
      one: { kind: string; actor?: unknown },
    ): Promise<void> {
      const after = await all.row();
      if (after.state === 'available') {
        if (after.fault !== null || after.hold !== null || after.lease !== null)
          throw new Error(`available with a fault, a hold or a lease after ${JSON.stringify(one)}`);
        const record = await all.store.db
          .selectFrom('clean_records')
          .selectAll()
          .where('id', '=', after.clean_record)
          .executeTakeFirstOrThrow();
        if (storedProof(record.method, record.proof) === undefined)
          throw new Error('available by half a proof');
        if (before.state !== 'available' && before.clean_record === after.clean_record)
          throw new Error('available by an old proof');
      }
      const isPersons = one.kind === 'hold' || one.actor !== undefined;
      if (before.hold !== null && after.hold !== before.hold && !isPersons)
        throw new Error(`a hold was changed by the machine: ${JSON.stringify(one)}`);
      if (before.state === 'maintenance' && after.state !== 'maintenance' && !isPersons)
        throw new Error('a node came out of maintenance by itself');
      if (after.state === 'maintenance' && after.hold === null)
        throw new Error('in maintenance without a hold');
    }
  },
);
