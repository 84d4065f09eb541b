/** BMCs of container nodes: reached from the other nodes, and with the power and the firmware of the node in their hand. */
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { run } from '../../src/core/exec.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir } from '../../src/core/paths.js';
import { waitForBmc } from '../../src/testbed/driver/bmc/index.js';
import {
  createContainerBackend,
  imageCacheDir,
  powerActs,
} from '../../src/testbed/driver/container/index.js';
import type { DriverCluster, NodeDriver, Testimony } from '../../src/testbed/driver/driver.js';
import { spec } from '../testbed/driver-suite.js';
import { needsRoot } from './needs-root.js';

t.setTimeout(600_000);
needsRoot(t);
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-bmc-')));
const backend = createContainerBackend({ stateDir: state });
const patience = { timeoutMs: 120_000, intervalMs: 100 };
t.teardown(async () => {
  await backend.sweep(new Set());
  rmSync(state, { recursive: true, force: true });
});

const folderOf = (cluster: string, node: string): string =>
  join(state, 'clusters', cluster, 'nodes', node, 'bmc');

function reaches(node: NodeDriver, what: string, is: (testimony: Testimony) => boolean): Promise<Testimony> {
  return waitFor(
    what,
    async () => {
      const testimony = await node.witness!.testify();
      return is(testimony) ? testimony : undefined;
    },
    patience,
  );
}

const runs = (node: NodeDriver): Promise<Testimony> =>
  reaches(node, `${node.name} to run`, ({ initRunning, bootId }) => initRunning === true && bootId !== null);

t.test('a node is worked by its BMC from within the cluster', async (t) => {
  const cluster = await backend.create(spec('bmc', { nodes: ['node0', 'node1'] }), nullJournal, silentHost);
  t.teardown(() => backend.sweep(new Set()));
  const [node, peer] = cluster.nodes as [NodeDriver, NodeDriver];
  const bmc = node.bmc!;
  t.equal(bmc.address, '10.77.1.11');
  t.equal(await bmc.powerState(), 'on');
  const first = await runs(node);

  await t.test('its port answers the other node, under a name of its own', async (t) => {
    await runs(peer);
    // An RMCP presence ping, by what every node has.
    const script = `exec 3<>/dev/udp/node0-bmc/623; printf '\\x06\\x00\\xff\\x06\\x00\\x00\\x11\\xbe\\x80\\x01\\x00\\x00' >&3; timeout 20 head -c 12 <&3 | od -An -tx1`;
    const ping = await peer.witness!.execOwn({ argv: ['bash', '-c', script] });
    t.match(ping.stdout, /06 00 ff 06 00 00 11 be 40/);
  });

  await t.test('the account for the agent lies on the controller only', async (t) => {
    const { address, username, passwordFile } = node.bmcLogin!;
    t.equal(address, bmc.address);
    const argv = [
      '-I',
      'lanplus',
      '-C',
      '3',
      '-H',
      address,
      '-U',
      username,
      '-f',
      passwordFile,
      'mc',
      'info',
    ];
    const [program = '', ...args] = cluster.networkCommand(['ipmitool', ...argv]);
    t.match((await run(program, args, { allowFailure: true })).exitCode, 0);
    const password = readFileSync(passwordFile, 'utf8').trim();
    const found = await node.witness!.exec({
      argv: ['grep', '-rlF', '-D', 'skip', password, '/etc', '/root', '/run', '/var/lib'],
    });
    t.equal(found.stdout, '', 'not on the node');
  });

  await t.test('cycle boots anew, and is written down as the BMC’s', async (t) => {
    await bmc.act(['chassis', 'power', 'cycle']);
    const second = await reaches(
      node,
      'another boot',
      ({ bootId }) => bootId !== null && bootId !== first.bootId,
    );
    t.not(second.bootId, first.bootId);
    const acts = (await powerActs(state)).filter(({ via, node: name }) => via === 'bmc' && name === 'node0');
    t.same(
      acts.map(({ act, state: at }) => `${act} ${at}`),
      ['off begin', 'off done', 'on begin', 'on done'],
    );
    t.match(readFileSync(join(folderOf('bmc', 'node0'), 'requests.jsonl'), 'utf8'), /"act": "cycle".*"done"/);
  });

  await t.test('soft asks the operating system; off is nobody’s fault; on boots', async (t) => {
    await bmc.act(['chassis', 'power', 'soft']);
    const off = await reaches(node, 'the end', ({ power }) => power === 'off');
    t.equal(off.infrastructureFault, null);
    t.equal(await bmc.powerState(), 'off');
    await bmc.act(['chassis', 'power', 'on']);
    await runs(node);
    await bmc.act(['chassis', 'power', 'off']);
    await reaches(node, 'off', ({ power }) => power === 'off');
    await node.power.on();
    await runs(node);
  });

  await t.test('a boot from the network finds nothing, and holds with the power on', async (t) => {
    await bmc.setBootOverride({ device: 'pxe', persistent: true, efi: false });
    await node.power.cycle();
    const held = await node.witness!.testify();
    t.match(held, { power: 'on', initRunning: false, infrastructureFault: null });
    t.match(await node.console.tail(2000), /firmware: Network boot \(PXE\).*No operating system was started/);
    t.match(await bmc.bootOverride(), { device: 'pxe', persistent: true }, 'persistent: it stays');
    t.equal(await bmc.powerState(), 'on');
    await bmc.setBootOverride({ device: 'disk', persistent: false, efi: false });
    await bmc.act(['chassis', 'power', 'reset']);
    await runs(node);
    t.match(await bmc.bootOverride(), { device: 'none' }, 'for one boot: used up');
  });

  await t.test('a reboot by the node itself goes through the firmware, too', async (t) => {
    await bmc.setBootOverride({ device: 'pxe', persistent: false, efi: false });
    await node.witness!.execOwn({ argv: ['systemctl', 'reboot'] });
    await waitFor(
      'the firmware to hold',
      () => existsSync(join(folderOf('bmc', 'node0'), 'held')) || undefined,
      patience,
    );
    t.match(await node.witness!.testify(), { power: 'on', initRunning: false });
    await node.power.softOff();
    t.equal(await node.power.state(), 'off');
    await node.power.on();
    await runs(node);
  });

  await t.test('its supervisor comes back, and a take-over changes the password', async (t) => {
    const folder = folderOf('bmc', 'node0');
    const before = await waitForBmc(folder, patience);
    const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${String(before.pid)}/status`, 'utf8'))?.[1];
    process.kill(Number(parent), 'SIGKILL');
    await waitFor(
      'another ipmi_sim',
      async () => ((await waitForBmc(folder, patience)).pid !== before.pid ? true : undefined),
      patience,
    );
    t.equal(await bmc.powerState(), 'on');
    const old = readFileSync(join(folder, 'password'), 'utf8');
    await backend.fence('bmc', 2);
    t.not(readFileSync(join(folder, 'password'), 'utf8'), old);
    const taken = await backend.open('bmc', nullJournal);
    t.equal(await taken.nodes[0]!.bmc!.powerState(), 'on');
    await t.rejects(bmc.read(['mc', 'info']), 'the one before is refused');
    await taken.nodes[0]!.bmc!.act(['chassis', 'power', 'reset']);
    await runs(taken.nodes[0]!);
    await taken.destroy();
    const proofs = await backend.proveClean('bmc', ['node0', 'node1']);
    t.ok(proofs.every(({ isClean, parts }) => isClean && parts.some(({ what }) => what === 'bmc')));
  });
});

t.test('sixteen nodes: their BMCs take little', async (t) => {
  const names = Array.from({ length: 16 }, (_value, index) => `node${String(index)}`);
  const cluster: DriverCluster = await backend.create(
    spec('many', { nodes: names }),
    nullJournal,
    silentHost,
  );
  const all = await Promise.all(names.map((name) => waitForBmc(folderOf('many', name), patience)));
  const sims = all.map(({ pid }) => Number(pid));
  const parents = new Set(sims.map((pid) => Number(statusOf(pid, 'PPid'))));
  t.equal(parents.size, 1, 'one supervisor');
  const kib = [...parents, ...sims].reduce(
    (sum, pid) => sum + Number.parseInt(statusOf(pid, 'VmRSS'), 10),
    0,
  );
  t.comment(`${(kib / 1024).toFixed(0)} MiB resident for 16 BMCs and their supervisor`);
  t.ok(kib * 1024 < 150e6, `${String(kib)} KiB`);
  await cluster.destroy();
  t.notOk(
    sims.some((pid) => existsSync(`/proc/${String(pid)}/exe`)),
    'none runs on',
  );
  t.ok((await backend.proveClean('many', names)).every(({ isClean }) => isClean));
});

function statusOf(pid: number, name: string): string {
  const text = readFileSync(`/proc/${String(pid)}/status`, 'utf8');
  return new RegExp(`^${name}:\\s+(.*)$`, 'm').exec(text)?.[1] ?? '';
}
