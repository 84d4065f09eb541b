/** The driver room without root: the fake under the common suite, and what the container backend decides. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import ssh2 from 'ssh2';
import t from 'tap';
import { withLock } from '../../src/core/lock.js';
import type { ClusterState } from '../../src/testbed/driver/container/cluster-state.js';
import {
  act,
  fenceFolder,
  holdingOf,
  markedEnvironment,
  readFence,
} from '../../src/testbed/driver/container/fence.js';
import { inotifyCheck, kernelCheck, sizeCheck } from '../../src/testbed/driver/container/host-checks.js';
import {
  markedGenerations,
  processesOf,
  type HostProcess,
} from '../../src/testbed/driver/container/host-processes.js';
import { powerActs } from '../../src/testbed/driver/container/power-log.js';
import { cgroupLayout, clusterNames } from '../../src/testbed/driver/container/host.js';
import { BuildProgress } from '../../src/testbed/driver/container/image-build.js';
import { layerNames, planLayers } from '../../src/testbed/driver/container/image-layers.js';
import { manifestText, parseDpkgStatus } from '../../src/testbed/driver/container/image-manifest.js';
import { mirrorLines } from '../../src/testbed/driver/container/image-mirror.js';
import { nodeAddress } from '../../src/testbed/driver/container/network.js';
import { nodePlace } from '../../src/testbed/driver/container/node.js';
import {
  endingOf,
  ownSupervisorArgv,
  systemdRunArgv,
} from '../../src/testbed/driver/container/supervisor.js';
import { createFakeBackend } from '../../src/testbed/driver/fake/index.js';
import { generateKeyPair } from '../../src/testbed/ssh/keys.js';
import { driverSuite, recordingJournal, spec } from './driver-suite.js';

t.test('the fake shows the common behaviour', (t) => driverSuite(t, createFakeBackend(), 'fake'));

t.test('power that cannot be read is unknown, and an action that ends so is an error', async (t) => {
  const silent = new Set<string>();
  const backend = createFakeBackend({ isPowerUnreadable: (node) => silent.has(node) });
  const journal = recordingJournal();
  const cluster = await backend.create(spec('unknown', { nodes: ['node0'] }), journal, {
    notify: () => undefined,
    ask: () => Promise.resolve(true),
  });
  silent.add('node0');
  const [node] = cluster.nodes;
  t.equal(await node?.power.state(), 'unknown');
  await t.rejects(async () => node?.power.off(), { code: 'IB_POWER' });
  t.match(journal.entries.at(-1), { kind: 'power.off', payload: { state: 'failed', after: 'unknown' } });
  silent.clear();
  await cluster.destroy();
});

t.test('the host layout is read from the mount table', (t) => {
  const hybrid =
    'cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n';
  t.same(cgroupLayout(hybrid), {
    unified: '/sys/fs/cgroup/unified',
    legacySystemd: '/sys/fs/cgroup/systemd',
    pids: '/sys/fs/cgroup/pids',
  });
  t.same(cgroupLayout('cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n'), {
    unified: '/sys/fs/cgroup',
    legacySystemd: undefined,
    pids: undefined,
  });
  const nested = 'cgroup2 /var/lib/x/sys/fs/cgroup cgroup2 rw 0 0\n';
  t.same(
    cgroupLayout(nested),
    { unified: undefined, legacySystemd: undefined, pids: undefined },
    'that of a container is not ours',
  );
  t.end();
});

const state: ClusterState = {
  version: 1,
  id: 'c1',
  generation: 7,
  tag: 'abcdef',
  mode: 'own',
  createdMs: 0,
  uidBase: 0x70000000,
  mapping: 'idmapped',
  imageHash: 'h',
  imageKeys: ['k1', 'k2'],
  lowers: ['/images/os/root', '/images/postgres/root'],
  nodes: [{ name: 'node0', address: '10.77.0.11', hostKey: 'ssh-ed25519 AAAA', machine: 'n0' }],
};
const layout = { unified: '/sys/fs/cgroup', legacySystemd: undefined, pids: undefined };

t.test('nodes are started by exactly these commands', (t) => {
  const node = state.nodes[0]!;
  const own = ownSupervisorArgv(nodePlace('/state', layout, state, node)).map((word) =>
    word.replace(/^\/.*\/container\//, ''),
  );
  t.same(own, [
    '/usr/bin/python3',
    '-I',
    '-S',
    'node-mounts.py',
    '/state/clusters/c1/nodes/node0',
    '1879048192',
    '/images/os/root:/images/postgres/root',
    '/bin/sh',
    'node-supervisor.sh',
    '/state/clusters/c1/nodes/node0',
    '/state/fences/c1',
    '/sys/fs/cgroup/infrabed/abcdef-c1/node0',
    '/run/netns/ib-abcdef-c1',
    'n0',
    'node0',
    '1879048192',
  ]);
  const unit = systemdRunArgv(
    nodePlace('/state', layout, { ...state, mode: 'host-systemd', mapping: 'shifted-copy' }, node),
  );
  const at = unit.indexOf('--');
  const options = unit.slice(0, at);
  for (const option of [
    '--unit=infrabed-abcdef-c1-node0.service',
    '--slice=infrabed.slice',
    '--property=Delegate=yes',
    '--property=RestartForceExitStatus=133',
    '--property=SuccessExitStatus=133',
    '--property=StartLimitIntervalSec=0',
    '--property=StandardOutput=append:/state/clusters/c1/nodes/node0/console.log',
  ]) {
    t.ok(options.includes(option), option);
  }
  const command = unit.slice(at + 1).map((word) => word.replace(/^\/.*\/container\//, ''));
  t.same(command.slice(0, 8), [
    '/usr/bin/python3',
    '-I',
    '-S',
    'node-mounts.py',
    '/state/clusters/c1/nodes/node0',
    '0',
    '/images/os/root:/images/postgres/root',
    '/bin/sh',
  ]);
  t.equal(
    nodePlace('/state', layout, { ...state, mode: 'host-systemd' }, node).groups.unified,
    '/sys/fs/cgroup/infrabed.slice/infrabed-abcdef-c1-node0.service',
  );
  t.end();
});

t.test('only what no node can bring about counts as a fault of ours', (t) => {
  const fault = (...event: string[]): string | null => endingOf(event).fault;
  t.equal(fault('1', '2', 'exit', '0'), null, 'powered off');
  t.equal(fault('1', '2', 'exit', '1'), null, 'nspawn could not start its init');
  t.type(fault('1', '2', 'exit', '133'), 'string', 'gone between two boots');
  t.equal(fault('1', '2', 'exit', '137'), null, 'an init may end with any status');
  t.type(fault('1', '2', 'signal', '9'), 'string', 'killed from outside');
  t.type(fault('1', '2', 'boot'), 'string', 'vanished while the node ran');
  t.type(fault(), 'string', 'never came');
  t.end();
});

t.test('names of a cluster start with the tag of the state folder', (t) => {
  const names = clusterNames('abcdef', 't-1');
  t.same(names, {
    netns: 'ib-abcdef-t-1',
    netnsPath: '/run/netns/ib-abcdef-t-1',
    group: 'infrabed/abcdef-t-1',
    unitPrefix: 'infrabed-abcdef-t-1-',
  });
  t.equal(nodeAddress(0), '10.77.0.11');
  t.throws(() => nodeAddress(244), { code: 'IB_NOT_ENOUGH_NODES' });
  t.end();
});

t.test("the host's mirror is used only where it serves the suite, and only Debian's own", (t) => {
  const answer = [
    'http://mirror.example/debian/ bookworm main Debian',
    'http://mirror.example/debian/ bookworm-updates main $(ORIGIN)',
    'http://mirror.example/debian-security/ bookworm-security main Debian',
    'http://vendor.example/linux/ bookworm stable Vendor',
    'http://vendor.example/other/ bookworm main Vendor',
    'http://mirror.example/debian/ bookworm main Debian',
    'file:/srv/local/ bookworm main Debian',
    '',
  ].join('\n');
  t.same(mirrorLines(answer, 'bookworm'), [
    'deb http://mirror.example/debian/ bookworm main',
    'deb http://mirror.example/debian/ bookworm-updates main',
    'deb http://mirror.example/debian-security/ bookworm-security main',
  ]);
  t.same(mirrorLines('http://mirror.example/ubuntu/ noble main Ubuntu\n', 'bookworm'), []);
  t.same(
    mirrorLines('http://mirror.example/debian/ bookworm-updates main Debian\n', 'bookworm'),
    [],
    'updates alone are not the suite',
  );
  t.end();
});

t.test('layers are planned from the bottom up, and a key covers all that is below', async (t) => {
  t.ok((await layerNames()).includes('os'));
  const [os, postgres] = await planLayers(['os', 'postgres']);
  t.equal((await planLayers(['os']))[0]?.key, os?.key, 'a key depends on nothing above');
  await t.rejects(planLayers(['nope']), { code: 'IB_LAYER_UNKNOWN', hint: /os/ });
  await t.rejects(planLayers(['../os']), { code: 'IB_LAYER_UNKNOWN' });
  await t.rejects(planLayers(['postgres']), { code: 'IB_LAYER_UNKNOWN' });
  await t.rejects(planLayers(['os', 'os']), { code: 'IB_LAYER_UNKNOWN' });
  await t.rejects(planLayers([]), { code: 'IB_LAYER_UNKNOWN' });

  const folder = mkdtempSync(join(tmpdir(), 'infrabed-layers-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const script = join(folder, 'setup.sh');
  writeFileSync(script, 'true\n');
  const key = async (): Promise<string | undefined> =>
    (await planLayers(['os', { name: 'task a/b', script }]))[1]?.key;
  const first = await key();
  t.equal(await key(), first);
  t.equal(
    (await planLayers(['os', { name: 'task a/b', script }]))[1]?.name,
    'task-a-b',
    'a name is fit for a path',
  );
  t.not(
    (await planLayers(['os', 'postgres', { name: 'x', script }]))[2]?.key,
    first,
    'other layers below, another key',
  );
  mkdirSync(join(folder, 'files'));
  writeFileSync(join(folder, 'files', 'one'), '1');
  const second = await key();
  t.not(second, first, 'a file beside the script is part of the layer');
  writeFileSync(join(folder, 'files', 'one'), '2');
  t.not(await key(), second);
  t.ok(postgres);
  await t.rejects(planLayers([{ name: 'x', script }]), { code: 'IB_LAYER_UNKNOWN' });
  await t.rejects(planLayers(['os', { name: 'x', script: '/no/such/setup.sh' }]), {
    code: 'IB_LAYER_UNKNOWN',
  });
  const broken = join(folder, 'layers');
  mkdirSync(broken);
  writeFileSync(join(broken, 'bad.toml'), 'packages = "curl"\n');
  await t.rejects(planLayers(['bad'], broken), { code: 'IB_LAYER_UNKNOWN', message: /bad\.toml/ });
});

t.test('the manifest lists what is installed, in an order of its own', (t) => {
  const status = [
    'Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:1.2',
    'Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1',
    'Package: acl\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.3-1\nDescription: x\n Version: 9',
    '',
  ].join('\n\n');
  const packages = parseDpkgStatus(status);
  t.same(packages, [
    { name: 'acl', version: '2.3-1', architecture: 'amd64' },
    { name: 'zlib1g', version: '1:1.2', architecture: 'amd64' },
  ]);
  t.equal(
    manifestText(packages, [{ name: 'os', key: 'k' }]),
    'layer os k\npackage acl 2.3-1 amd64\npackage zlib1g 1:1.2 amd64\n',
  );
  t.end();
});

t.test('a build tells how far it is', (t) => {
  const events: unknown[] = [];
  const progress = new BuildProgress('os', {
    notify: (event) => events.push(event),
    ask: () => Promise.resolve(true),
  });
  for (const line of [
    '0 upgraded, 2 newly installed, 0 to remove',
    'Unpacking acl (2.3) ...',
    'Unpacking jq (1) ...',
    'Setting up acl (2.3) ...',
  ])
    progress.line(line);
  progress.tell();
  t.match(events, [{ type: 'progress', scope: 'image os', message: 'Setting up acl', done: 3, total: 4 }]);
  t.match(progress.tail(), /Setting up acl/);
  t.end();
});

t.test('the machine is judged by what nodes need', (t) => {
  t.equal(kernelCheck('6.1.0-18-amd64').state, 'ok');
  t.equal(kernelCheck('5.15.0-generic').state, 'warn');
  t.equal(kernelCheck('5.10.0').state, 'fail');
  t.equal(inotifyCheck(128).state, 'warn');
  t.equal(inotifyCheck(1024).state, 'ok');
  t.equal(sizeCheck(2, 1e9).state, 'warn');
  t.end();
});

t.test('every key pair is whole, and OpenSSH takes it', (t) => {
  fc.assert(
    fc.property(fc.stringMatching(/^[a-z0-9@.-]{1,30}$/), (comment) => {
      const pair = generateKeyPair(comment);
      const secret = ssh2.utils.parseKey(pair.privateKey);
      const open = ssh2.utils.parseKey(pair.publicKey);
      if (secret instanceof Error || open instanceof Error) return false;
      return open.verify(Buffer.from('x'), secret.sign(Buffer.from('x'))) && secret.comment === comment;
    }),
    { numRuns: 600 },
  );
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-key-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const pair = generateKeyPair('someone');
  writeFileSync(join(folder, 'key'), pair.privateKey, { mode: 0o600 });
  t.equal(
    execFileSync('ssh-keygen', ['-y', '-f', join(folder, 'key')], { encoding: 'utf8' }).trim(),
    pair.publicKey,
  );
  t.end();
});

t.test('a lock is held by one at a time, and a waiter can give up', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-lock-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'below', 'lock');
  let inside = 0;
  let most = 0;
  const work = async (): Promise<void> => {
    inside += 1;
    most = Math.max(most, inside);
    await new Promise((resolve) => setTimeout(resolve, 20));
    inside -= 1;
  };
  await Promise.all([1, 2, 3, 4].map(() => withLock(path, work)));
  t.equal(most, 1);
  await withLock(path, async () => {
    const controller = new AbortController();
    let waited = false;
    const waiting = withLock(path, work, { signal: controller.signal, onWait: () => (waited = true) });
    setTimeout(() => controller.abort(), 400);
    await t.rejects(waiting, { code: 'IB_CANCELLED' });
    t.ok(waited, 'the waiter was told that it waits');
  });
  await t.rejects(
    withLock(path, () => Promise.reject(new Error('inside'))),
    { message: 'inside' },
  );
  await withLock(path, work);
});

t.test('of several that take a cluster at once the newest gets it', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-fence-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const take = (generation: number): Promise<unknown> => {
    const holding = holdingOf(folder, { tag: 'abcdef', id: 'c1', generation });
    return act(holding, 'take', { folder: join(folder, 'clusters', 'c1') });
  };
  const outcomes = await Promise.allSettled([4, 9, 5, 7].map(take));
  for (const outcome of outcomes)
    if (outcome.status === 'rejected') t.match(outcome.reason, { code: 'IB_LEASE_CONFLICT' });
  t.equal(outcomes[1]?.status, 'fulfilled');
  const { state: now } = await readFence(fenceFolder(folder, 'c1'));
  t.same(
    now,
    { kind: 'floor', generation: 9 },
    'there is no cluster: only the tenth or a later one can be made',
  );
  const late = act(holdingOf(folder, { tag: 'abcdef', id: 'c1', generation: 9 }), 'off', {});
  await t.rejects(late, { code: 'IB_LEASE_CONFLICT' });
});

t.test('a take-over kills what acts for an older generation, stopped or not, and nothing else', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-fence-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const sleeper = (env: Record<string, string>): ChildProcess => {
    const child = spawn('sleep', ['300'], { stdio: 'ignore', env: { ...process.env, ...env } });
    t.teardown(() => child.kill('SIGKILL'));
    return child;
  };
  const marked = (id: string, generation: number): ChildProcess =>
    sleeper(markedEnvironment(holdingOf(folder, { tag: 'fedcba', id, generation })));
  const [old, paused] = [marked('c1', 1), marked('c1', 2)];
  paused.kill('SIGSTOP');
  const others = [marked('c1', 3), marked('c1-b', 1), sleeper({})];
  const ends = [old, paused].map((child) => new Promise((resolve) => child.once('exit', resolve)));
  await act(holdingOf(folder, { tag: 'fedcba', id: 'c1', generation: 3 }), 'take', {
    folder: `${folder}/none`,
  });
  await Promise.all(ends);
  t.same(
    [old, paused].map((child) => child.signalCode),
    ['SIGKILL', 'SIGKILL'],
  );
  for (const child of others) t.equal(child.exitCode ?? child.signalCode, null);
});

t.test('processes of a cluster are known by mark, command line and owner', (t) => {
  const process = (pid: number, about: Partial<HostProcess>): HostProcess => ({
    pid,
    uid: 0,
    command: [],
    environment: [],
    ...about,
  });
  const all = [
    process(1, { environment: ['INFRABED_CLUSTER=abcdef-c1:7'] }),
    process(2, { environment: ['INFRABED_CLUSTER=abcdef-c1-b:9'] }),
    process(3, { command: ['/bin/sh', '/s/clusters/c1/nodes/node0'] }),
    process(4, { command: ['/bin/sh', '/s/clusters/c10'] }),
    process(5, { uid: 65536 * 3 + 1000 }),
    process(6, { environment: ['INFRABED_CLUSTER=012345-c1:7', 'INFRABED_CLUSTER=abcdef-../x:7'] }),
  ];
  const cluster = { tag: 'abcdef', id: 'c1', folder: '/s/clusters/c1', uidBase: 65536 * 3 };
  t.same(processesOf(all, cluster), [1, 3, 5]);
  t.same(
    [...markedGenerations(all, 'abcdef')],
    [
      ['c1', 7],
      ['c1-b', 9],
    ],
  );
  t.end();
});

t.test('power acts are read back in their order, and there are none before the first', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-power-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  t.same(await powerActs(folder), []);
  const line = { atMs: 1, cluster: 'c1', node: 'node0', generation: 2, act: 'on', state: 'begin' };
  const lines = [line, { ...line, state: 'done' }];
  writeFileSync(join(folder, 'power.log'), lines.map((one) => `${JSON.stringify(one)}\n`).join(''));
  t.same(await powerActs(folder), lines);
});
