/** Nodes and leases: the life cycle's table, fencing, taking and giving back, two processes at once. */
import t from 'tap';
import type { Test } from 'tap';
import fc from 'fast-check';
import { systemClock } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { run } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import type { Store } from '../../src/record/store/store.js';
import {
  abandonedLeases,
  adoptLease,
  assertHeld,
  moveNodes,
  quarantineLease,
  releaseLease,
  takeNodes,
} from '../../src/testbed/lease/lease.js';
import type { Lease, Wanted } from '../../src/testbed/lease/lease.js';
import { destroyedProof, type CleanProof } from '../../src/testbed/node/clean-proof.js';

t.setTimeout(120_000);

async function store(t: Test): Promise<{ store: Store; controller: string; stateDir: string }> {
  const stateDir = t.testdir();
  const opened = await openStore(stateDir);
  t.teardown(() => opened.close());
  return { store: opened, controller: await registerController(opened, systemClock), stateDir };
}

const states = async (store: Store, names: readonly string[]): Promise<string[]> => {
  const rows = await store.db
    .selectFrom('nodes')
    .selectAll()
    .where('name', 'in', names)
    .orderBy('name')
    .execute();
  return rows.map((row) => row.state);
};

/** What a backend would have read back of the nodes' removal. */
function goneProofs({ nodes, generation }: Lease): Map<string, CleanProof> {
  const known = { imageHash: null, generation, hostKey: null, lastBootId: null };
  const parts = [{ what: 'folder of the cluster', found: null }];
  return new Map(
    nodes.map((node) => [
      node,
      destroyedProof({ node, method: 'looked for', isClean: true, parts, ...known }, generation),
    ]),
  );
}

t.test('taking and giving back', async (t) => {
  await t.test('the embedded site is enrolled at first use, each node with its clean record', async (t) => {
    const { store: opened, controller } = await store(t);
    const lease = await takeNodes(opened, {
      nodes: { count: 3 },
      owner: 'ada',
      durationMs: 3_600_000,
      purpose: 'trial x',
      controller,
    });
    t.strictSame(lease.nodes, ['local/n01', 'local/n02', 'local/n03']);
    t.equal((await opened.db.selectFrom('nodes').selectAll().execute()).length, 8);
    t.equal((await opened.db.selectFrom('clean_records').selectAll().execute()).length, 8);
    t.notOk(lease.signal.aborted);
    await assertHeld(opened, lease);
  });

  await t.test('nodes given back are available with a clean record, and the lease is over', async (t) => {
    const { store: opened, controller } = await store(t);
    const lease = await takeNodes(opened, {
      nodes: { count: 2 },
      owner: 'ada',
      durationMs: 3_600_000,
      purpose: 'x',
      controller,
    });
    await moveNodes(opened, lease, 'provisioning');
    await moveNodes(opened, lease, 'active');
    t.strictSame(await states(opened, lease.nodes), ['active', 'active']);
    await t.rejects(releaseLease(opened, lease), { code: 'IB_NODE_STATE', message: /no proof/ });
    t.strictSame(
      await states(opened, lease.nodes),
      ['active', 'active'],
      'nothing was given back without one',
    );
    await releaseLease(opened, lease, { clean: goneProofs(lease) });
    t.strictSame(await states(opened, lease.nodes), ['available', 'available']);
    t.ok(lease.signal.aborted);
    const records = await opened.db
      .selectFrom('clean_records')
      .selectAll()
      .where('lease', '=', lease.id)
      .execute();
    t.equal(records.length, 2);
    await t.rejects(releaseLease(opened, lease), { code: 'IB_LEASE_CONFLICT' });
    await t.rejects(moveNodes(opened, lease, 'active'), { code: 'IB_LEASE_CONFLICT' }, 'the token is spent');
  });

  await t.test('a lease on which a cluster stands is not given back', async (t) => {
    const { store: opened, controller } = await store(t);
    const lease = await takeNodes(opened, {
      nodes: { count: 1 },
      owner: 'ada',
      durationMs: 3_600_000,
      purpose: 'x',
      controller,
    });
    const row = {
      id: 'k1',
      lease: lease.id,
      backend: 'container',
      layers: '[]',
      nodes: '[]',
      kept: 0,
      created_at: 1,
    };
    await opened.db.insertInto('clusters').values(row).execute();
    await t.rejects(releaseLease(opened, lease), { code: 'IB_LEASE_CONFLICT', message: /k1 still stands/ });
    t.strictSame(await states(opened, lease.nodes), ['leased']);
    await releaseLease(opened, lease, { removed: ['k1'] });
    t.strictSame(await states(opened, lease.nodes), ['available'], 'once it is said to be removed, it is');
    t.strictSame(await opened.db.selectFrom('clusters').selectAll().execute(), []);
  });

  await t.test('what is not there or not free is refused, and nothing is taken', async (t) => {
    const { store: opened, controller } = await store(t);
    const take = (wanted: Wanted): Promise<unknown> =>
      takeNodes(opened, { nodes: wanted, owner: 'ada', durationMs: 3_600_000, purpose: 'x', controller });
    await take({ names: ['local/n02'] });
    await t.rejects(take({ count: 8 }), { code: 'IB_NOT_ENOUGH_NODES', message: /7 of 8 are free/ });
    await t.rejects(take({ count: 0 }), { code: 'IB_LEASE_INVALID' });
    await t.rejects(take({ names: ['local/n01', 'local/n02'] }), { code: 'IB_NOT_ENOUGH_NODES' });
    await t.rejects(take({ names: ['local/n01', 'local/n99'] }), { code: 'IB_NODE_UNKNOWN' });
    t.strictSame(await states(opened, ['local/n01', 'local/n02']), ['available', 'leased']);
    t.equal((await opened.db.selectFrom('leases').selectAll().execute()).length, 1);
  });

  await t.test(
    'nodes that could not be cleaned are quarantined with their fault and never lent',
    async (t) => {
      const { store: opened, controller } = await store(t);
      const lease = await takeNodes(opened, {
        nodes: { count: 2 },
        owner: 'ada',
        durationMs: 3_600_000,
        purpose: 'x',
        controller,
      });
      await quarantineLease(opened, lease, { code: 'IB_POWER', message: 'It does not go off.' });
      t.strictSame(await states(opened, lease.nodes), ['quarantined', 'quarantined']);
      const next = await takeNodes(opened, {
        nodes: { count: 6 },
        owner: 'ada',
        durationMs: 3_600_000,
        purpose: 'x',
        controller,
      });
      t.notOk(next.nodes.some((node) => lease.nodes.includes(node)));
    },
  );

  await t.test('no sequence of taking and giving back shares a node or repeats a generation', async (t) => {
    const { store: opened, controller } = await store(t);
    let last = 0;
    const step = fc.oneof(
      fc.record({ take: fc.integer({ min: 1, max: 6 }) }),
      fc.record({ give: fc.nat(5) }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        const held: Awaited<ReturnType<typeof takeNodes>>[] = [];
        for (const one of steps) {
          if ('take' in one) {
            const options = {
              nodes: { count: one.take },
              owner: 'o',
              durationMs: 3_600_000,
              purpose: 'p',
              controller,
            };
            const lease = await takeNodes(opened, options).catch((error: unknown) => {
              if (isInfrabedError(error, 'IB_NOT_ENOUGH_NODES')) return undefined;
              throw error;
            });
            if (!lease) continue;
            if (lease.generation <= last) throw new Error('a generation was repeated');
            last = lease.generation;
            held.push(lease);
          } else {
            const [lease] = held.splice(one.give % (held.length || 1), 1);
            if (lease) await releaseLease(opened, lease);
          }
          const nodes = held.flatMap((lease) => lease.nodes);
          if (new Set(nodes).size !== nodes.length) throw new Error('a node was lent twice');
        }
        for (const lease of held) await releaseLease(opened, lease);
      }),
      { numRuns: 15 },
    );
    t.pass();
  });

  await t.test('two processes at once never share a node', async (t) => {
    const { store: opened, stateDir } = await store(t);
    const args = ['--import=tsx', asset('test/testbed/take-nodes-child.ts'), stateDir];
    const children = await Promise.all([run(process.execPath, args), run(process.execPath, args)]);
    const taken = children.flatMap(
      (child) => JSON.parse(child.stdout) as { nodes: string[]; generation: number }[],
    );
    const nodes = taken.flatMap((lease) => lease.nodes);
    t.equal(nodes.length, 8);
    t.equal(new Set(nodes).size, 8);
    t.equal(new Set(taken.map((lease) => lease.generation)).size, 8);
    const abandoned = await abandonedLeases(opened);
    t.equal(abandoned.length, 8, 'both processes are dead, so that all of it is work for recovery');
  });
});

t.test('leases that a controller left', async (t) => {
  const { store: opened, controller } = await store(t);
  const other = await registerController(opened, systemClock, process.ppid);
  const dead = 'c-1-1-dead';
  const mine = await takeNodes(opened, {
    nodes: { count: 1 },
    owner: 'a',
    durationMs: 3_600_000,
    purpose: 'mine',
    controller,
  });
  const theirs = await takeNodes(opened, {
    nodes: { count: 1 },
    owner: 'a',
    durationMs: 3_600_000,
    purpose: 'theirs',
    controller: other,
  });
  const orphan = await takeNodes(opened, {
    nodes: { count: 1 },
    owner: 'a',
    durationMs: 3_600_000,
    purpose: 'orphan',
    controller: dead,
  });
  const kept = await takeNodes(opened, {
    nodes: { count: 1 },
    owner: 'a',
    durationMs: 3_600_000,
    purpose: 'kept',
    controller: dead,
  });
  const row = {
    id: 'k1',
    lease: kept.id,
    backend: 'container',
    layers: '[]',
    nodes: '[]',
    kept: 1,
    created_at: 1,
  };
  await opened.db.insertInto('clusters').values(row).execute();

  await t.test('are those of dead processes, save kept clusters', async (t) => {
    t.strictSame(
      (await abandonedLeases(opened)).map((lease) => lease.id),
      [orphan.id],
    );
  });

  await t.test('can be adopted, unless their controller lives or they have ended', async (t) => {
    const adopted = await adoptLease(opened, kept.id, controller);
    t.match(adopted, { id: kept.id, nodes: kept.nodes, purpose: 'kept' });
    t.ok(adopted.generation > kept.generation, 'whoever had it before is fenced');
    t.equal((await adoptLease(opened, orphan.id, controller)).id, orphan.id);
    await t.rejects(adoptLease(opened, theirs.id, controller), {
      code: 'IB_LEASE_CONFLICT',
      message: /another process/,
    });
    await t.rejects(adoptLease(opened, 'l-none', controller), { code: 'IB_LEASE_CONFLICT' });
  });

  await t.test('a lost lease aborts its signal', async (t) => {
    await releaseLease(opened, { id: mine.id, generation: mine.generation });
    t.notOk(mine.signal.aborted, 'released through another handle, not known yet');
    await t.rejects(assertHeld(opened, mine), { code: 'IB_LEASE_CONFLICT' });
    t.ok(isInfrabedError(mine.signal.reason, 'IB_LEASE_CONFLICT'));
  });
});
