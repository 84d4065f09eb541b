/** The cluster handle on fake nodes: the common suite, who is to blame, what the journal holds, making and finding. */
import t from 'tap';
import type { Test } from 'tap';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { waitFor } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import type { JournalEntry } from '../../src/core/journal.js';
import { controllerKeyPath, createCluster, openExistingCluster } from '../../src/testbed/cluster/create.js';
import type { OwnedCluster } from '../../src/testbed/cluster/create.js';
import { cappedArgv } from '../../src/testbed/cluster/journaled.js';
import { attribute } from '../../src/testbed/cluster/standing.js';
import type { Testimony } from '../../src/testbed/driver/driver.js';
import { clusterSuite } from './cluster-suite.js';
import { FakeBackend } from './fake-driver.js';
import type { FakeNode } from './fake-driver.js';

// Every login costs CPU time; on a busy machine the default of 30 s for a file is too short.
t.setTimeout(180_000);

interface Made {
  backend: FakeBackend;
  owned: OwnedCluster;
  nodes: readonly FakeNode[];
  journal: JournalEntry[];
  stateDir: string;
}

async function make(t: Test, prepare: (node: FakeNode) => void = () => undefined): Promise<Made> {
  const backend = new FakeBackend();
  backend.prepare = prepare;
  const journal: JournalEntry[] = [];
  const stateDir = t.testdir();
  const owned = await createCluster({
    backend,
    id: 'k1',
    generation: 1,
    nodes: [
      { name: 'node0', roles: ['primary'] },
      { name: 'node1', roles: [] },
    ],
    layers: ['os'],
    stateDir,
    journal: { record: (entry) => void journal.push(entry), flush: () => Promise.resolve() },
    io: silentHost,
    readyTimeoutMs: 20_000,
  });
  t.teardown(() => owned.destroy());
  return { backend, owned, nodes: backend.clusters.get('k1')!.nodes, journal, stateDir };
}

t.test('with a witness', async (t) => {
  const { owned } = await make(t);
  await clusterSuite(t, owned.cluster, { realBoots: false, scratch: '/tmp' });
});

t.test('without a witness everything goes over SSH', async (t) => {
  const withoutWitness = (node: FakeNode): void => {
    node.witness = undefined;
  };
  const { owned, nodes } = await make(t, withoutWitness);
  await clusterSuite(t, owned.cluster, { realBoots: false, scratch: '/tmp' });
  await nodes[1]!.sshd.stop();
  t.match(await owned.cluster.standing('node1'), { blame: 'node', why: /BMC says that it is on/ });
});

t.test('commands take the way that their purpose asks for', async (t) => {
  const { owned, nodes, journal } = await make(t);
  const { cluster } = owned;
  await cluster.exec('node0', { argv: ['true'] });
  await cluster.setUp('node0', { argv: ['true'] });
  await cluster.ssh('node0', { argv: ['false'] });
  t.strictSame(
    nodes[0]!.witnessed.map((one) => one.way),
    ['pristine', 'own'],
  );
  const records = journal.filter((entry) => entry.kind.startsWith('node.exec'));
  t.match(records, [
    {
      kind: 'node.exec',
      actor: 'controller',
      node: 'node0',
      payload: { command: 1, way: 'pristine', argv: ['true'] },
    },
    { kind: 'node.exec.end', payload: { command: 1, exitCode: 0 } },
    { kind: 'node.exec', payload: { command: 2, way: 'own' } },
    { kind: 'node.exec.end', payload: { command: 2 } },
    { kind: 'node.exec', payload: { command: 3, way: 'ssh', argv: ['false'] } },
    { kind: 'node.exec.end', payload: { command: 3, exitCode: 1, signal: null } },
  ]);
});

t.test('after hanging up the next command logs in anew, after closing none does', async (t) => {
  const { owned, stateDir } = await make(t);
  const { cluster } = owned;
  const echo = { argv: ['echo', 'back'] };
  t.match(await cluster.ssh('node0', echo), { stdout: 'back\n' });
  const started = join(stateDir, 'started');
  const running = cluster.ssh('node0', { argv: ['sh', '-c', `touch ${started}; exec sleep 20`] });
  const cut = t.rejects(running, { code: 'IB_NODE_UNREACHABLE' });
  await waitFor('the command to run', () => existsSync(started) || undefined, { timeoutMs: 30_000 });
  cluster.hangUp();
  await cut;
  t.match(await cluster.ssh('node0', echo), { stdout: 'back\n' });
  await cluster.close();
  await t.rejects(cluster.ssh('node0', echo), { code: 'IB_NODE_UNREACHABLE' });
});

t.test('a command that fails to run is in the journal too', async (t) => {
  const { owned, nodes, journal } = await make(t);
  nodes[0]!.state = 'off';
  await t.rejects(owned.cluster.exec('node0', { argv: ['true'] }), { code: 'IB_NODE_OFF' });
  t.match(journal.at(-1), { kind: 'node.exec.end', payload: { error: 'IB_NODE_OFF' } });
});

t.test('an action whose intent cannot be written is not done', async (t) => {
  const { owned, nodes, backend, stateDir } = await make(t);
  const journal = {
    record: () => {
      throw new Error('disk full');
    },
    flush: () => Promise.resolve(),
  };
  const again = await openExistingCluster({ backend, id: 'k1', nodes: [], stateDir, journal });
  await t.rejects(again.cluster.exec('node0', { argv: ['true'] }), { message: 'disk full' });
  t.equal(nodes[0]!.witnessed.length, 0);
  await again.cluster.close();
  t.ok(owned);
});

t.test('long commands are cut in the journal and say so', (t) => {
  const argv = ['sh', '-c', 'x'.repeat(2000), ...Array.from({ length: 100 }, String)];
  const capped = cappedArgv(argv);
  t.equal(capped.length, 65);
  t.match(capped[2], /\[1500 more characters\]$/);
  t.equal(capped.at(-1), '[39 more arguments]');
  t.end();
});

t.test('a node that lives but lost its sshd is to blame itself', async (t) => {
  const { owned, nodes } = await make(t);
  await nodes[0]!.sshd.stop();
  t.match(await owned.cluster.standing('node0'), { blame: 'node', testimony: { initRunning: true } });
  nodes[0]!.testimony = { infrastructureFault: 'The supervisor of node0 is gone.' };
  t.match(await owned.cluster.standing('node0'), {
    blame: 'infrastructure',
    why: /supervisor of node0 is gone/,
  });
});

t.test('blame follows from what is known outside the node', (t) => {
  const testimony = (more: Partial<Testimony>): Testimony => ({
    power: 'on',
    initRunning: true,
    bootId: null,
    infrastructureFault: null,
    consoleTail: '',
    ...more,
  });
  const cases: [string, Parameters<typeof attribute>[0], string][] = [
    ['init runs', { failure: 'f', switchedOffByUs: false, testimony: testimony({}) }, 'node'],
    [
      'does not boot',
      { failure: 'f', switchedOffByUs: false, testimony: testimony({ initRunning: false }) },
      'node',
    ],
    [
      'cannot tell init',
      { failure: 'f', switchedOffByUs: false, testimony: testimony({ initRunning: null }) },
      'node',
    ],
    ['went off', { failure: 'f', switchedOffByUs: false, testimony: testimony({ power: 'off' }) }, 'node'],
    [
      'we switched it off',
      { failure: 'f', switchedOffByUs: true, testimony: testimony({ power: 'off' }) },
      'infrastructure',
    ],
    [
      'somebody switched it on again',
      { failure: 'f', switchedOffByUs: true, testimony: testimony({}) },
      'node',
    ],
    [
      'power unknown',
      { failure: 'f', switchedOffByUs: false, testimony: testimony({ power: 'unknown' }) },
      'unknown',
    ],
    [
      'proven fault of ours',
      { failure: 'f', switchedOffByUs: false, testimony: testimony({ infrastructureFault: 'Gone.' }) },
      'infrastructure',
    ],
    ['only a BMC: on', { failure: 'f', switchedOffByUs: false, power: 'on' }, 'node'],
    ['only a BMC: off', { failure: 'f', switchedOffByUs: false, power: 'off' }, 'unknown'],
    ['only a BMC: unknown', { failure: 'f', switchedOffByUs: false, power: 'unknown' }, 'unknown'],
    ['nothing', { failure: 'f', switchedOffByUs: false, silence: 'No answer.' }, 'unknown'],
  ];
  for (const [name, circumstances, blame] of cases) t.equal(attribute(circumstances).blame, blame, name);
  t.end();
});

t.test('making and finding', async (t) => {
  const { backend, owned, stateDir } = await make(t);
  const key = controllerKeyPath(stateDir, 'k1');

  await t.test('the key lies in the state folder for the owner alone', (t) => {
    t.equal(statSync(key).mode & 0o777, 0o600);
    t.end();
  });

  await t.test('another process finds the cluster and logs in', async (t) => {
    const nodes = [{ name: 'node0', roles: ['primary'] }];
    const again = await openExistingCluster({ backend, id: 'k1', nodes, stateDir, journal: nullJournal });
    t.equal((await again.cluster.ssh('node0', { argv: ['echo', 'hi'] })).stdout, 'hi\n');
    t.strictSame(again.cluster.node('node0').roles, ['primary']);
    await again.cluster.close();
  });

  await t.test('after its end it is unknown, and its key is gone', async (t) => {
    await owned.destroy();
    t.notOk(existsSync(key));
    const again = openExistingCluster({ backend, id: 'k1', nodes: [], stateDir, journal: nullJournal });
    await t.rejects(again, { code: 'IB_CLUSTER_UNKNOWN' });
  });
});

t.test('a cluster whose node never answers is removed again, and the node is named', async (t) => {
  const backend = new FakeBackend();
  backend.prepare = (node) => {
    if (node.name === 'b') node.network.dial = () => Promise.reject(new Error('no route to host'));
  };
  const stateDir = t.testdir();
  const making = createCluster({
    backend,
    id: 'k2',
    generation: 1,
    nodes: ['a', 'b'].map((name) => ({ name, roles: [] })),
    layers: ['os'],
    stateDir,
    journal: nullJournal,
    io: silentHost,
    readyTimeoutMs: 4000,
  });
  await t.rejects(making, { code: 'IB_TIMEOUT', message: /^b did not answer.*no route to host/ });
  t.ok(backend.clusters.get('k2')!.destroyed);
  t.notOk(existsSync(controllerKeyPath(stateDir, 'k2')));
});
