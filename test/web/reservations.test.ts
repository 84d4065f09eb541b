// Leases, nodes and sites through a real server: ownership, roles, names with a slash, and who did what.
import t from 'tap';
import { isInfrabedError } from '../../src/core/errors.js';
import {
  leaseCalendar,
  leaseExtend,
  leaseList,
  leaseOperations,
  leaseRelease,
} from '../../src/web/api/leases.js';
import { leaseReserve, leaseShow, leaseSlots, leaseTransfer } from '../../src/web/api/leases.js';
import {
  nodeHistoryEvents,
  nodeList,
  nodeMaintenance,
  nodeOperations,
  nodeShow,
} from '../../src/web/api/nodes.js';
import { siteAdd, siteOperations, siteValidate } from '../../src/web/api/sites.js';
import { userOperations } from '../../src/web/api/users.js';
import { ask, openServer } from './open-server.js';

const opened = await openServer({
  operations: [...leaseOperations, ...nodeOperations, ...siteOperations, ...userOperations],
});
t.teardown(() => opened.close());
const { ada, op } = opened.tokens;
const wanted = { tags: [], names: [], purpose: 'a test', preempt: false };

t.test('a user reserves, and others may look but not touch', async (t) => {
  const mine = await ask(opened, ada, leaseReserve, { ...wanted, nodes: 2, durationSec: 3600 });
  t.match(mine, { owner: 'ada', nodes: ['local/n01', 'local/n02'], state: 'active' });
  const theirs = await ask(opened, op, leaseReserve, { ...wanted, names: ['n03'], durationSec: 3600 });
  t.match(theirs, { owner: 'op', nodes: ['local/n03'] });
  t.match(await ask(opened, ada, leaseShow, { id: theirs.id }), { owner: 'op' });
  for (const attempt of [
    () => ask(opened, ada, leaseRelease, { id: theirs.id }),
    () => ask(opened, ada, leaseExtend, { id: theirs.id, durationSec: 60 }),
    () => ask(opened, ada, leaseTransfer, { id: theirs.id, owner: 'ada' }),
  ]) {
    await t.rejects(attempt(), { code: 'IB_NOT_ALLOWED', message: /belongs to op/ });
  }
  t.match(await ask(opened, op, leaseRelease, { id: mine.id }), { state: 'ended', endReason: 'released' });
  const change = await opened.store.db
    .selectFrom('changes')
    .selectAll()
    .where('subject', '=', mine.id)
    .where('kind', '=', 'lease.released')
    .executeTakeFirstOrThrow();
  t.match(change, { actor: 'op', detail: /"owner":"ada".*"by":"operator"/ }, 'and it is on record');
  t.strictSame(
    (await ask(opened, ada, leaseList, { all: false, owner: 'ada' })).leases,
    [],
    'a flag travels in the query',
  );
  t.equal((await ask(opened, ada, leaseList, { all: true })).leases.length, 2);
});

t.test('slots and the calendar travel in a query, lists and numbers included', async (t) => {
  const { slots } = await ask(opened, ada, leaseSlots, {
    nodes: 3,
    tags: ['container'],
    names: [],
    durationSec: 7200,
    limit: 3,
  });
  t.equal(slots.length, 3);
  t.match(slots[0], { freeNodes: 7, extendableUntil: null });
  const now = Date.now();
  const { nodes } = await ask(opened, ada, leaseCalendar, {
    from: new Date(now).toISOString(),
    to: new Date(now + 86_400_000).toISOString(),
  });
  t.equal(nodes.length, 8);
  t.match(nodes[2], { node: 'local/n03', state: 'leased', bookings: [{ owner: 'op', purpose: 'a test' }] });
  await t.rejects(ask(opened, ada, leaseSlots, { tags: [], names: [], durationSec: 1, limit: 3 }), {
    code: 'IB_USAGE',
  });
});

t.test('a refusal keeps its code, hint and details on the way', async (t) => {
  const error: unknown = await ask(opened, ada, leaseReserve, { ...wanted, nodes: 8, durationSec: 60 }).catch(
    (caught: unknown) => caught,
  );
  t.ok(isInfrabedError(error, 'IB_NOT_ENOUGH_NODES'));
  t.match(error, { hint: /earliest start/, details: { earliest: Number, wanted: 8 } });
  for (const durationSec of [0, -60]) {
    await t.rejects(ask(opened, ada, leaseReserve, { ...wanted, nodes: 1, durationSec }), {
      code: 'IB_LEASE_INVALID',
    });
  }
});

t.test('nodes are named with their site or without, and an operator decides about them', async (t) => {
  t.match(await ask(opened, ada, nodeShow, { node: 'local/n04' }), { node: 'local/n04', state: 'available' });
  t.match(await ask(opened, ada, nodeShow, { node: 'n04' }), { node: 'local/n04' });
  await t.rejects(ask(opened, ada, nodeShow, { node: 'n99' }), { code: 'IB_NODE_UNKNOWN' });
  const hold = { node: 'n04', on: true, why: 'new disk' };
  await t.rejects(ask(opened, ada, nodeMaintenance, hold), { code: 'IB_NOT_ALLOWED' });
  t.match(await ask(opened, op, nodeMaintenance, hold), { node: 'local/n04', inForce: true });
  t.match(await ask(opened, ada, nodeShow, { node: 'n04' }), {
    state: 'maintenance',
    hold: { by: 'op', why: 'new disk' },
  });
  t.match((await ask(opened, ada, nodeHistoryEvents, { node: 'n04' })).events.at(-1), {
    actor: 'op',
    kind: 'node.maintenance',
  });
  t.equal((await ask(opened, ada, nodeList, { state: 'maintenance' })).nodes.length, 1);
});

t.test('an inventory goes up as text, and only an operator takes it in', async (t) => {
  const text = 'name: lab\nnodes:\n  - name: n04\n    backend: container\n';
  const file = { text, path: 'lab.yaml', dryRun: false };
  await t.rejects(ask(opened, ada, siteAdd, file), { code: 'IB_NOT_ALLOWED' });
  t.match(await ask(opened, op, siteAdd, { ...file, dryRun: true }), { added: ['lab/n04'], done: false });
  t.match(await ask(opened, op, siteAdd, file), { added: ['lab/n04'], done: true });
  await t.rejects(ask(opened, ada, nodeShow, { node: 'n04' }), {
    code: 'IB_USAGE',
    hint: 'Say which: lab/n04, local/n04.',
  });
  t.match(await ask(opened, ada, siteValidate, { text: 'name: lab\nnodse: 1\n', path: 'lab.yaml' }), {
    ok: false,
    problems: [{ line: 1 }, { file: 'lab.yaml', line: 2, key: 'nodse' }],
  });
});
