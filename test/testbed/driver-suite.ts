/** The behaviour that every backend has to show, whatever its nodes are: run against the fake and the real ones. */
import type { Test } from 'tap';
import { silentHost } from '../../src/core/io.js';
import { nullJournal, type Journal, type JournalEntry } from '../../src/core/journal.js';
import type { Backend, ClusterSpec, CommandResult, NodeCommand } from '../../src/testbed/driver/driver.js';

export function recordingJournal(): Journal & { entries: JournalEntry[] } {
  const entries: JournalEntry[] = [];
  return { entries, record: (entry) => void entries.push(entry), flush: () => Promise.resolve() };
}

export function spec(id: string, overrides: Partial<ClusterSpec> = {}): ClusterSpec {
  return { id, generation: 1, nodes: ['node0', 'node1'], layers: ['os'], authorizedKeys: [], ...overrides };
}

/**
 * `name` makes cluster ids differ between backends that share a machine. Without a witness, boots are not told apart and
 * no command is run: who has such a backend asks that over SSH, in tests of its own.
 */
export async function driverSuite(
  t: Test,
  backend: Backend,
  name: string,
  { hasWitness } = { hasWitness: true },
): Promise<void> {
  const id = `${name}-suite`;
  await t.test('a created cluster is on, can be opened by its id, and is gone once destroyed', async (t) => {
    const journal = recordingJournal();
    const cluster = await backend.create(spec(id), journal, silentHost);
    t.teardown(() => backend.sweep(new Set()));
    t.same(
      cluster.nodes.map((node) => node.name),
      ['node0', 'node1'],
    );
    t.equal(new Set(cluster.nodes.map((node) => node.address)).size, 2, 'addresses differ');
    t.equal(new Set(cluster.nodes.map((node) => node.hostKey)).size, 2, 'host keys differ');
    t.match(cluster.nodes[0]?.hostKey, /^ssh-ed25519 \S+$/);
    t.equal(cluster.imageHash, await backend.prepareImage(['os'], silentHost));
    for (const node of cluster.nodes) t.equal(await node.power.state(), 'on');
    const again = await backend.open(id, nullJournal);
    t.same(
      again.nodes.map((node) => node.address),
      cluster.nodes.map((node) => node.address),
    );
    await t.rejects(
      backend.create(spec(id), nullJournal, silentHost),
      { code: 'IB_LEASE_CONFLICT' },
      'the same id cannot be made twice',
    );
    await cluster.destroy();
    await t.rejects(backend.open(id, nullJournal), { code: 'IB_CLUSTER_UNKNOWN' });
  });

  await t.test('power is a state machine that is read back and written down before and after', async (t) => {
    const journal = recordingJournal();
    const cluster = await backend.create(spec(id, { nodes: ['node0'] }), journal, silentHost);
    t.teardown(() => cluster.destroy());
    const [node] = cluster.nodes;
    if (!node) throw new Error('no node');
    const bootId = async (): Promise<string | null | undefined> => (await node.witness?.testify())?.bootId;
    const first = await bootId();
    await node.power.on();
    t.equal(await bootId(), first, '"on" of a node that is on does nothing to it');
    await node.power.off();
    t.equal(await node.power.state(), 'off');
    await node.power.off();
    t.equal(await node.power.state(), 'off', '"off" twice is "off"');
    await node.power.cycle();
    t.equal(await node.power.state(), 'on', '"cycle" of a node that is off becomes "on"');
    const second = await bootId();
    if (hasWitness) t.not(second, first, 'a new boot has a new identity');
    await node.power.reset();
    if (hasWitness) {
      t.not(await bootId(), second, 'so has a reset');
      await node.power.softOff();
      t.equal(await node.power.state(), 'off');
    }
    const cycles = journal.entries.filter((entry) => entry.kind === 'power.cycle');
    t.same(
      cycles.map((entry) => entry.payload['state']),
      ['begin', 'verified'],
    );
    t.same([cycles[0]?.actor, cycles[0]?.node], ['controller', 'node0']);
  });

  await t.test('an aborted signal keeps an action from being begun', async (t) => {
    const cluster = await backend.create(spec(id, { nodes: ['node0'] }), nullJournal, silentHost);
    t.teardown(() => cluster.destroy());
    const [node] = cluster.nodes;
    await t.rejects(async () => node?.power.off(AbortSignal.abort()), { code: 'IB_CANCELLED' });
    t.equal(await node?.power.state(), 'on');
  });

  await t.test(
    'commands come back with exact status, output and input; a node that is off takes none',
    { skip: hasWitness ? false : 'the backend has no witness' },
    async (t) => {
      const cluster = await backend.create(spec(id, { nodes: ['node0'] }), nullJournal, silentHost);
      t.teardown(() => cluster.destroy());
      const [node] = cluster.nodes;
      const witness = node?.witness;
      if (!node || !witness) throw new Error('no witness');
      const exec = (command: NodeCommand): Promise<CommandResult> => witness.exec(command);
      const execOwn = (command: NodeCommand): Promise<CommandResult> => witness.execOwn(command);
      for (const run of [exec, execOwn]) {
        t.match(await run({ argv: ['echo', 'a b', 'c'] }), {
          exitCode: 0,
          signal: null,
          stdout: 'a b c\n',
          timedOut: false,
        });
        t.match(await run({ argv: ['false'] }), { exitCode: 1 });
        t.match(await run({ argv: ['cat'], stdin: 'in\n' }), { exitCode: 0, stdout: 'in\n' });
        t.match(await run({ argv: ['no-such-program'] }), { exitCode: 127 });
      }
      const testimony = await witness.testify();
      t.match(testimony, { power: 'on', initRunning: true, infrastructureFault: null });
      await node.power.off();
      await t.rejects(witness.exec({ argv: ['true'] }), { code: 'IB_NODE_OFF' });
      t.match(await witness.testify(), {
        power: 'off',
        initRunning: false,
        bootId: null,
        infrastructureFault: null,
      });
    },
  );

  await t.test('a port that nobody listens on is an error, and soon', async (t) => {
    const cluster = await backend.create(spec(id, { nodes: ['node0'] }), nullJournal, silentHost);
    t.teardown(() => cluster.destroy());
    const startMs = Date.now();
    const [node] = cluster.nodes;
    await t.rejects(async () => node?.network.dial(2), { code: 'IB_NODE_UNREACHABLE' });
    t.ok(Date.now() - startMs < 8000);
  });

  await t.test('a sweep keeps what it is told to keep and removes the rest', async (t) => {
    await backend.create(spec(`${id}-a`, { nodes: ['node0'] }), nullJournal, silentHost);
    await backend.create(spec(`${id}-b`, { nodes: ['node0'] }), nullJournal, silentHost);
    const report = await backend.sweep(new Set([`${id}-b`]));
    t.ok(report.removed.length > 0);
    t.same(report.failed, []);
    await t.rejects(backend.open(`${id}-a`, nullJournal), { code: 'IB_CLUSTER_UNKNOWN' });
    t.equal(await (await backend.open(`${id}-b`, nullJournal)).nodes[0]?.power.state(), 'on');
    await backend.sweep(new Set());
    t.same((await backend.sweep(new Set())).removed, [], 'a second sweep finds nothing');
  });

  await t.test(
    'a cluster belongs to one generation at a time, and runs on when it changes hands',
    async (t) => {
      const mine = await backend.create(spec(`${id}-f`, { nodes: ['node0'] }), nullJournal, silentHost);
      t.teardown(() => backend.sweep(new Set()));
      const conflict = { code: 'IB_LEASE_CONFLICT' };
      const [node] = mine.nodes;
      const bootId = (await node?.witness?.testify())?.bootId;
      t.equal(mine.generation, 1);
      await backend.fence(`${id}-f`, 3);
      await backend.fence(`${id}-f`, 3);
      await t.rejects(backend.fence(`${id}-f`, 2), conflict, 'an older one does not get it back');
      for (const verb of ['on', 'off', 'softOff', 'cycle', 'reset'] as const)
        await t.rejects(async () => node?.power[verb](), conflict, verb);
      if (hasWitness) {
        await t.rejects(async () => node?.witness?.exec({ argv: ['true'] }), conflict);
        await t.rejects(async () => node?.witness?.execOwn({ argv: ['true'] }), conflict);
      }
      await t.rejects(async () => node?.network.dial(22), conflict);
      await t.rejects(mine.destroy(), conflict);
      const theirs = await backend.open(`${id}-f`, nullJournal);
      t.equal(theirs.generation, 3);
      t.equal((await theirs.nodes[0]?.witness?.testify())?.bootId, bootId, 'the node ran on');
      t.match((await backend.proveClean(`${id}-f`, ['node0']))[0], { isClean: false, node: 'node0' });
      await theirs.destroy();
      t.match(await backend.proveClean(`${id}-f`, ['node0']), [
        { isClean: true, node: 'node0', generation: 3 },
      ]);
      await t.rejects(
        backend.create(spec(`${id}-f`), nullJournal, silentHost),
        conflict,
        'nor can it be made again',
      );
    },
  );

  await t.test('what is not there yet can be fenced, too', async (t) => {
    await backend.fence(`${id}-g`, 5);
    const again = (generation: number): Promise<unknown> =>
      backend.create(spec(`${id}-g`, { nodes: ['node0'], generation }), nullJournal, silentHost);
    await t.rejects(again(4), { code: 'IB_LEASE_CONFLICT' });
    await t.rejects(backend.open(`${id}-g`, nullJournal), { code: 'IB_CLUSTER_UNKNOWN' });
    await t.resolves(again(5));
    await backend.sweep(new Set());
    await t.rejects(again(5), { code: 'IB_LEASE_CONFLICT' }, 'who lost it by a sweep cannot make it again');
  });

  await t.test('a sweep asks what to keep after it has listed what there is', async (t) => {
    const made = spec(`${id}-h`, { nodes: ['node0'] });
    const late = async (): Promise<ReadonlySet<string>> => {
      await backend.create(made, nullJournal, silentHost);
      return new Set();
    };
    t.same(await backend.sweep(late), { removed: [], failed: [] });
    t.equal(await (await backend.open(made.id, nullJournal)).nodes[0]?.power.state(), 'on');
    await backend.sweep(new Set());
  });

  await t.test('a probe finds a backend that can make nodes, and leaves nothing', async (t) => {
    t.same(await backend.probe(), { ok: true });
    t.same((await backend.sweep(new Set())).removed, []);
    await t.rejects(backend.probe(AbortSignal.abort()), { code: 'IB_CANCELLED' });
  });
}
