/**
 * A controller that is paused, and wakes after its cluster was given to another one or taken down, changes nothing: real
 * processes, stopped at each point between check and act.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir } from '../../src/core/paths.js';
import {
  createContainerBackend,
  imageCacheDir,
  powerActs,
} from '../../src/testbed/driver/container/index.js';
import type { DriverCluster, NodeDriver } from '../../src/testbed/driver/driver.js';
import { spec } from '../testbed/driver-suite.js';
import { needsRoot } from './needs-root.js';
import { leftovers } from './trial-harness.js';

t.setTimeout(1_800_000);
needsRoot(t);
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-fence-')));
const backend = createContainerBackend({ stateDir: state });
/** Long, for a machine that has much else to do; on an idle one nothing takes more than seconds. */
const patienceMs = 240_000;
const started = new Set<ChildProcess>();
t.teardown(async () => {
  for (const child of started) child.kill('SIGKILL');
  await backend.sweep(new Set());
  rmSync(state, { recursive: true, force: true });
});

/** A controller on its way to being stopped. */
class Paused {
  private readonly child: ChildProcess;
  private said = '';
  private readonly ended: Promise<string>;

  constructor(
    readonly point: string,
    ...args: string[]
  ) {
    const script = new URL('paused-controller.ts', import.meta.url).pathname;
    this.child = spawn(process.execPath, ['--import=tsx', script, state, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, INFRABED_FAILPOINT: point === '' ? '' : `stop:container.${point}#1` },
    });
    started.add(this.child);
    this.child.stdout?.on('data', (chunk: Buffer) => (this.said += chunk.toString()));
    this.ended = new Promise((resolve) => this.child.once('close', () => resolve(this.said)));
  }

  /** Ends when the process itself is stopped. */
  async stopped(): Promise<void> {
    await waitFor(
      `the stop at ${this.point}`,
      () => (this.stateLetter() === 'T' ? Promise.resolve(true) : undefined),
      { timeoutMs: patienceMs },
    );
  }

  /** Ends when the child that acts for it has stopped itself, behind its check. */
  async childStopped(): Promise<void> {
    await waitFor(`the stop of a child at ${this.point}`, () => (this.stoppedChild() ? true : undefined), {
      timeoutMs: patienceMs,
    });
  }

  async says(word: string): Promise<void> {
    await waitFor(`"${word}"`, () => (this.said.includes(word) ? true : undefined), {
      timeoutMs: patienceMs,
    });
  }

  /** Lets it go on, and returns what it said at its end. */
  async wake(): Promise<string> {
    this.child.kill('SIGCONT');
    const said = await this.ended;
    started.delete(this.child);
    return said;
  }

  pause(): void {
    this.child.kill('SIGSTOP');
  }

  private stateLetter(pid = this.child.pid): string {
    if (this.child.exitCode !== null) throw new Error(`${this.point} was not reached: ${this.said}`);
    const stat = readFileSync(`/proc/${String(pid)}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
  }

  private stoppedChild(): boolean {
    const pid = String(this.child.pid);
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
    return children.some((child) => child !== '' && this.stateLetter(Number(child)) === 'T');
  }
}

async function bootIds(cluster: DriverCluster): Promise<(string | null | undefined)[]> {
  return await Promise.all(cluster.nodes.map(async (node) => (await node.witness?.testify())?.bootId));
}

async function up(node: NodeDriver): Promise<void> {
  await waitFor(
    `${node.name} to answer`,
    async () => {
      const stream = await node.network.dial(22).catch(() => undefined);
      stream?.destroy();
      return stream === undefined ? undefined : true;
    },
    { timeoutMs: patienceMs },
  );
}

const conflict = /IB_LEASE_CONFLICT$/;

t.test(
  'a taken-over cluster runs on, and nothing that its last controller meant to do is done',
  async (t) => {
    const first = await backend.create(
      spec('taken', { nodes: ['node0', 'node1', 'node2'] }),
      nullJournal,
      silentHost,
    );
    await Promise.all(first.nodes.map(up));

    await t.test('when it was stopped before the act', async (t) => {
      const before = await bootIds(first);
      const acts = await powerActs(state);
      const points: [string, string][] = [
        ['power.on.before-check', 'on'],
        ['power.on.intent', 'on'],
        ['on.checked', 'on'],
        ['power.off.before-check', 'off'],
        ['power.off.intent', 'off'],
        ['off.checked', 'off'],
        ['ask-off.checked', 'soft-off'],
        ['power.cycle.before-check', 'cycle'],
        ['power.cycle.intent', 'cycle'],
        ['off.checked', 'cycle'],
        ['exec.before-check', 'exec'],
        ['exec.checked', 'exec'],
        ['exec.checked', 'set'],
        ['dial.before-check', 'dial'],
        ['dial.checked', 'dial'],
        ['destroy.before-check', 'destroy'],
        ['destroy.intent', 'destroy'],
      ];
      // All at once: none of them has changed anything when it stops.
      const paused = points.map(([point, verb]) => ({
        verb,
        one: new Paused(point, verb, 'taken', 'node0'),
      }));
      await Promise.all(paused.map(({ one }) => one.stopped()));
      await backend.fence('taken', 2);
      for (const { verb, one } of paused) t.match(await one.wake(), conflict, `${verb} at ${one.point}`);
      const now = await backend.open('taken', nullJournal);
      t.equal(now.generation, 2);
      t.same(await bootIds(now), before, 'no node was booted');
      t.same(await powerActs(state), acts, 'no power act was begun');
      const touched = await now.nodes[0]?.witness?.exec({ argv: ['ls', '/root'] });
      t.notMatch(touched?.stdout, 'touched');
      await t.rejects(first.nodes[0]!.power.off(), { code: 'IB_LEASE_CONFLICT' });
      await t.rejects(first.destroy(), { code: 'IB_LEASE_CONFLICT' });
    });

    await t.test('when the child that acts was stopped between its check and the act', async (t) => {
      const now = await backend.open('taken', nullJournal);
      const before = await bootIds(now);
      const acts = await powerActs(state);
      const paused = [
        new Paused('act.on', 'on', 'taken', 'node0'),
        new Paused('act.off', 'off', 'taken', 'node1'),
        new Paused('act.ask-off', 'soft-off', 'taken', 'node2'),
        new Paused('act.off', 'destroy', 'taken'),
        new Paused('fenced', 'dial', 'taken', 'node0'),
      ];
      await Promise.all(paused.map((one) => one.childStopped()));
      // The whole of a terminal's process group can be stopped: then the controller does not help either.
      for (const one of paused) one.pause();
      await backend.fence('taken', 3);
      for (const one of paused) t.match(await one.wake(), conflict, one.point);
      const after = await backend.open('taken', nullJournal);
      t.same(await bootIds(after), before);
      t.same(await powerActs(state), acts);
    });

    await t.test('and what it had begun ends with the take-over, but not what it had finished', async (t) => {
      const now = await backend.open('taken', nullJournal);
      const [node] = now.nodes as [NodeDriver];
      const argv = ['sh', '-c', 'setsid sleep 308 > /dev/null 2>&1 &'];
      await node.witness?.execOwn({ argv });
      const paused = [new Paused('', 'linger', 'taken', 'node0'), new Paused('', 'dial', 'taken', 'node0')];
      await paused[1]!.says('connected');
      const sleeps = async (by: NodeDriver): Promise<string | undefined> =>
        (await by.witness?.exec({ argv: ['pgrep', '-a', '-x', 'sleep'] }))?.stdout;
      await waitFor(
        'the command',
        async () => {
          const seen = await sleeps(node);
          return seen?.includes('306') && seen.includes('307') ? true : undefined;
        },
        { timeoutMs: patienceMs },
      );
      for (const one of paused) one.pause();
      await backend.fence('taken', 4);
      await backend.fence('taken', 4);
      await t.rejects(
        backend.fence('taken', 3),
        { code: 'IB_LEASE_CONFLICT' },
        'an older one does not get it back',
      );
      const after = (await backend.open('taken', nullJournal)).nodes[0]!;
      await t.resolves(
        waitFor(
          'the end of it',
          async () => (/30[67]/.test((await sleeps(after)) ?? '') ? undefined : true),
          {
            timeoutMs: 20_000,
          },
        ),
      );
      t.match(await sleeps(after), /308/, 'what set-up left running in order stays');
      for (const one of paused) t.match(await one.wake(), /IB_|ok$/);
    });

    await t.test('a cycle that was stopped between off and on leaves the node off', async (t) => {
      const paused = [
        new Paused('off.done', 'cycle', 'taken', 'node1'),
        new Paused('on.checked', 'cycle', 'taken', 'node2'),
      ];
      await Promise.all(paused.map((one) => one.stopped()));
      await backend.fence('taken', 5);
      const acts = await powerActs(state);
      t.equal(acts.at(-1)?.act, 'off');
      for (const one of paused) t.match(await one.wake(), conflict, one.point);
      const now = await backend.open('taken', nullJournal);
      t.same(await Promise.all(now.nodes.map((node) => node.power.state())), ['on', 'off', 'off']);
      t.same(await powerActs(state), acts);
      await now.nodes[1]!.power.on();
      t.equal(await now.nodes[1]!.power.state(), 'on', 'whoever has it now can');
    });

    await t.test('and a node comes back when it reboots by itself', async (t) => {
      const now = await backend.open('taken', nullJournal);
      const [node] = now.nodes as [NodeDriver];
      const [before] = await bootIds(now);
      await node.witness?.execOwn({ argv: ['systemctl', 'reboot'] });
      await t.resolves(
        waitFor(
          'another boot',
          async () => {
            const seen = (await node.witness?.testify())?.bootId;
            return seen && seen !== before ? true : undefined;
          },
          { timeoutMs: patienceMs },
        ),
      );
    });

    await t.test('a removal that was stopped halfway is finished by another', async (t) => {
      const paused = new Paused('remove.checked', 'destroy', 'taken');
      await paused.stopped();
      await backend.fence('taken', 6);
      t.match(await paused.wake(), conflict);
      t.ok(existsSync(join(state, 'clusters', 'taken', 'cluster.json')), 'it was not removed');
      const now = await backend.open('taken', nullJournal);
      await now.destroy();
      const [evidence] = await backend.proveClean('taken', ['node0']);
      t.match(evidence, { isClean: true, generation: 6, imageHash: first.imageHash });
      t.equal(evidence?.hostKey, first.nodes[0]?.hostKey);
      t.match(evidence?.lastBootId, /^[0-9a-f-]{36}$/);
      t.same(leftovers(state), []);
    });
  },
);

t.test('a creation that was paused while its lease ended leaves nothing when it wakes', async (t) => {
  const points = {
    /** Nothing is there yet that a sweep could find: the generation alone keeps it from being made. */
    fence: ['create.before-check', 'create.intent', 'make.checked'],
    sweep: [
      'make.done',
      'power.on.before-check',
      'power.on.intent',
      'on.checked',
      'on.done',
      'create.verified',
    ],
    /** The child that makes it or starts its supervisor, stopped while it holds the locks. */
    child: ['act.make', 'act.on'],
  };
  const start = (list: readonly string[]): { id: string; one: Paused }[] =>
    list.map((point) => {
      const id = `new-${point}`;
      return { id, one: new Paused(point, 'create', id, '7') };
    });
  const fenced = start(points.fence);
  const swept = start(points.sweep);
  const children = start(points.child);
  await Promise.all([
    ...[...fenced, ...swept].map(({ one }) => one.stopped()),
    ...children.map(({ one }) => one.childStopped()),
  ]);
  for (const { one } of children) one.pause();
  for (const { id } of fenced) await backend.fence(id, 8);
  const report = await backend.sweep(() => Promise.resolve(new Set<string>()));
  t.same(report.failed, []);
  for (const { id } of [...swept, ...children])
    t.ok(
      report.removed.some((line) => line.includes(id)),
      `${id} was found`,
    );
  const acts = await powerActs(state);
  for (const { id, one } of [...fenced, ...swept, ...children]) {
    t.match(await one.wake(), conflict, one.point);
    const [evidence] = await backend.proveClean(id, ['node0']);
    t.ok(evidence?.isClean, JSON.stringify(evidence?.parts.filter(({ found }) => found !== null)));
    await t.rejects(
      backend.create(spec(id, { nodes: ['node0'], generation: 7 }), nullJournal, silentHost),
      { code: 'IB_LEASE_CONFLICT' },
      'nor can it be made again under the old generation',
    );
  }
  t.same(await powerActs(state), acts);
  t.same(leftovers(state), []);
  t.same((await backend.sweep(new Set())).removed, []);
});
