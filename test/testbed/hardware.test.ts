/** Hardware: what the script reads of a machine, and what differs from an inventory. */
import t from 'tap';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { run } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { compareHardware, parseHardware, type Hardware } from '../../src/testbed/facts/hardware.js';
import type { SiteNode } from '../../src/testbed/inventory/inventory.js';

const GiB = 2 ** 30;

const spec: SiteNode = {
  name: 'lab/a',
  backend: 'metal',
  cpus: 32,
  memoryBytes: 128 * GiB,
  disks: [
    { serial: 'OS1', sizeBytes: 480e9, role: 'os' },
    { wwn: '0x5000c500a', sizeBytes: 1.2e12, role: 'data' },
  ],
  nics: [
    { mac: '02:00:00:00:00:01', role: 'control', speedMbps: 1000 },
    { mac: '02:00:00:00:00:02', role: 'storage', speedMbps: 10_000 },
  ],
  bmcFirmware: '4.1',
  tags: [],
};

const machine: Hardware = {
  memoryBytes: 125.8 * GiB,
  cpus: 32,
  disks: [
    { name: 'sda', serial: 'os1', wwn: null, sizeBytes: 480_103_981_056 },
    { name: 'sdb', serial: 'X', wwn: 'naa.5000C500A', sizeBytes: 1_200_243_695_616 },
  ],
  nics: [
    { name: 'eno1', mac: '02:00:00:00:00:01', isCard: true, speedMbps: 1000 },
    { name: 'enp6s0', mac: '02:00:00:00:00:02', isCard: true, speedMbps: 10_000 },
    { name: 'eno2', mac: '02:00:00:00:00:0f', isCard: true, speedMbps: null },
  ],
  bmcFirmware: '4.1',
  notes: {},
};

const [osDisk, dataDisk] = machine.disks!;
const [control, storage, spare] = machine.nics!;
const mover: SiteNode = {
  name: 'lab/b',
  backend: 'metal',
  disks: [{ serial: 'B1', role: 'data' }],
  nics: [{ mac: '02:00:00:00:00:0F', role: 'control' }],
};

t.test('what a machine reports is compared with what its inventory declares, and with nothing else', (t) => {
  const table: [string, Partial<Hardware>, [string, string][]][] = [
    ['as declared, with firmware keeping some memory', {}, []],
    ['a memory module is gone', { memoryBytes: 94 * GiB }, [['memory', 'differs']]],
    ['more memory than declared', { memoryBytes: 256 * GiB }, [['memory', 'differs']]],
    ['memory unread', { memoryBytes: null }, [['memory', 'unknown']]],
    ['hyper-threading off', { cpus: 16 }, [['cpus', 'differs']]],
    ['CPUs unread', { cpus: null }, [['cpus', 'unknown']]],
    ['a disk is gone', { disks: [osDisk!] }, [['disks[0x5000c500a]', 'missing']]],
    ['disks unread', { disks: null }, [['disks', 'unknown']]],
    [
      'a disk that says nothing of itself may be the one that is missed',
      { disks: [osDisk!, { ...dataDisk!, serial: null, wwn: null }] },
      [
        ['disks[0x5000c500a]', 'unknown'],
        ['disks[sdb]', 'extra'],
      ],
    ],
    [
      'a disk too many',
      { disks: [...machine.disks!, { ...osDisk!, name: 'sdc', serial: 'NEW' }] },
      [['disks[NEW]', 'extra']],
    ],
    [
      'the disk of another node',
      { disks: [...machine.disks!, { ...osDisk!, name: 'sdc', serial: 'b1' }] },
      [['disks[b1]', 'moved']],
    ],
    [
      'another size',
      { disks: [{ ...osDisk!, sizeBytes: 240e9 }, dataDisk!] },
      [['disks[OS1].size', 'differs']],
    ],
    [
      'a size unread',
      { disks: [{ ...osDisk!, sizeBytes: null }, dataDisk!] },
      [['disks[OS1].size', 'unknown']],
    ],
    [
      'a card is gone, and that of another node is there',
      { nics: [control!, spare!] },
      [
        ['nics[02:00:00:00:00:02]', 'missing'],
        ['nics[02:00:00:00:00:0f]', 'moved'],
      ],
    ],
    [
      'a card that does not tell its own address',
      { nics: [control!, { ...storage!, mac: null }] },
      [['nics[02:00:00:00:00:02]', 'unknown']],
    ],
    ['cards unread', { nics: null }, [['nics', 'unknown']]],
    [
      'a slower link',
      { nics: [control!, { ...storage!, speedMbps: 1000 }] },
      [['nics[02:00:00:00:00:02].speed', 'differs']],
    ],
    [
      'a link that is down',
      { nics: [control!, { ...storage!, speedMbps: null }] },
      [['nics[02:00:00:00:00:02].speed', 'unknown']],
    ],
    ['other firmware', { bmcFirmware: '4.2' }, [['bmc.firmware', 'differs']]],
    [
      'no firmware told',
      { bmcFirmware: null, notes: { bmcFirmware: 'there is no /dev/ipmi0' } },
      [['bmc.firmware', 'unknown']],
    ],
  ];
  for (const [name, change, expected] of table) {
    const nics = (change.nics ?? machine.nics!).filter((nic) =>
      change.nics === undefined ? nic !== spare : true,
    );
    const reported = { ...machine, nics, ...change };
    const found = compareHardware(spec, reported, [spec, mover]);
    t.strictSame(
      found.map(({ field, kind }) => [field, kind]),
      expected,
      name,
    );
    t.ok(
      found.every(({ why }) => why.endsWith('.')),
      'each says why it matters',
    );
  }
  const nothing: Hardware = {
    memoryBytes: null,
    cpus: null,
    disks: null,
    nics: null,
    bmcFirmware: null,
    notes: {},
  };
  t.strictSame(compareHardware({ name: 'x/y', backend: 'metal' }, machine), []);
  t.strictSame(
    compareHardware({ name: 'x/y', backend: 'metal' }, nothing),
    [],
    'what is not declared is not compared',
  );
  t.strictSame(
    compareHardware(spec, nothing).map(({ kind }) => kind),
    ['unknown', 'unknown', 'unknown', 'unknown', 'unknown'],
    'of a machine that tells nothing, nothing matches',
  );
  t.match(compareHardware(spec, { ...machine, memoryBytes: 64 * GiB }), [
    { declared: '128 GiB', reported: '64 GiB' },
  ]);
  t.match(
    compareHardware(spec, { ...machine, bmcFirmware: null, notes: { bmcFirmware: 'no /dev' } })[0]!.why,
    /no \/dev/,
  );
  t.end();
});

t.test(
  'the script reads disks by serial and WWN, cards by their own address, and says what it could not read',
  async (t) => {
    const root = mkdtempSync(join(tmpdir(), 'hardware-'));
    t.teardown(() => rmSync(root, { recursive: true, force: true }));
    const files: Record<string, string | Buffer> = {
      '/proc/meminfo': 'MemTotal:       131900000 kB\nMemFree: 1 kB\n',
      '/sys/devices/system/cpu/online': '0-3,8-11\n',
      '/sys/block/sda/device/vpd_pg80': Buffer.concat([Buffer.from([0, 0x80, 0, 6]), Buffer.from('  S1  ')]),
      '/sys/block/sda/device/wwid': 'naa.5000c500a\n',
      '/sys/block/sda/device/type': '0\n',
      '/sys/block/sda/size': '937703088\n',
      '/sys/block/nvme0n1/device/serial': 'NV1   \n',
      '/sys/block/nvme0n1/wwid': 'eui.0025\n',
      '/sys/block/nvme0n1/size': '100\n',
      '/sys/block/vda/serial': 'V1\n',
      '/sys/block/vda/device/x': '',
      '/sys/block/vda/size': '8\n',
      '/sys/block/sdb/device/wwid': 't10.ATA  MODEL SERIAL\n',
      '/sys/block/sdb/dev': '8:16\n',
      '/sys/block/sdb/size': '8\n',
      '/run/udev/data/b8:16': 'N:sdb\nE:ID_SERIAL_SHORT=UD1\nE:ID_WWN=0x5000c5\n',
      '/sys/block/sr0/device/type': '5\n',
      '/sys/block/sr0/size': '4\n',
      '/sys/block/loop0/size': '100\n',
      '/sys/class/net/eno1/type': '1\n',
      '/sys/class/net/eno1/address': '02:00:00:00:00:01\n',
      '/sys/class/net/eno1/device/x': '',
      '/sys/class/net/eno1/speed': '10000\n',
      '/sys/class/net/eno2/type': '1\n',
      '/sys/class/net/eno2/address': '02:00:00:00:00:01\n',
      '/sys/class/net/eno2/bonding_slave/perm_hwaddr': '02:00:00:00:00:02\n',
      '/sys/class/net/eno2/device/x': '',
      '/sys/class/net/eno2/speed': '-1\n',
      '/sys/class/net/bond0/type': '1\n',
      '/sys/class/net/bond0/uevent': 'DEVTYPE=bond\nINTERFACE=bond0\n',
      '/sys/class/net/lo/type': '772\n',
    };
    const write = (path: string, content: string | Buffer): void => {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), content);
    };
    for (const [path, content] of Object.entries(files)) write(path, content);
    const read = async (): Promise<Hardware> => {
      const argv = ['-I', asset('src/testbed/facts/gather-hardware.py'), JSON.stringify({ root })];
      return parseHardware('a', (await run('python3', argv)).stdout);
    };
    t.strictSame(await read(), {
      memoryBytes: 131_900_000 * 1024,
      cpus: 8,
      disks: [
        { name: 'nvme0n1', serial: 'NV1', wwn: 'eui.0025', sizeBytes: 51_200 },
        { name: 'sda', serial: 'S1', wwn: 'naa.5000c500a', sizeBytes: 480_103_981_056 },
        { name: 'sdb', serial: 'UD1', wwn: '0x5000c5', sizeBytes: 4096 },
        { name: 'vda', serial: 'V1', wwn: null, sizeBytes: 4096 },
      ],
      nics: [
        { name: 'eno1', mac: '02:00:00:00:00:01', isCard: true, speedMbps: 10_000 },
        { name: 'eno2', mac: '02:00:00:00:00:02', isCard: true, speedMbps: null },
      ],
      bmcFirmware: null,
      notes: { bmcFirmware: 'there is no /dev/ipmi0' },
    });
    write('/sys/fs/cgroup/memory.max', '1073741824\n');
    t.equal((await read()).memoryBytes, GiB, 'a container has what its control group leaves it');
    for (const path of ['/proc', '/sys']) rmSync(join(root, path), { recursive: true });
    const blind = await read();
    t.match(blind, { memoryBytes: null, cpus: null, disks: null, nics: null });
    t.strictSame(Object.keys(blind.notes).sort(), ['bmcFirmware', 'cpus', 'disks', 'memoryBytes', 'nics']);
    t.throws(() => parseHardware('a', 'no json'), { code: 'IB_NODE_FAILED' });
  },
);
