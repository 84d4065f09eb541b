/** The gates with scripted clusters: records, attribution, schedules, pauses and the power-cycle. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { z } from 'zod';
import { systemClock, type Clock } from '../../src/core/clock.js';
import { InfrabedError } from '../../src/core/errors.js';
import { evidenceSchema, type EvidenceRecord } from '../../src/record/bundle/schema.js';
import { defineChecker, type Checker } from '../../src/trial/gate/checker.js';
import {
  loadLocalChecker,
  openToolGuard,
  probeTimes,
  rebootNodes,
  runGate,
  runRunningGate,
  startWindow,
  type GateOptions,
} from '../../src/trial/gate/index.js';
import { checkSchema, type CheckDefinition } from '../../src/trial/task/schema.js';
import { dead, FakeCluster, unreachable } from './fake-cluster.js';

const check = (fields: Record<string, unknown>): CheckDefinition =>
  checkSchema.parse({
    id: 'a',
    gates: ['immediate'],
    uses: 'say',
    on: 'node0',
    weight: 1,
    class: 'functional',
    ...fields,
  });

const say = (gather: Checker['gather']): Checker =>
  defineChecker({
    name: 'say',
    summary: 'A test.',
    with: z.strictObject({ word: z.string().optional() }),
    evidence: z.json(),
    gather,
    judge: () => ({ verdict: 'pass', why: 'always' }),
  });
const calm = say(() => Promise.resolve({ said: 'yes' }));

interface Scene extends GateOptions {
  cluster: FakeCluster;
  records: EvidenceRecord[];
  abort: AbortController;
}

function scene(checks: CheckDefinition[], checker: Checker = calm, clock: Clock = systemClock): Scene {
  const records: EvidenceRecord[] = [];
  const abort = new AbortController();
  return {
    checks,
    cluster: new FakeCluster(),
    checkers: new Map([['say', checker]]),
    taskDir: '/nowhere',
    drift: () => Promise.resolve({ changes: [], control: [], controlRecorded: false }),
    clock,
    signal: abort.signal,
    onEvidence: (record) => {
      records.push(evidenceSchema.parse(record));
    },
    records,
    abort,
  };
}

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

t.test(
  'a gate makes the checks that name it, and records come in their order however long each takes',
  async (t) => {
    const slowFirst = say(async (_context, parameters) => {
      await wait((parameters as { word?: string }).word === 'slow' ? 60 : 1);
      return { said: 'yes' };
    });
    const it = scene(
      [
        check({ id: 'slow', with: { word: 'slow' } }),
        check({ id: 'other-gate', gates: ['reboot', 'window'] }),
        check({ id: 'quick' }),
      ],
      slowFirst,
    );
    await runGate({ ...it, moment: 'immediate' });
    t.same(
      it.records.map((one) => one.check),
      ['slow', 'quick'],
    );
    t.ok(
      it.records.every((one) => one.outcome === 'gathered' && one.moment === 'immediate' && one.probe === 0),
    );
    t.ok(it.records[0]!.durationMs >= 55);
  },
);

t.test('what a look that fails is recorded as', async (t) => {
  const failing = (error: Error): Checker => say(() => Promise.reject(error));
  const lookWith = async (checker: Checker, prepare: (cluster: FakeCluster) => void = () => undefined) => {
    const it = scene([check({ timeout_sec: 0.05 })], checker);
    prepare(it.cluster);
    await runGate({ ...it, moment: 'immediate' });
    return it.records[0]!;
  };
  for (const blame of ['node', 'infrastructure', 'unknown'] as const) {
    const record = await lookWith(failing(unreachable('node0')), (cluster) => {
      cluster.of('node0').standing = dead(blame);
    });
    t.match(record, { outcome: 'unreachable', blame, error: { code: 'IB_NODE_UNREACHABLE' } });
    t.match(record.error?.message, `It is the doing of: ${blame}.`);
  }
  t.match(
    await lookWith(failing(unreachable('node1')), (cluster) => {
      cluster.of('node1').standing = dead('infrastructure');
    }),
    { outcome: 'unreachable', blame: 'infrastructure' },
    'the node that the error names is the one that is asked about',
  );
  t.match(await lookWith(failing(unreachable('node0'))), { outcome: 'unreachable', blame: 'unknown' });
  t.match(await lookWith(failing(new TypeError('x is not a function'))), {
    outcome: 'fault',
    error: { code: 'IB_CHECKER_FAILED', message: 'x is not a function' },
  });
  t.match(await lookWith(failing(new InfrabedError('IB_CHECKER_FAILED', 'no psql'))), { outcome: 'fault' });
  t.match(await lookWith(failing(new InfrabedError('IB_NODE_FAILED', 'odd'))), {
    outcome: 'unreachable',
    blame: 'node',
  });
  t.match(
    await lookWith(say(() => wait(500).then(() => ({ said: 'late' })))),
    { outcome: 'unreachable', blame: 'node', error: { code: 'IB_TIMEOUT' } },
    'a check that hangs on a node that is well is the node’s doing',
  );
  t.match(await lookWith(say(() => Promise.resolve(undefined as never))), {
    outcome: 'fault',
    error: { code: 'IB_CHECKER_FAILED' },
  });
});

t.test('a broken connection to a node that is well is asked once more, a probe is not', async (t) => {
  let asked = 0;
  const flaky = say(() =>
    ++asked === 1 ? Promise.reject(unreachable('node0')) : Promise.resolve({ said: 'yes' }),
  );
  const it = scene([check({})], flaky);
  await runGate({ ...it, moment: 'immediate' });
  t.equal(it.records[0]!.outcome, 'gathered');
  asked = 0;
  const probes = scene([check({ gates: ['running'] })], flaky);
  await runRunningGate({ ...probes, durationMs: 10, intervalMs: 10 });
  t.same(
    probes.records.map((one) => one.outcome),
    ['unreachable', 'gathered'],
  );
});

t.test('a checker that is unknown or refuses its parameters is a fault of its check alone', async (t) => {
  const it = scene([
    check({ id: 'unknown', uses: 'sya' }),
    check({ id: 'refused', with: { wrod: 'x' } }),
    check({ id: 'good' }),
  ]);
  await runGate({ ...it, moment: 'immediate' });
  t.match(it.records, [
    { check: 'unknown', outcome: 'fault', error: { code: 'IB_CHECKER_UNKNOWN' } },
    { check: 'refused', outcome: 'fault', error: { code: 'IB_TASK_INVALID' } },
    { check: 'good', outcome: 'gathered' },
  ]);
});

t.test(
  'a gate ends with IB_CANCELLED when the trial does, and with what the record could not take',
  async (t) => {
    const it = scene(
      [check({})],
      say(() => wait(2000).then(() => ({ said: 'late' }))),
    );
    setTimeout(() => it.abort.abort(), 20);
    await t.rejects(runGate({ ...it, moment: 'immediate' }), { code: 'IB_CANCELLED' });
    t.same(it.records, []);
    const full = scene([check({})]);
    const error = new InfrabedError('IB_DISK_FULL', 'full');
    await t.rejects(runGate({ ...full, moment: 'immediate', onEvidence: () => Promise.reject(error) }), {
      code: 'IB_DISK_FULL',
    });
  },
);

t.test('differences are gathered once a gate and shared by its checks', async (t) => {
  let gathered = 0;
  const it = scene(
    [check({ id: 'a' }), check({ id: 'b' })],
    say(async ({ drift }) => ({ said: String((await drift()).changes.length) })),
  );
  const drift = (): ReturnType<GateOptions['drift']> => {
    gathered++;
    return Promise.resolve({ changes: [], control: [], controlRecorded: true });
  };
  await runGate({ ...it, drift, moment: 'immediate' });
  t.equal(gathered, 1);
  t.ok(it.records.every((one) => one.outcome === 'gathered'));
});

t.test('the running gate probes at fixed times, and a slow probe does not shift the next', async (t) => {
  let probe = 0;
  const slowSecond = say(async () => {
    await wait(++probe === 2 ? 1500 : 1);
    return { said: 'yes' };
  });
  const it = scene([check({ gates: ['running'] })], slowSecond);
  const begun = Date.now();
  await runRunningGate({ ...it, durationMs: 2000, intervalMs: 500 });
  t.same(
    it.records.map((one) => one.probe),
    [0, 1, 2, 3, 4],
  );
  it.records.forEach((one, index) => {
    t.ok(
      // One that the slow probe had shifted would be a second late, a busy machine's a little.
      Math.abs(one.at - begun - index * 500) < 450,
      `probe ${String(index)} at ${String(one.at - begun)} ms`,
    );
  });
});

t.test('probe times are on the grid, begin at once and never lie behind the end', (t) => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 100_000 }),
      fc.integer({ min: 1, max: 5000 }),
      (durationMs, intervalMs) => {
        const times = probeTimes(durationMs, intervalMs);
        return (
          times[0] === 0 &&
          times.every((time, index) => time === index * intervalMs && time <= durationMs) &&
          times.length * intervalMs > durationMs
        );
      },
    ),
  );
  t.pass('held for every duration and interval');
  t.end();
});

t.test(
  'a window probes from the start to the end, and marks what the controller itself disturbs',
  async (t) => {
    let disturbed = false;
    const checker = say(async ({ signal }) => {
      await new Promise((resolve, reject) => {
        setTimeout(resolve, 10);
        signal.addEventListener('abort', () => reject(new Error('given up')), { once: true });
      });
      if (disturbed) throw unreachable('node0');
      return { said: 'yes' };
    });
    const it = scene([check({ id: 'w', gates: ['window'], interval_sec: 0.02 })], checker);
    const watch = startWindow(it);
    await wait(70);
    disturbed = true;
    watch.pause(['node0', 'node1'], 'reboot gate');
    await wait(70);
    disturbed = false;
    watch.resume();
    await wait(50);
    await watch.stop();
    const outcomes = it.records.map((one) => one.outcome);
    t.same(
      it.records.map((one) => one.probe),
      [...it.records.keys()],
      'probes are numbered without a gap',
    );
    t.match(outcomes.join(' '), /^(gathered )+(paused )+(gathered ?)+$/);
    t.match(it.records.find((one) => one.outcome === 'paused')?.error?.message, 'reboot gate (node0, node1)');
    const count = it.records.length;
    await wait(50);
    t.equal(it.records.length, count, 'nothing is recorded behind the end');
  },
);

t.test(
  'a window that cannot write says so at once and when it is stopped; a cancelled one just ends',
  async (t) => {
    const it = scene([
      check({ gates: ['window'], interval_sec: 0.01 }),
      check({ id: 'b', gates: ['window'], interval_sec: 0.01 }),
    ]);
    const failures: unknown[] = [];
    const error = new InfrabedError('IB_DISK_FULL', 'full');
    const watch = startWindow({
      ...it,
      onEvidence: () => Promise.reject(error),
      onFailure: (seen) => failures.push(seen),
    });
    await wait(30);
    t.same(failures, [error]);
    await t.rejects(watch.stop(), { code: 'IB_DISK_FULL' });
    const cancelled = scene(
      [check({ gates: ['window'], interval_sec: 5 })],
      say(() => new Promise(() => undefined)),
    );
    const other = startWindow(cancelled);
    await wait(10);
    cancelled.abort.abort();
    await other.stop();
    t.same(cancelled.records, []);
  },
);

t.test('a last probe of the window is made at its end, however long the interval', async (t) => {
  const it = scene([check({ gates: ['window'], interval_sec: 3600 })]);
  const watch = startWindow(it);
  await wait(20);
  await watch.stop();
  t.same(
    it.records.map((one) => one.probe),
    [0, 1],
  );
});

t.test('a power-cycle is proven by another boot_id, and a node that stays away has its blame', async (t) => {
  const cycle = async (
    prepare: (cluster: FakeCluster) => void,
    order: 'together' | 'one-by-one' = 'together',
  ) => {
    const cluster = new FakeCluster();
    prepare(cluster);
    const told: string[] = [];
    const results = await rebootNodes({
      cluster,
      nodes: ['node0', 'node1'],
      order,
      timeoutMs: 300,
      settleMs: 1,
      clock: systemClock,
      signal: new AbortController().signal,
      onResult: ({ node, outcome }) => told.push(`${node} ${outcome}`),
    });
    return { results, told, calls: cluster.calls };
  };
  t.match((await cycle(() => undefined)).results, [
    { node: 'node0', outcome: 'booted', bootIdBefore: 'boot-1', bootIdAfter: 'boot-2' },
    { node: 'node1', outcome: 'booted' },
  ]);
  t.same((await cycle(() => undefined, 'one-by-one')).calls, ['node0 power cycle', 'node1 power cycle']);
  for (const blame of ['node', 'infrastructure', 'unknown'] as const) {
    const { results, told } = await cycle((cluster) => {
      cluster.of('node1').onCycle = () => {
        cluster.of('node1').standing = dead(blame);
      };
    });
    t.match(results[1], { outcome: 'not-back', blame });
    t.same([...told].sort(), ['node0 booted', 'node1 not-back']);
  }
  const lying = await cycle((cluster) => {
    cluster.of('node0').onCycle = () => undefined;
  });
  t.match(lying.results[0], { outcome: 'not-back', blame: 'infrastructure' }, 'the old boot_id is no reboot');
  const broken = await cycle((cluster) => {
    cluster.of('node0').onCycle = () => Promise.reject(new InfrabedError('IB_POWER', 'the BMC is silent'));
  });
  t.match(broken.results[0], { outcome: 'not-back', blame: 'infrastructure', why: /the BMC is silent/ });
  const stopped = await cycle((cluster) => {
    cluster.of('node0').standing = dead('node');
    cluster.of('node0').onCycle = () => {
      cluster.of('node0').standing = { standing: 'reachable' };
    };
  });
  t.match(
    stopped.results[0],
    { outcome: 'booted', bootIdBefore: null },
    'sshd was stopped, but not for good',
  );
});

t.test('nodes can be power-cycled more than once, as long as they come back', async (t) => {
  const cluster = new FakeCluster();
  const told: string[] = [];
  cluster.of('node1').onCycle = () => {
    cluster.of('node1').standing = dead('node');
  };
  const results = await rebootNodes({
    cluster,
    nodes: ['node1', 'node0'],
    order: 'together',
    times: 2,
    timeoutMs: 300,
    settleMs: 1,
    clock: systemClock,
    signal: new AbortController().signal,
    onResult: ({ node, outcome }) => told.push(`${node} ${outcome}`),
  });
  t.match(results, [
    { node: 'node1', outcome: 'not-back' },
    { node: 'node0', outcome: 'booted', bootIdBefore: 'boot-2', bootIdAfter: 'boot-3' },
  ]);
  t.same([...told].sort(), ['node0 booted', 'node0 booted', 'node1 not-back']);
  t.equal(cluster.calls.filter((call) => call === 'node1 power cycle').length, 1);
});

t.test('checks on a node that did not come back are not made and have its blame', async (t) => {
  const it = scene([
    check({ id: 'a', gates: ['reboot'] }),
    check({ id: 'b', gates: ['reboot'], on: 'node1' }),
  ]);
  const rebooted = [
    { node: 'node0', outcome: 'not-back' as const, blame: 'node' as const, why: 'gone', durationMs: 1 },
  ];
  await runGate({ ...it, moment: 'reboot', rebooted });
  t.match(it.records, [
    { check: 'a', outcome: 'unreachable', blame: 'node', error: { message: 'gone' } },
    { check: 'b', outcome: 'gathered' },
  ]);
});

t.test('where there are no pristine programs, a check fails whose tool was replaced', async (t) => {
  let systemctl = '/usr/bin/systemctl 1';
  let loader = '/lib/ld.so 1';
  const it = scene([check({ id: 'unit' })], { ...calm, programs: ['systemctl'] });
  it.cluster.answer(() => ({
    stdout: JSON.stringify({ core: { loader }, programs: { systemctl, ping: 'p' } }),
  }));
  const guard = await openToolGuard({
    cluster: it.cluster,
    nodes: ['node0'],
    programs: ['systemctl', 'ping'],
  });
  const outcome = async (): Promise<EvidenceRecord> => {
    it.records.length = 0;
    await runGate({ ...it, guard, moment: 'immediate' });
    return it.records[0]!;
  };
  t.equal((await outcome()).outcome, 'gathered');
  systemctl = '/usr/bin/systemctl 2';
  t.match(await outcome(), { outcome: 'tampered', error: { message: /systemctl/ } });
  systemctl = '/usr/bin/systemctl 1';
  loader = '/lib/ld.so 2';
  t.match(await outcome(), { outcome: 'tampered', error: { message: /loader/ } });
});

t.test('a checker of the task itself', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'local-checker-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  await mkdir(join(dir, 'checks'));
  const module = async (name: string, text: string): Promise<string> => {
    await writeFile(join(dir, 'checks', name), text);
    return join(dir, 'checks', name);
  };
  const whole = await module(
    'whole.mjs',
    `console.log('noise');
     export default {
       summary: 'Reads the host name.',
       with(value) { if (typeof value.name !== 'string') throw new Error('name must be a string'); return value; },
       async gather(api, { name }) {
         const result = await api.exec(['hostname'], { on: 'node1' });
         const file = await api.read('/etc/hostname');
         return { said: result.stdout, file: file.type, name, nodes: api.nodes.length };
       },
       judge(evidence, { name }) {
         return evidence.said === name ? { verdict: 'pass', why: 'same' } : { verdict: 'fail', why: 'is ' + evidence.said };
       },
     };`,
  );
  const lookAt = async (
    uses: string,
    parameters: unknown,
    prepare: (it: Scene) => void = () => undefined,
  ) => {
    const it = scene([check({ uses, with: parameters, timeout_sec: 3 })]);
    it.cluster.answerTo('hostname', { stdout: 'n1' });
    prepare(it);
    await runGate({ ...it, taskDir: dir, moment: 'immediate' });
    return it.records[0]!;
  };
  const checker = loadLocalChecker(whole);
  t.match(checker, { name: './checks/whole.mjs', summary: 'Reads the host name.' });
  t.match(checker.with.safeParse({}), { success: false, error: /name must be a string/ });
  t.match(await lookAt('./checks/whole.mjs', { name: 'n1' }), {
    outcome: 'gathered',
    evidence: { said: 'n1', file: 'absent', name: 'n1', nodes: 3 },
  });
  t.same(checker.judge({ said: 'n1' }, { name: 'n1' }), { verdict: 'pass', why: 'same' });
  t.same(checker.judge({ said: 'n2' }, { name: 'n1' }), { verdict: 'fail', why: 'is n2' });
  t.match(
    await lookAt('./checks/whole.mjs', { name: 'n1' }, ({ cluster }) => {
      cluster.answer(() => undefined);
      cluster.of('node1').standing = dead('node');
      cluster.exec = () => Promise.reject(unreachable('node1'));
    }),
    { outcome: 'unreachable', blame: 'node' },
    'what the node refuses is attributed as with any checker',
  );

  const faults: [string, string, RegExp][] = [
    ['syntax.mjs', 'export default {', /cannot be loaded \(SyntaxError/],
    ['none.mjs', 'export const x = 1;', /no default export/],
    ['half.mjs', 'export default { gather() {} };', /no function "judge"/],
    ['throws.mjs', 'export default { gather() { throw new Error("boom") }, judge() {} };', /Error: boom/],
    ['dies.mjs', 'export default { gather() { process.exit(3) }, judge() {} };', /ended with status 3/],
  ];
  for (const [name, text, expected] of faults) {
    await module(name, text);
    t.match(await lookAt(`./checks/${name}`, {}), { outcome: 'fault', error: { message: expected } }, name);
  }
  await module(
    'hangs.mjs',
    'export default { gather: () => new Promise((r) => setTimeout(r, 1e6)), judge() {} };',
  );
  t.match(await lookAt('./checks/hangs.mjs', {}), { error: { code: 'IB_TIMEOUT' } });
  const wrong = loadLocalChecker(
    await module('wrong.mjs', 'export default { gather() {}, judge: () => true };'),
  );
  t.throws(() => wrong.judge({}, {}), { code: 'IB_CHECKER_FAILED', message: /returned no/ });
});
