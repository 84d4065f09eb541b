/** Virtual machines for real: the common suite, one machine from its start to its end, one that boots by its own disk. */
import { existsSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { run } from '../../src/core/exec.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir } from '../../src/core/paths.js';
import { createCluster, type CreateClusterOptions } from '../../src/testbed/cluster/create.js';
import { imageCacheDir } from '../../src/testbed/driver/container/index.js';
import { stateTag } from '../../src/testbed/driver/container/host.js';
import { networkNames } from '../../src/testbed/driver/container/network.js';
import { vmFolder } from '../../src/testbed/driver/libvirt/cluster-state.js';
import { hypervisorOf, virsh } from '../../src/testbed/driver/libvirt/hypervisor.js';
import { createLibvirtBackend } from '../../src/testbed/driver/libvirt/index.js';
import { driverSuite } from '../testbed/driver-suite.js';
import { needsRoot } from '../e2e/needs-root.js';
import { endOwnHypervisor, needsHypervisor } from './own-hypervisor.js';

t.setTimeout(1_800_000);
needsRoot(t);
needsHypervisor(t);
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-vm-')));
const backend = createLibvirtBackend({ stateDir: state });
const hypervisor = hypervisorOf(vmFolder(state));
t.teardown(async () => {
  await backend.sweep(new Set());
  await endOwnHypervisor(state);
  rmSync(state, { recursive: true, force: true });
});

const options = (id: string, more: Partial<CreateClusterOptions> = {}): CreateClusterOptions => ({
  backend,
  id,
  generation: 1,
  nodes: [{ name: 'node0', roles: [] }],
  layers: ['os'],
  stateDir: state,
  journal: nullJournal,
  io: silentHost,
  ...more,
});

t.test('the common suite', (t) => driverSuite(t, backend, 'vm', { hasWitness: false }));

t.test('a machine boots, is itself, survives its power switch, and leaves nothing', async (t) => {
  const owned = await createCluster(options('whole'));
  const { cluster } = owned;
  const sh = async (text: string): Promise<string> => {
    const result = await cluster.ssh('node0', { argv: ['/bin/sh', '-c', text] });
    if (result.exitCode !== 0) throw new Error(`${text}: ${result.stderr}`);
    return result.stdout.trim();
  };
  t.equal(await sh('hostname'), 'node0');
  t.match(await sh('cat /etc/machine-id'), /^[0-9a-f]{32}$/);
  t.equal(await sh('stat -c "%s %a" /etc/machine-id'), '33 444');
  t.match(await sh('ip -brief -4 address show eth0'), /UP +10\.77\.0\.11\//);
  t.equal(await sh('cat /sys/class/net/eth0/mtu'), '1500');
  t.match(await sh('systemctl is-system-running --wait || systemctl --failed'), /^running/);
  t.equal(await sh('systemd-detect-virt --vm'), (await sh('systemd-detect-virt')) || 'none');
  t.match(await cluster.console('node0').tail(20_000), /Debian|systemd|Welcome/, 'the console was kept');
  t.equal(
    await sh('ip link set eth0 mtu 9000 && ping -c 1 -M do -s 8972 -W 5 10.77.0.1 >/dev/null && echo passed'),
    'passed',
    'jumbo frames pass',
  );
  await sh('echo kept > /root/kept && sync');

  const first = await cluster.bootId('node0');
  await cluster.power('node0').reset();
  await cluster.waitForSsh(['node0'], 600_000);
  const second = await cluster.bootId('node0');
  t.not(second, first, 'a reset is a boot');
  t.equal(await sh('cat /root/kept'), 'kept');
  t.equal(await sh('cat /sys/class/net/eth0/mtu'), '1500', 'what was set at run time is gone');

  await cluster.power('node0').softOff();
  t.equal(await cluster.power('node0').state(), 'off');
  await cluster.power('node0').on();
  t.equal(await cluster.power('node0').state(), 'on');
  await owned.destroy();

  const tag = await stateTag(vmFolder(state));
  t.match(await backend.proveClean('whole', ['node0']), [{ isClean: true, method: 'vm-destroyed' }]);
  t.notMatch(await virsh(hypervisor, ['list', '--all', '--name']), 'whole');
  t.notOk((await networkNames()).some((name) => name.includes(tag)));
  t.notOk(existsSync(join(vmFolder(state), 'clusters', 'whole')));
});

t.test('a machine with disks boots by firmware and its own GRUB', async (t) => {
  const hardware = { bootsFromDisk: true, disksMiB: [64, 96], memoryMiB: 640 };
  const owned = await createCluster(options('disk', { nodes: [{ name: 'node0', roles: [], hardware }] }));
  t.teardown(() => owned.destroy());
  const sh = async (text: string): Promise<string> =>
    (await owned.cluster.ssh('node0', { argv: ['/bin/sh', '-c', text] })).stdout.trim();
  t.match(await sh('cat /proc/cmdline'), 'BOOT_IMAGE=/', 'the boot loader says which kernel it took');
  t.match(await sh('lsblk -bdno NAME,SIZE'), /vdb +67108864\nvdc +100663296/);
  t.ok(
    Number(await sh('awk "/MemTotal/{print \\$2}" /proc/meminfo')) > 520_000,
    'it has the memory asked for',
  );
});

t.test('an image that does not boot is told with the end of its console', async (t) => {
  const script = join(state, 'break', 'setup.sh');
  await run('mkdir', ['-p', join(state, 'break')]);
  writeFileSync(script, 'echo "echo No system on this disk." > /boot/grub/grub.cfg\n');
  const nodes = [{ name: 'node0', roles: [], hardware: { bootsFromDisk: true } }];
  const broken = createCluster(
    options('broken', { nodes, layers: ['os', { name: 'vm-test-broken', script }], readyTimeoutMs: 45_000 }),
  );
  await t.rejects(broken, {
    code: 'IB_TIMEOUT',
    message: /node0 did not answer/,
    hint: /No system on this disk|grub/,
  });
  t.match(await backend.proveClean('broken', ['node0']), [{ isClean: true }], 'and what was begun is gone');
});
