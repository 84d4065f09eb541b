/** Clusters that stay: raised, found by another process, ended; what failed half-way leaves nothing held. */
import t from 'tap';
import type { Test } from 'tap';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { Actor } from '../../src/core/actor.js';
import { systemClock } from '../../src/core/clock.js';
import { InfrabedError } from '../../src/core/errors.js';
import { silentHost } from '../../src/core/io.js';
import { run } from '../../src/core/exec.js';
import { defaultSettings } from '../../src/core/settings.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import { keyFolder, removeStaleKeys } from '../../src/testbed/cluster/create.js';
import { sshConfig, writeSshConfig } from '../../src/testbed/cluster/ssh-config.js';
import { withClusterLock } from '../../src/testbed/lease/cluster-lock.js';
import { endCluster, listClusters, raiseCluster } from '../../src/testbed/lease/kept-cluster.js';
import type { Grounds } from '../../src/testbed/lease/kept-cluster.js';
import { abandonedLeases } from '../../src/testbed/lease/lease.js';
import { FakeBackend } from './fake-driver.js';

t.setTimeout(120_000);

const ada: Actor = { name: 'ada', role: 'user' };

async function grounds(t: Test): Promise<Grounds & { backend: FakeBackend }> {
  const stateDir = t.testdir();
  const store = await openStore(stateDir);
  const backend = new FakeBackend('container');
  t.teardown(async () => {
    for (const cluster of backend.clusters.values()) await cluster.destroy();
    await store.close();
  });
  const controller = await registerController(store, systemClock);
  return {
    store,
    backend,
    stateDir,
    controller,
    clock: systemClock,
    settings: defaultSettings,
    io: silentHost,
  };
}

const statesIn = async ({ store }: Grounds): Promise<Record<string, number>> => {
  const rows = await store.db.selectFrom('nodes').select('state').execute();
  const counts: Record<string, number> = {};
  for (const { state } of rows) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
};

t.test('a cluster is not written down in the middle of a search for leftovers', async (t) => {
  const ground = await grounds(t);
  let found = (): void => undefined;
  const searching = new Promise<void>((resolve) => (found = resolve));
  let begun = (): void => undefined;
  const started = new Promise<void>((resolve) => (begun = resolve));
  const search = withClusterLock(ground.stateDir, async () => {
    begun();
    await searching;
    return { rows: (await listClusters(ground.store)).length, made: ground.backend.clusters.size };
  });
  await started;
  const raising = raiseCluster(ground, { nodeCount: 1, layers: [], actor: ada, durationMs: 3_600_000 });
  await systemClock.sleep(300);
  found();
  t.same(await search, { rows: 0, made: 0 });
  t.match(await raising, { kept: true });
});

t.test('raised, listed and ended', async (t) => {
  const ground = await grounds(t);
  const entry = await raiseCluster(ground, { nodeCount: 2, layers: [], actor: ada, durationMs: 3_600_000 });
  t.match(entry, {
    nodes: [{ name: 'node0' }, { name: 'node1' }],
    owner: 'ada',
    kept: true,
  });
  t.match(await listClusters(ground.store), [
    { id: entry.id, kept: true, inUse: false, purpose: 'cluster up' },
  ]);
  t.match(await statesIn(ground), { active: 2, available: 6 });

  await t.test(
    'OpenSSH logs in with the files beside its key, and gives the exact exit status',
    async (t) => {
      const fake = ground.backend.clusters.get(entry.id)!;
      const config = await writeSshConfig(ground.stateDir, fake);
      const text = readFileSync(config, 'utf8');
      t.match(text, /StrictHostKeyChecking yes/);
      // The fake listens elsewhere than port 22, which the file names.
      const [node] = fake.nodes;
      const onPort = text.replace('TCP:127.0.0.1:22,', `TCP:127.0.0.1:${String(node!.sshd.port)},`);
      writeFileSync(config, onPort);
      const result = await run('ssh', ['-F', config, '-l', node!.sshd.username, 'node0', '--', 'exit 5'], {
        allowFailure: true,
      });
      t.equal(result.exitCode, 5);
    },
  );

  await t.test('a cluster that lost its maker is kept, and is no work for recovery', async (t) => {
    await ground.store.db
      .updateTable('leases')
      .set({ controller: 'c-1-1-dead' })
      .where('id', '=', entry.lease)
      .execute();
    t.strictSame(await abandonedLeases(ground.store), []);
    t.match(await listClusters(ground.store), [{ id: entry.id, inUse: false }]);
  });

  await t.test('its end gives the nodes back, and forgets its key', async (t) => {
    await endCluster(ground, entry.id, ada);
    t.ok(ground.backend.clusters.get(entry.id)!.destroyed);
    t.strictSame(await listClusters(ground.store), []);
    t.strictSame(await statesIn(ground), { available: 8 });
    t.notOk(existsSync(keyFolder(ground.stateDir, entry.id)));
    await t.rejects(endCluster(ground, entry.id, ada), { code: 'IB_CLUSTER_UNKNOWN' });
  });
});

t.test('a cluster in the hands of another living process is not ended', async (t) => {
  const ground = await grounds(t);
  const entry = await raiseCluster(ground, { nodeCount: 1, layers: [], actor: ada, durationMs: 3_600_000 });
  const other = await registerController(ground.store, systemClock, process.ppid);
  await ground.store.db
    .updateTable('leases')
    .set({ controller: other })
    .where('id', '=', entry.lease)
    .execute();
  await t.rejects(endCluster(ground, entry.id, ada), {
    code: 'IB_LEASE_CONFLICT',
    message: /another process/,
  });
  t.notOk(ground.backend.clusters.get(entry.id)!.destroyed);
});

t.test('a cluster whose backend forgot it is searched for, and its nodes are given back', async (t) => {
  const ground = await grounds(t);
  const entry = await raiseCluster(ground, { nodeCount: 1, layers: [], actor: ada, durationMs: 3_600_000 });
  await ground.backend.clusters.get(entry.id)!.destroy();
  await endCluster(ground, entry.id, ada);
  t.strictSame(await statesIn(ground), { available: 8 });
});

t.test('a cluster that cannot be removed has its nodes quarantined', async (t) => {
  const ground = await grounds(t);
  const entry = await raiseCluster(ground, { nodeCount: 1, layers: [], actor: ada, durationMs: 3_600_000 });
  const fake = ground.backend.clusters.get(entry.id)!;
  const destroy = fake.destroy.bind(fake);
  fake.destroy = () => Promise.reject(new InfrabedError('IB_POWER', 'node0 does not go off.'));
  await t.rejects(endCluster(ground, entry.id, ada), { code: 'IB_POWER' });
  t.match(await statesIn(ground), { quarantined: 1, available: 7 });
  fake.destroy = destroy;
});

t.test('what failed while it was raised holds nothing', async (t) => {
  await t.test('because a layer does not exist', async (t) => {
    const ground = await grounds(t);
    const raising = raiseCluster(ground, {
      nodeCount: 2,
      layers: ['no-such-layer'],
      actor: ada,
      durationMs: 3_600_000,
    });
    await t.rejects(raising, { code: 'IB_LAYER_UNKNOWN' });
    t.ok([...ground.backend.clusters.values()].every((cluster) => cluster.destroyed));
    t.strictSame(await listClusters(ground.store), []);
    t.strictSame(await statesIn(ground), { available: 8 });
  });

  await t.test('because it was cancelled', async (t) => {
    const ground = await grounds(t);
    const raising = raiseCluster(ground, {
      nodeCount: 2,
      layers: [],
      actor: ada,
      durationMs: 3_600_000,
      signal: AbortSignal.abort(),
    });
    await t.rejects(raising, { code: 'IB_CANCELLED' });
    t.strictSame(await statesIn(ground), { available: 8 });
  });

  await t.test('because there are not enough nodes', async (t) => {
    const ground = await grounds(t);
    await t.rejects(raiseCluster(ground, { nodeCount: 17, layers: [], actor: ada, durationMs: 3_600_000 }), {
      code: 'IB_NOT_ENOUGH_NODES',
    });
    t.strictSame(await listClusters(ground.store), []);
  });
});

t.test('keys of clusters that are gone can be swept', async (t) => {
  const stateDir = t.testdir({
    'cluster-keys': { k1: { 'controller.key': 'x' }, k2: { 'controller.key': 'y' } },
  });
  t.strictSame(await removeStaleKeys(stateDir, new Set(['k2'])), ['k1']);
  t.notOk(existsSync(keyFolder(stateDir, 'k1')));
  t.ok(existsSync(keyFolder(stateDir, 'k2')));
  t.strictSame(await removeStaleKeys(t.testdir(), new Set()), []);
});

t.test('an ssh_config quotes what a shell would split and doubles what ssh would expand', (t) => {
  const node = { name: 'a', address: '10.0.0.1' };
  const text = sshConfig(
    { nodes: [node as never], networkCommand: (argv) => ['in', "it's 100%", ...argv] },
    { key: '/k', knownHosts: '/h' },
  );
  t.match(text, "ProxyCommand in 'it'\\''s 100%%' socat - TCP:10.0.0.1:22,nodelay");
  t.end();
});
