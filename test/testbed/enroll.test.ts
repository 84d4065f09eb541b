/** Sites in the store: added, brought in line, refused while nodes that would go are in use. */
import t from 'tap';
import type { Test } from 'tap';
import { controllerActor } from '../../src/core/actor.js';
import { systemClock } from '../../src/core/clock.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore, type Store } from '../../src/record/store/store.js';
import { embeddedSite, parseInventory, type Site } from '../../src/testbed/inventory/inventory.js';
import { releaseLease, takeNodes } from '../../src/testbed/lease/lease.js';
import { addSite, enrollSite, listSites, planSite, storedSites } from '../../src/testbed/node/enroll.js';

const ada = { name: 'ada', role: 'operator' } as const;
const clock = systemClock;

async function open(t: Test): Promise<{ store: Store; clock: typeof clock }> {
  const store = await openStore(t.testdir());
  t.teardown(() => store.close());
  return { store, clock };
}

const site = (nodes: string): Site =>
  parseInventory(`name: lab\ndefaults: {backend: container}\nnodes:\n${nodes}`, 'lab.yaml');

const kinds = async (store: Store): Promise<string[]> => {
  const rows = await store.db.selectFrom('changes').select(['kind', 'actor']).orderBy('id').execute();
  return rows.map(({ kind, actor }) => `${actor} ${kind}`);
};

t.test('a site is added, brought in line, and its nodes go and come back', async (t) => {
  const ground = await open(t);
  const { store } = ground;
  const first = site('  - {name: "n[1-3]"}\n  - {name: m1, backend: cloudlab}\n');
  t.match(await addSite(ground, first, ada), { isNew: true, added: { length: 4 }, retired: [], inUse: [] });
  t.match(await listSites(store), [
    {
      name: 'lab',
      isEmbedded: false,
      nodes: 4,
      states: { available: 3, enrolled: 1 },
      backends: { container: 3, cloudlab: 1 },
    },
  ]);
  t.match(await kinds(store), ['ada site.added', 'ada node.enrolled']);
  t.match(await addSite(ground, first, ada), { isNew: false, added: [], changed: [], unchanged: 4 });

  const second = site(
    '  - {name: n1, cpus: 4}\n  - {name: n2, backend: cloudlab}\n  - {name: m1, backend: cloudlab}\n',
  );
  const plan = await planSite(store.db, second);
  t.match(plan, { changed: ['lab/n1', 'lab/n2'], retired: ['lab/n3'], unchanged: 1 });
  t.strictSame((await storedSites(store))[0], first, 'a plan changes nothing');
  t.strictSame(await addSite(ground, second, ada), plan);
  const rows = await store.db
    .selectFrom('nodes')
    .select(['name', 'state', 'retired', 'spec'])
    .orderBy('name')
    .execute();
  t.match(rows, [
    { name: 'lab/m1', state: 'enrolled' },
    { name: 'lab/n1', state: 'available', retired: 0, spec: /"cpus":4/ },
    { name: 'lab/n2', state: 'quarantined' },
    { name: 'lab/n3', state: 'available', retired: 1 },
  ]);
  t.match(await listSites(store), [{ nodes: 3, retired: 1 }]);
  t.match(await addSite(ground, first, ada), { returned: ['lab/n3'], retired: [] });
});

t.test('nodes that a lease holds do not go, and the whole change is refused', async (t) => {
  const ground = await open(t);
  const { store } = ground;
  const full = site('  - {name: "n[1-2]"}\n');
  await addSite(ground, full, ada);
  const controller = await registerController(store, clock);
  const lease = await takeNodes(store, {
    nodes: { names: ['lab/n2'] },
    owner: 'bob',
    purpose: 'x',
    controller,
    durationMs: 3_600_000,
    site: full,
  });
  const less = site('  - {name: n1, cpus: 2}\n');
  const refusal = { code: 'IB_LEASE_CONFLICT', message: new RegExp(`lab/n2 \\(${lease.id}\\)`) };
  await t.rejects(addSite(ground, less, ada), refusal);
  t.strictSame(await storedSites(store), [full]);
  await releaseLease(store, lease);
  t.match(await addSite(ground, less, ada), { retired: ['lab/n2'], changed: ['lab/n1'] });
});

t.test('who may, and what other sites claim', async (t) => {
  const ground = await open(t);
  const one = site('  - {name: n1, nics: [{mac: "02:00:00:00:00:01", role: x}]}\n');
  await t.rejects(addSite(ground, one, { name: 'bob', role: 'user' }), { code: 'IB_NOT_ALLOWED' });
  await t.rejects(addSite(ground, one, controllerActor), { code: 'IB_NOT_ALLOWED' });
  await addSite(ground, one, ada);
  const two = { ...one, name: 'two', nodes: [{ ...one.nodes[0]!, name: 'two/n1' }] };
  await t.rejects(addSite(ground, two, ada), { code: 'IB_SITE_INVALID', message: /already that of lab\/n1/ });
});

t.test('the embedded site enrols itself once, follows its file, and gives way to a person', async (t) => {
  const ground = await open(t);
  const { store } = ground;
  const embedded = await embeddedSite();
  const enrol = (wanted: Site): Promise<void> =>
    store.db.transaction().execute((db) => enrollSite(db, wanted, clock));
  await enrol(embedded);
  const before = await kinds(store);
  await enrol(embedded);
  t.strictSame(await kinds(store), before, 'nothing is written when nothing changed');
  await enrol({ ...embedded, nodes: embedded.nodes.slice(0, 6) });
  t.match(await listSites(store), [{ isEmbedded: true, nodes: 6, retired: 2 }]);
  const own = parseInventory('name: local\nnodes: [{name: n01, backend: container}]', 'own.yaml');
  await addSite(ground, own, ada);
  await enrol(embedded);
  t.match(await listSites(store), [{ isEmbedded: false, nodes: 1, retired: 7 }]);
});

t.test('what an older version wrote about the embedded site is brought up to date', async (t) => {
  const { store } = await open(t);
  const old = {
    name: 'local',
    nodes: [
      { name: 'local/n01', backend: 'container' },
      { name: 'local/n16', backend: 'container' },
    ],
  };
  await store.db
    .insertInto('sites')
    .values({ name: 'local', inventory: JSON.stringify(old), added_at: 0 })
    .execute();
  for (const { name, backend } of old.nodes) {
    const row = { name, backend, site: 'local', state: 'enrolled', fault: null, lease: null };
    await store.db.insertInto('nodes').values(row).execute();
  }
  const embedded = await embeddedSite();
  await store.db.transaction().execute((db) => enrollSite(db, embedded, clock));
  t.match(await listSites(store), [{ nodes: 8, retired: 1 }]);
  const { spec } = await store.db
    .selectFrom('nodes')
    .select('spec')
    .where('name', '=', 'local/n01')
    .executeTakeFirstOrThrow();
  t.match(JSON.parse(spec), { tags: ['container'] });
});
