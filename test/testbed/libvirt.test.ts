/** What of virtual machines can be told without one: their description, their names, which hypervisor, joined backends. */
import { existsSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { run } from '../../src/core/exec.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { asset } from '../../src/core/paths.js';
import { createFakeBackend } from '../../src/testbed/driver/fake/index.js';
import { joinBackends } from '../../src/testbed/driver/joined.js';
import { domainXml, macAddress, type Domain } from '../../src/testbed/driver/libvirt/domain-xml.js';
import {
  hypervisorOf,
  isLocal,
  ownerIn,
  reachHypervisor,
} from '../../src/testbed/driver/libvirt/hypervisor.js';
import { createLibvirtBackend } from '../../src/testbed/driver/libvirt/index.js';
import { withKernel } from '../../src/testbed/driver/libvirt/root-disk.js';
import { backendFor } from '../../src/trial/run/backend-choice.js';
import { spec } from './driver-suite.js';

t.setTimeout(300_000);
const folder = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-libvirt-')));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const domain: Domain = {
  name: 'ib-abcdef-c1.node0',
  uuid: '7c5e3a2e-5d1c-4c8c-9d8b-6a1f0e1c2b3a',
  accelerator: 'tcg',
  memoryMiB: 512,
  cpus: 1,
  disks: [
    { path: '/state/a&b <"c">/root.qcow2', format: 'qcow2', serial: 'system' },
    { path: '/state/data0.qcow2', format: 'qcow2', serial: 'data0' },
    { path: '/state/data1.qcow2', format: 'qcow2', serial: 'data1', iopsSec: 12 },
  ],
  kernel: { image: '/disks/vmlinuz', initrd: '/disks/initrd.img', arguments: 'root=/dev/vda1 rw' },
  mac: macAddress(0),
  tap: 'ibv0123456789ab',
  console: { log: '/state/console.log', socket: '/state/0.tty' },
  kcs: '/state, long/0.kcs',
  events: '/state/0.qmp',
};

t.test('a machine is described as libvirt takes it', (t) => {
  const xml = domainXml(domain);
  t.match(xml, '<domain type="qemu" xmlns:qemu=');
  t.match(xml, '<kernel>/disks/vmlinuz</kernel>');
  t.match(xml, 'file="/state/a&amp;b &lt;&quot;c&quot;&gt;/root.qcow2"', 'text is escaped');
  t.match(xml, '<target dev="vdb" bus="virtio"/>', 'the second disk is the first data disk');
  t.equal(xml.split('<iotune>').length, 2, 'one disk is slow');
  t.match(
    xml,
    '<serial>data1</serial>\n<iotune>\n<total_iops_sec>12</total_iops_sec>\n</iotune>\n</disk>',
    'and slow from outside of the machine',
  );
  t.match(xml, '<mac address="52:54:00:4d:00:01"/>');
  t.match(xml, '<source mode="bind" path="/state/0.tty"/>\n<log file="/state/console.log" append="on"/>');
  t.match(xml, 'value="socket,id=bmc,path=/state,, long/0.kcs,reconnect=1"', 'as QEMU escapes a comma');
  const byDisk = domainXml({ ...domain, kernel: undefined } as unknown as Domain);
  t.match(byDisk, '<boot dev="hd"/>');
  t.notMatch(byDisk, '<kernel>');
  t.match(domainXml({ ...domain, override: 'pxe' }), '<boot dev="network"/>');
  t.notMatch(
    domainXml({ ...domain, override: 'pxe' }),
    '<kernel>',
    'a direct kernel would not ask the network',
  );
  t.match(domainXml({ ...domain, accelerator: 'kvm' }), '<cpu mode="host-passthrough"/>');
  t.end();
});

t.test('the kernel comes above the bottom layer, once', (t) => {
  t.same(withKernel(['os', 'postgres']), ['os', 'vm', 'postgres']);
  t.same(withKernel(['os', 'vm']), ['os', 'vm']);
  const own = { name: 'task', script: '/x/setup.sh' };
  t.same(withKernel(['os', own]), ['os', 'vm', own], "a task's own layer finds the kernel below it");
  t.end();
});

t.test('the hypervisor is the named one, or this machine’s, or one of our own', (t) => {
  t.same(hypervisorOf('/s/vm', { INFRABED_LIBVIRT_URI: 'qemu:///system' }), { uri: 'qemu:///system' });
  t.ok(isLocal({ uri: 'qemu:///system' }));
  t.ok(isLocal({ uri: 'qemu+unix:///system?socket=/s/vm/libvirtd/run/libvirt-sock' }));
  t.notOk(isLocal({ uri: 'qemu+ssh://root@192.0.2.1/system' }));
  t.end();
});

t.test('who runs machines is told by the hypervisor', (t) => {
  const dac = (label: string): string =>
    `<secmodel>\n<model>dac</model>\n<doi>0</doi>\n<baselabel type='kvm'>${label}</baselabel>\n</secmodel>`;
  t.same(ownerIn(dac('+64055:+103')), { uid: 64_055, gid: 103 });
  t.same(ownerIn(`<baselabel type='kvm'>system_u:system_r:svirt_t:s0</baselabel>${dac('+107:+107')}`), {
    uid: 107,
    gid: 107,
  });
  t.same(ownerIn('<capabilities/>'), { uid: 0, gid: 0 });
  t.end();
});

t.test(
  'a state folder whose paths are too long for sockets is refused before anything is made',
  async (t) => {
    const backend = createLibvirtBackend({ stateDir: join(folder, 'x'.repeat(90)) });
    await t.rejects(backend.create(spec('far', { nodes: ['node0'] }), nullJournal, silentHost), {
      code: 'IB_STATE_DIR',
      message: /serial port is too long/,
      hint: /INFRABED_STATE_DIR/,
    });
    t.notOk(existsSync(join(folder, 'x'.repeat(90))));
  },
);

t.test('a hypervisor that cannot be reached is told as such, and is never an off node', async (t) => {
  const away = { uri: 'qemu+ssh://root@192.0.2.1/system' };
  await t.rejects(reachHypervisor(away), { code: 'IB_HOST_UNFIT', message: /not on this machine/ });
  if (!existsSync('/usr/bin/virsh')) return;
  const silent = { uri: `qemu+unix:///system?socket=${join(folder, 'none')}` };
  await t.rejects(reachHypervisor(silent), {
    code: 'IB_HOST_UNFIT',
    message: /does not answer/,
    hint: /Start libvirtd/,
  });
  process.env['INFRABED_LIBVIRT_URI'] = silent.uri;
  t.teardown(() => {
    delete process.env['INFRABED_LIBVIRT_URI'];
  });
  const backend = createLibvirtBackend({ stateDir: folder });
  if (process.getuid?.() !== 0) return;
  t.match(await backend.probe(), { ok: false, code: 'IB_HOST_UNFIT' });
  await t.rejects(backend.create(spec('nowhere'), nullJournal, silentHost), { code: 'IB_HOST_UNFIT' });
  t.same(
    await backend.sweep(new Set()),
    { removed: [], failed: [] },
    'nothing was made, so nothing is asked',
  );
});

t.test('an override for one boot is for one boot, however the machine is started', async (t) => {
  const script = asset('test/testbed/paper-hypervisor.py');
  const acts = async (...words: string[]): Promise<string[]> => {
    const paper = mkdtempSync(join(folder, 'paper-'));
    const { stdout } = await run('python3', ['-I', '-S', script, paper, ...words]);
    return stdout.trim().split('\n');
  };
  const [once, always, none] = ['override=80,4', 'override=c0,4', 'override=0,0'];
  t.same((await acts('on', once, 'reset', 'reset', 'reset')).slice(2), [
    'reset running pxe 2',
    'reset running none 3',
    'reset running none 3',
  ]);
  t.same((await acts('on', once, 'off', 'on', 'off', 'on')).slice(2), [
    'off shut off None 1',
    'on running pxe 2',
    'off shut off None 2',
    'on running none 3',
  ]);
  t.same(
    (await acts('on', 'restarted', once, 'restarted', 'restarted', 'off', 'restarted')).slice(1),
    [
      'restarted running none 1',
      'override=80,4 running none 1',
      'restarted running pxe 2',
      'restarted running none 3',
      'off shut off None 3',
      'restarted shut off None 3',
    ],
    'by the system in it',
  );
  t.same(
    (await acts('on', always, 'reset', 'reset', none, 'reset')).slice(2),
    ['reset running pxe 2', 'reset running pxe 2', 'override=0,0 running pxe 2', 'reset running none 3'],
    'a persistent one stays until it is taken back',
  );
});

t.test('joined backends make with one and find, fence, sweep and prove with all', async (t) => {
  const mine = createFakeBackend();
  const other = createFakeBackend();
  const joined = joinBackends(mine, [other]);
  await other.create(spec('theirs', { nodes: ['node0'] }), nullJournal, silentHost);
  await joined.create(spec('ours', { nodes: ['node0'] }), nullJournal, silentHost);
  t.equal((await mine.open('ours', nullJournal)).id, 'ours', 'the chosen one makes');
  t.equal((await joined.open('theirs', nullJournal)).id, 'theirs');
  await joined.fence('theirs', 4);
  t.equal((await other.open('theirs', nullJournal)).generation, 4);
  const [left] = await joined.proveClean('theirs', ['node0']);
  t.match(
    left,
    { isClean: false, generation: 4 },
    'the chosen one knows nothing of it, and that proves nothing',
  );
  await joined.sweep(new Set(['ours']));
  t.match((await joined.proveClean('theirs', ['node0']))[0], { isClean: true });
  await t.rejects(joined.open('theirs', nullJournal), { code: 'IB_CLUSTER_UNKNOWN' });
  t.equal((await joined.open('ours', nullJournal)).id, 'ours', 'what is kept stays');
});

t.test('a task that needs machines gets them, and any other the cheapest', (t) => {
  const task = (type: string): Parameters<typeof backendFor>[0] =>
    ({ definition: { environment: { type } } }) as Parameters<typeof backendFor>[0];
  t.equal(backendFor(task('vm')), 'libvirt');
  t.equal(backendFor(task('vm-cluster')), 'libvirt');
  t.equal(backendFor(task('container-cluster')), 'container');
  t.end();
});
