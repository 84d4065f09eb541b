/** Container nodes for real: the common suite, what an agent who is root could try on the witness, crashes, many nodes. */
import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import t from 'tap';
import { run } from '../../src/core/exec.js';
import { silentHost, type IoEvent } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir } from '../../src/core/paths.js';
import { waitFor } from '../../src/core/clock.js';
import {
  createContainerBackend,
  ImageCache,
  imageCacheDir,
} from '../../src/testbed/driver/container/index.js';
import { cgroupLayout, stateTag, supervisorMode } from '../../src/testbed/driver/container/host.js';
import { witnessNodeRoot, type DriverCluster, type NodeDriver } from '../../src/testbed/driver/driver.js';
import { driverSuite, spec } from '../testbed/driver-suite.js';
import { needsRoot } from './needs-root.js';

t.setTimeout(900_000);
needsRoot(t);
// Clusters of this test live in a folder of their own; built images are shared with everybody.
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-e2e-')));
const backend = createContainerBackend({ stateDir: state });
t.teardown(async () => {
  await backend.sweep(new Set());
  rmSync(state, { recursive: true, force: true });
});

/** Runs a shell script with the node's own programs, as an agent who is root would. */
async function asAgent(node: NodeDriver, script: string): Promise<string> {
  const result = await node.witness!.execOwn({ argv: ['/bin/sh', '-c', script] });
  if (result.exitCode !== 0) throw new Error(`${script}: ${result.stderr}`);
  return result.stdout;
}

async function sshBanner(node: NodeDriver): Promise<string> {
  return await waitFor(
    `${node.name} to answer`,
    async () => {
      try {
        const stream = await node.network.dial(22);
        const text = await new Promise<string>((resolve, reject) => {
          stream.once('data', (chunk: Buffer) => resolve(chunk.toString()));
          stream.once('error', reject);
          stream.once('end', () => reject(new Error('closed')));
        });
        stream.destroy();
        return text;
      } catch {
        return undefined;
      }
    },
    { timeoutMs: 30_000 },
  );
}

t.test('the common suite', (t) => driverSuite(t, backend, 'container'));

t.test('a node is a machine of its own', async (t) => {
  const cluster = await backend.create(spec('machine'), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node, peer] = cluster.nodes as [NodeDriver, NodeDriver];
  await Promise.all(cluster.nodes.map(sshBanner));
  const own = async (...argv: string[]): Promise<string> =>
    (await node.witness!.execOwn({ argv })).stdout.trim();
  t.equal(await own('hostname'), 'node0');
  t.equal(await own('systemctl', 'is-system-running', '--wait'), 'running');
  t.not(
    await own('cat', '/etc/machine-id'),
    (await peer.witness!.execOwn({ argv: ['cat', '/etc/machine-id'] })).stdout.trim(),
  );
  t.match(await own('cat', '/etc/ssh/ssh_host_ed25519_key.pub'), node.hostKey);
  t.match(await own('ssh-keygen', '-y', '-f', '/etc/ssh/ssh_host_ed25519_key'), node.hostKey);
  t.ok(Number((await own('cat', '/proc/uptime')).split(' ')[0]) < 60, 'uptime starts at the boot');
  t.match(await own('ip', '-br', 'address', 'show', 'eth0'), /10\.77\.0\.11\/23/);
  await asAgent(node, 'ip link set eth0 mtu 9000');
  await asAgent(peer, 'ip link set eth0 mtu 9000');
  await asAgent(node, 'ping -c 1 -W 2 -M do -s 8972 node1');
  t.rejects(asAgent(node, 'ping -c 1 -W 2 192.0.2.1'), 'there is no way out');
  await asAgent(
    node,
    'useradd -m someone && setpriv --reuid someone --regid someone --clear-groups ping -c 1 node1',
  );

  const bootId = (await node.witness!.testify()).bootId;
  await asAgent(node, 'echo stays > /var/tmp/stays; ip addr add 10.77.0.99/23 dev eth0');
  await node.witness!.execOwn({ argv: ['systemctl', 'reboot'] });
  await waitFor(
    'another boot',
    async () => {
      const now = (await node.witness!.testify()).bootId;
      return now !== null && now !== bootId ? now : undefined;
    },
    { timeoutMs: 30_000 },
  );
  await sshBanner(node);
  t.equal(await own('cat', '/var/tmp/stays'), 'stays', 'files survive a reboot');
  t.notMatch(await own('ip', '-br', 'address'), /10\.77\.0\.99/, 'run-time settings do not');
  t.match(await node.console.tail(100_000), /Reached target/, 'the console is kept');
  await asAgent(node, 'ip link set eth0 mtu 9000 && ping -c 1 -W 2 -M do -s 8972 node1');
});

t.test('nothing that root does to its programs deceives the witness', async (t) => {
  const cluster = await backend.create(spec('deceit', { nodes: ['node0'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node] = cluster.nodes as [NodeDriver];
  await sshBanner(node);
  const witness = node.witness!;
  const honest = async (what: string): Promise<void> => {
    t.match(
      await witness.exec({ argv: ['systemctl', 'is-active', 'cron'] }),
      { exitCode: 0, stdout: 'active\n' },
      what,
    );
    t.match(
      await witness.exec({ argv: ['systemctl', 'is-active', 'no-such'] }),
      { exitCode: 3, stdout: 'inactive\n' },
      what,
    );
    t.match(
      await witness.exec({ argv: ['bash', '-c', 'false; echo $?'] }),
      { exitCode: 0, stdout: '1\n', stderr: '' },
      `bash, ${what}`,
    );
    t.match(
      await witness.exec({ argv: ['python3', '-c', 'print(40+2)'] }),
      { exitCode: 0, stdout: '42\n', stderr: '' },
      `python, ${what}`,
    );
  };
  await honest('untouched');

  await asAgent(
    node,
    `
    for f in /usr/bin/systemctl /usr/bin/bash /usr/bin/python3 /usr/bin/false; do
      rm -f $f; printf '#!/bin/sh\\necho active\\nexit 0\\n' > $f; chmod 755 $f
    done`,
  );
  await honest('programs replaced');

  await asAgent(
    node,
    `
    mkdir -p /opt/evil; cp /usr/lib/x86_64-linux-gnu/libz.so.1 /opt/evil/preload.so 2>/dev/null || cp /usr/lib/*/libz.so.1 /opt/evil/preload.so
    echo garbage > /opt/evil/garbage.so; echo /opt/evil/garbage.so > /etc/ld.so.preload
    echo /opt/evil > /etc/ld.so.conf; echo broken > /etc/ld.so.cache
    rm -rf /etc/alternatives; ln -s /opt/evil /etc/alternatives
    mkdir -p /root/.local/lib/python3.11/site-packages /etc/python3.11 /etc/perl
    echo 'raise SystemExit("deceived")' > /root/.local/lib/python3.11/site-packages/usercustomize.py
    echo 'raise SystemExit("deceived")' > /etc/python3.11/sitecustomize.py
    echo 'echo deceived' > /root/.bashrc; echo 'echo deceived' > /etc/profile; echo 'BASH_ENV=/root/.bashrc' > /etc/environment`,
  );
  await honest('loader and interpreters misled');

  await asAgent(node, 'rm -f /etc/ld.so.preload && ln -s /opt/evil/garbage.so /etc/ld.so.preload');
  await honest('preload is a link');

  // Everything below runs with the pristine programs: by now the node's own are broken for good.
  const breakWith = async (script: string): Promise<void> => {
    const result = await witness.exec({ argv: ['sh', '-c', script] });
    t.equal(result.exitCode, 0, result.stderr);
  };
  await breakWith(`nsenter --help > /dev/null; rm -f /etc/hostname; true`);
  t.match(
    (await witness.exec({ argv: ['readlink', `${witnessNodeRoot}/etc/ld.so.preload`] })).stdout,
    'garbage.so',
    'the node as it is can be looked at',
  );
  t.match(
    (await witness.exec({ argv: ['cat', `${witnessNodeRoot}/usr/bin/systemctl`] })).stdout,
    'echo active',
  );
  const owner = await witness.exec({ argv: ['stat', '-c', '%U %a', '/etc/shadow', '/usr/bin/su', '/root'] });
  t.equal(owner.stdout, 'root 640\nroot 4755\nroot 700\n');
});

t.test('the witness needs neither sshd nor the dynamic loader nor /usr of the node', async (t) => {
  const cluster = await backend.create(spec('ruin', { nodes: ['node0'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node] = cluster.nodes as [NodeDriver];
  await sshBanner(node);
  const witness = node.witness!;
  await asAgent(
    node,
    'systemctl disable --now ssh 2>/dev/null; mount -t tmpfs tmpfs /etc/ssh; echo x > /etc/marker; mount --bind /etc/marker /etc/hosts',
  );
  await t.rejects(node.network.dial(22), { code: 'IB_NODE_UNREACHABLE' });
  t.match(
    await witness.exec({ argv: ['cat', '/etc/hosts'] }),
    { stdout: 'x\n' },
    'what is mounted in /etc is seen',
  );
  t.match(await witness.exec({ argv: ['ls', '-A', '/etc/ssh'] }), { exitCode: 0, stdout: '' });
  await asAgent(node, 'rm -f /usr/lib64/ld-linux* /usr/lib/x86_64-linux-gnu/ld-linux* /usr/lib/*/libc.so.6');
  t.match(await witness.execOwn({ argv: ['true'] }), { exitCode: 127 }, 'the own programs are gone');
  t.match(await witness.exec({ argv: ['systemctl', 'is-active', 'cron'] }), {
    exitCode: 0,
    stdout: 'active\n',
  });
  t.match(await witness.testify(), { power: 'on', initRunning: true, infrastructureFault: null });
  await node.power.cycle().catch(() => undefined);
  const after = await waitFor(
    'the end of the boot',
    async () => {
      const seen = await witness.testify();
      return seen.power === 'off' || !seen.initRunning ? seen : undefined;
    },
    { timeoutMs: 20_000 },
  );
  t.equal(after.infrastructureFault, null, 'a node that cannot boot any more is not our fault');
});

t.test('a command of the witness leaves nothing behind, keeps its limits and reports signals', async (t) => {
  const cluster = await backend.create(spec('limits', { nodes: ['node0'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node] = cluster.nodes as [NodeDriver];
  const witness = node.witness!;
  t.match(await witness.exec({ argv: ['sh', '-c', 'kill -SEGV $$'] }), { exitCode: null, signal: 'SIGSEGV' });
  const slow = await witness.exec({
    argv: ['sh', '-c', 'echo begin; setsid sleep 300 & sleep 300'],
    timeoutMs: 1000,
  });
  t.match(slow, { exitCode: null, timedOut: true, stdout: 'begin\n' });
  const loud = await witness.exec({ argv: ['head', '-c', '50000000', '/dev/zero'], maxOutputBytes: 1000 });
  t.match(loud, { exitCode: 0, truncated: true });
  t.equal(loud.stdout.length, 1000);
  t.match(await witness.exec({ argv: ['sh', '-c', 'setsid sleep 301 > /dev/null 2>&1 & echo done'] }), {
    exitCode: 0,
  });
  const controller = new AbortController();
  const aborted = witness.exec({ argv: ['sleep', '302'], signal: controller.signal });
  setTimeout(() => controller.abort(), 800);
  await t.rejects(aborted, { code: 'IB_CANCELLED' });
  const sleepers = await witness.exec({ argv: ['sh', '-c', 'pgrep -x sleep | wc -l'] });
  t.equal(sleepers.stdout.trim(), '0', 'no process outlives its command');
  t.match(await witness.exec({ argv: ['sh', '-c', 'echo "$A|$HOME|$PATH"; env | wc -l'], env: { A: '1' } }), {
    stdout: /^1\|\/nonexistent\|\/usr\/sbin:\/usr\/bin/,
  });
  await asAgent(node, 'setsid sleep 303 > /dev/null 2>&1 &');
  t.match(await asAgent(node, 'pgrep -x sleep | wc -l'), '1', 'what set-up starts in the background stays');
});

t.test('many bytes go through a dialed stream, both ways, with back-pressure', async (t) => {
  const cluster = await backend.create(spec('bulk', { nodes: ['node0'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node] = cluster.nodes as [NodeDriver];
  await sshBanner(node);
  await asAgent(node, 'setsid sh -c "head -c 600000000 /dev/zero | nc -N -l -p 9000" > /dev/null 2>&1 &');
  const stream = await waitFor('the sender', () => node.network.dial(9000).catch(() => undefined), {
    timeoutMs: 5000,
  });
  const startMs = Date.now();
  let sizeBytes = 0;
  for await (const chunk of stream) sizeBytes += (chunk as Buffer).length;
  t.equal(sizeBytes, 600_000_000);
  t.comment(`down: ${String(Math.round(sizeBytes / 1000 / (Date.now() - startMs)))} MB/s`);
  await asAgent(node, 'setsid sh -c "nc -l -p 9001 | wc -c > /run/count" > /dev/null 2>&1 &');
  const up = await waitFor('the receiver', () => node.network.dial(9001).catch(() => undefined), {
    timeoutMs: 5000,
  });
  const block = Buffer.alloc(1_000_000);
  const upMs = Date.now();
  for (let i = 0; i < 300; i += 1)
    if (!up.write(block)) await new Promise((resolve) => up.once('drain', resolve));
  up.end();
  up.resume();
  await waitFor(
    'the count',
    async () =>
      (await asAgent(node, 'cat /run/count 2>/dev/null || true')).trim() === '300000000' ? true : undefined,
    { timeoutMs: 30_000 },
  );
  t.comment(`up: ${String(Math.round(300_000_000 / 1000 / (Date.now() - upMs)))} MB/s`);
});

t.test('whose fault it is that a node is off can be told', async (t) => {
  const cluster = await backend.create(spec('blame', { nodes: ['node0', 'node1'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node, peer] = cluster.nodes as [NodeDriver, NodeDriver];
  await Promise.all([sshBanner(node), sshBanner(peer)]);
  const isOff = (one: NodeDriver): Promise<true> =>
    waitFor('off', async () => ((await one.power.state()) === 'off' ? true : undefined), {
      timeoutMs: 20_000,
    });
  await node.witness!.execOwn({ argv: ['systemctl', 'poweroff'] });
  await isOff(node);
  t.match(
    await node.witness!.testify(),
    { power: 'off', infrastructureFault: null },
    'a node that powers itself off',
  );
  await node.power.on();
  t.equal(await node.power.state(), 'on');
  const root = cgroupLayout().unified ?? '';
  const tag = await stateTag(state);
  const group =
    supervisorMode() === 'own'
      ? join(root, 'infrabed', `${tag}-blame`, 'node1')
      : join(root, 'infrabed.slice', `infrabed-${tag}-blame-node1.service`);
  await run('tee', [join(group, 'cgroup.kill')], { input: '1' });
  await isOff(peer);
  t.type((await peer.witness!.testify()).infrastructureFault, 'string', 'a supervisor that is gone is ours');
});

t.test("a task's own layer is built once, and a failing one says why and leaves nothing", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-layer-'));
  const cache = new ImageCache(imageCacheDir(state));
  const before = new Set((await cache.list()).map((record) => record.key));
  t.teardown(async () => {
    // Only what this test made; others may have added layers meanwhile.
    const all = await cache.list();
    await cache.prune(
      new Set(all.filter((one) => before.has(one.key) || one.name !== 'e2e-layer').map((one) => one.key)),
    );
    rmSync(folder, { recursive: true });
  });
  const script = join(folder, 'setup.sh');
  writeFileSync(join(folder, 'motd'), 'from the task\n');
  writeFileSync(script, 'set -e\ninstall -m 644 motd /etc/motd.task\nsystemctl mask cron\n');
  const layers = ['os', { name: 'e2e-layer', script }];
  // Two at once: one builds, the other waits and finds it.
  const builds: string[] = [];
  const io = {
    notify: (event: IoEvent) => {
      if (event.type === 'phase') builds.push(event.state);
    },
    ask: () => Promise.resolve(true),
  };
  const hashes = await Promise.all([backend.prepareImage(layers, io), backend.prepareImage(layers, io)]);
  t.equal(hashes[0], hashes[1]);
  t.same(builds, ['begin', 'end']);
  t.not(hashes[0], await backend.prepareImage(['os'], io));
  const cluster = await backend.create(spec('layer', { nodes: ['node0'], layers }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node] = cluster.nodes as [NodeDriver];
  await sshBanner(node);
  t.equal(await asAgent(node, 'cat /etc/motd.task'), 'from the task\n');
  t.match(await node.witness!.exec({ argv: ['systemctl', 'is-enabled', 'cron'] }), { stdout: 'masked\n' });
  t.match(await node.witness!.exec({ argv: ['cat', '/etc/motd.task'] }), { stdout: 'from the task\n' });

  writeFileSync(script, 'echo about to fail\nexit 3\n');
  await t.rejects(backend.prepareImage(layers, silentHost), {
    code: 'IB_IMAGE_BUILD',
    message: /about to fail/,
  });
  const aborted = AbortSignal.timeout(700);
  writeFileSync(script, 'sleep 304\n');
  await t.rejects(backend.prepareImage(layers, silentHost, aborted), { code: 'IB_CANCELLED' });
  t.notOk(readdirSync(imageCacheDir(state)).some((name) => name.startsWith('.building-e2e-layer')));
  t.equal((await run('pgrep', ['-fx', 'sleep 304'], { allowFailure: true })).exitCode, 1, 'nothing runs on');
});

t.test('where the kernel cannot shift owners, copies of the layers do', async (t) => {
  const shared = imageCacheDir(state);
  const own = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-shifted-')));
  process.env['INFRABED_UID_MAPPING'] = 'shifted-copy';
  process.env['INFRABED_IMAGE_CACHE'] = own;
  t.teardown(() => {
    delete process.env['INFRABED_UID_MAPPING'];
    process.env['INFRABED_IMAGE_CACHE'] = shared;
    rmSync(own, { recursive: true, force: true });
  });
  const image = await new ImageCache(shared).prepare(['os'], silentHost);
  await run('cp', ['--archive', dirname(image.roots[0]!), own]);
  const copying = createContainerBackend({ stateDir: state });
  const cluster = await copying.create(spec('shifted', { nodes: ['node0'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node] = cluster.nodes as [NodeDriver];
  await sshBanner(node);
  const argv = ['stat', '-c', '%U:%G %a', '/usr/bin/su', '/etc/shadow', '/root'];
  const expected = { exitCode: 0, stdout: 'root:root 4755\nroot:shadow 640\nroot:root 700\n' };
  t.match(await node.witness!.exec({ argv }), expected);
  t.match(await node.witness!.execOwn({ argv }), expected);
  await node.power.cycle();
  await sshBanner(node);
});

t.test(
  'after a crash of the controller a sweep leaves nothing, and nothing of others is touched',
  async (t) => {
    const foreign = spawn('sleep', ['600'], { stdio: 'ignore' });
    await run('ip', ['netns', 'add', 'ibx-test']);
    t.teardown(async () => {
      foreign.kill();
      await run('ip', ['netns', 'delete', 'ibx-test']);
    });
    const otherState = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-other-')));
    const other = createContainerBackend({ stateDir: otherState });
    const theirs = await other.create(spec('theirs', { nodes: ['node0'] }), nullJournal, silentHost);
    t.teardown(async () => {
      await theirs.destroy();
      rmSync(otherState, { recursive: true, force: true });
    });
    // A controller that is killed while its nodes come up.
    const script = new URL('crashing-controller.ts', import.meta.url).pathname;
    const crashing = spawn(process.execPath, ['--import=tsx', script, state], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await new Promise((resolve) => crashing.stdout.once('data', resolve));
    await waitFor(
      'the network',
      () =>
        existsSync('/run/netns') && readNetns().some((name) => name.endsWith('-crashed')) ? true : undefined,
      { timeoutMs: 20_000 },
    );
    crashing.kill('SIGKILL');
    await new Promise((resolve) => setTimeout(resolve, 500));
    const report = await backend.sweep(new Set());
    t.same(report.failed, []);
    t.ok(
      report.removed.some((line) => line.includes('crashed')),
      report.removed.join(' '),
    );
    const tag = await stateTag(state);
    t.notOk(readNetns().some((name) => name.includes(tag)));
    t.notOk(existsSync(join(state, 'clusters', 'crashed')));
    t.notMatch(readFileSync('/proc/self/mounts', 'utf8'), new RegExp(`${state}/`));
    t.ok(readNetns().includes('ibx-test'), 'a foreign namespace stays');
    t.equal(foreign.exitCode, null, 'a foreign process stays');
    t.equal(await theirs.nodes[0]?.power.state(), 'on', "another state folder's cluster stays");
  },
);

function readNetns(): string[] {
  return existsSync('/run/netns') ? readdirSync('/run/netns') : [];
}

t.test('a lease that was given to someone else takes the nodes from the old holder', async (t) => {
  const old = await backend.create(spec('fenced', { nodes: ['node0'] }), nullJournal, silentHost);
  await old.destroy();
  const now = await backend.create(
    spec('fenced', { nodes: ['node0'], generation: 2 }),
    nullJournal,
    silentHost,
  );
  t.teardown(() => now.destroy());
  await t.rejects(old.nodes[0]!.power.off(), { code: 'IB_LEASE_CONFLICT' });
  t.equal(await now.nodes[0]?.power.state(), 'on');
});

t.test('sixteen nodes at once come up', { timeout: 180_000 }, async (t) => {
  const nodes = Array.from({ length: 16 }, (_value, index) => `node${String(index)}`);
  const startMs = Date.now();
  const cluster: DriverCluster = await backend.create(spec('sixteen', { nodes }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const banners = await Promise.all(cluster.nodes.map(sshBanner));
  t.equal(banners.filter((banner) => banner.startsWith('SSH-2.0')).length, 16);
  t.comment(`sixteen nodes answer after ${String(Date.now() - startMs)} ms`);
});

t.test('a fork bomb stays in its node', async (t) => {
  const cluster = await backend.create(spec('bomb', { nodes: ['node0', 'node1'] }), nullJournal, silentHost);
  t.teardown(() => cluster.destroy());
  const [node, peer] = cluster.nodes as [NodeDriver, NodeDriver];
  await Promise.all(cluster.nodes.map(sshBanner));
  const layout = cgroupLayout();
  const group = join('infrabed', `${await stateTag(state)}-bomb`, 'node0', 'pids.max');
  const limits = [layout.pids, layout.unified]
    .map((root) => join(root ?? '', group))
    .filter((path) => existsSync(path));
  if (supervisorMode() === 'own')
    t.same(
      limits.map((path) => readFileSync(path, 'utf8').trim()),
      ['16384'],
    );
  // Lowered here: the real limit would take this machine a while to fill.
  for (const path of limits) await run('tee', [path], { input: '200' });
  await asAgent(node, 'for i in $(seq 400); do setsid sleep 305 > /dev/null 2>&1 & done; true').catch(
    () => undefined,
  );
  t.ok(Number((await asAgent(peer, 'pgrep -c -x sleep || true')).trim()) === 0);
  t.match(await peer.witness!.exec({ argv: ['true'] }), { exitCode: 0 });
  await node.power.off();
  t.equal(await node.power.state(), 'off');
});
