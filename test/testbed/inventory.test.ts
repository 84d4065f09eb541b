/** Inventories: what a file says, all that can be wrong with it, secrets by reference. */
import t from 'tap';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { redactor } from '../../src/core/log.js';
import { asset } from '../../src/core/paths.js';
import {
  embeddedSite,
  formatProblem,
  parseInventory,
  validateAgainst,
  validateInventory,
} from '../../src/testbed/inventory/inventory.js';
import { resolveSecret } from '../../src/testbed/inventory/secret.js';
import { expandNames, parseAddress, parseMac, parseSize } from '../../src/testbed/inventory/values.js';

const problems = (text: string): string[] => validateInventory(text, 'lab.yaml').map(formatProblem);

t.test('the inventories that come with infrabed', async (t) => {
  const site = await embeddedSite();
  t.equal(site.nodes.length, 8);
  t.match(site, { name: 'local', nodes: [{ name: 'local/n01', backend: 'container' }] });
  t.equal(site.nodes.at(-1)!.name, 'local/n08');

  const path = asset('inventory/cloudlab-wisconsin.yaml');
  const text = readFileSync(path, 'utf8');
  t.strictSame(validateInventory(text, path, [site]), [], 'the example is right');
  const example = parseInventory(text, path);
  t.strictSame([...new Set(example.nodes.map((node) => node.backend))], ['cloudlab', 'metal']);
});

t.test('an entry of several nodes is dealt out, and the defaults fill in what it does not say', (t) => {
  const site = parseInventory(
    `
name: lab
description: Two racks
defaults:
  backend: metal
  power: {driver: ipmi, user: admin, password: {env: BMC}}
  cpus: 8
  bmc: {firmware: "1.2"}
  tags: [all, rack1]
nodes:
  - name: n[09-10]
    power: {address: [10.0.0.9, "2001:DB8:0::1"], user: other}
    memory: 64GiB
    disks:
      - {serial: [S9, S10], size: 480GB, role: os}
      - {wwn: [W9, W10], role: data}
    nics:
      - {mac: [AA-BB-CC-00-00-09, aabb.cc00.0010], role: control, speed: 10Gb/s}
    tags: [rack1, ssd]
  - {name: box, backend: container, cpus: 2}
`,
    'lab.yaml',
  );
  const password = { env: 'BMC' };
  t.strictSame(site, {
    name: 'lab',
    description: 'Two racks',
    nodes: [
      {
        name: 'lab/n09',
        backend: 'metal',
        power: { driver: 'ipmi', address: '10.0.0.9', user: 'other', password },
        cpus: 8,
        memoryBytes: 64 * 2 ** 30,
        disks: [
          { serial: 'S9', sizeBytes: 480e9, role: 'os' },
          { wwn: 'W9', role: 'data' },
        ],
        nics: [{ mac: 'aa:bb:cc:00:00:09', role: 'control', speedMbps: 10_000 }],
        bmcFirmware: '1.2',
        tags: ['all', 'rack1', 'ssd'],
      },
      {
        name: 'lab/n10',
        backend: 'metal',
        power: { driver: 'ipmi', address: '2001:db8::1', user: 'other', password },
        cpus: 8,
        memoryBytes: 64 * 2 ** 30,
        disks: [
          { serial: 'S10', sizeBytes: 480e9, role: 'os' },
          { wwn: 'W10', role: 'data' },
        ],
        nics: [{ mac: 'aa:bb:cc:00:00:10', role: 'control', speedMbps: 10_000 }],
        bmcFirmware: '1.2',
        tags: ['all', 'rack1', 'ssd'],
      },
      { name: 'lab/box', backend: 'container', cpus: 2, tags: ['all', 'rack1'] },
    ],
  });
  t.end();
});

t.test('all problems come at once, each with line, key, fault and fix', (t) => {
  const found = validateInventory(
    `name: Lab
colour: red
defaults:
  backend: metal
  power: {driver: ipmi, user: root, password: correct-horse}
  cpus: many
nodes:
  - name: n[3-1]
  - name: n[01-02]
    power: {address: 10.0.0.300}
    nics:
      - {mac: "00:11:22:33:44:5g", role: control, spede: 10}
    disks: [{serial: 123, role: data}]
  - name: n02
    backend: contaner
    nics: [{role: x}]
`,
    'lab.yaml',
  );
  const told = found.map(({ line, key }) => [line, key]);
  t.strictSame(told, [
    [1, 'name'],
    [2, 'colour'],
    [5, 'defaults.power.password'],
    [6, 'defaults.cpus'],
    [8, 'nodes[0].name'],
    [10, 'nodes[1].power.address'],
    [12, 'nodes[1].nics[0].mac'],
    [12, 'nodes[1].nics[0].spede'],
    [13, 'nodes[1].disks[0].serial'],
    [14, 'nodes[2].name'],
    [15, 'nodes[2].backend'],
    [16, 'nodes[2].nics[0]'],
  ]);
  const text = found.map(formatProblem).join('\n');
  t.match(text, /lab\.yaml:12: .*did you mean "speed"\?/);
  t.match(text, /contain.*did you mean|did you mean "container"/);
  t.match(text, /lab\.yaml:5: .*secret must not stand in the file\. .*\{env: NAME\}/);
  t.match(text, /lab\.yaml:14: .*n02 stands there twice \(line 9\)/);
  t.match(text, /mac is missing/);
  t.notMatch(text, /correct-horse/, 'a secret in clear is not shown again');
  t.ok(found.every(({ what, fix }) => what !== '' && fix.endsWith('.')));
  t.throws(() => parseInventory('name: x', 'lab.yaml'), {
    code: 'IB_SITE_INVALID',
    message: /lab\.yaml:1: nodes is missing/,
    details: { problems: [{ line: 1 }] },
  });
  t.end();
});

t.test('what only one machine can have is claimed once', (t) => {
  const file = (site: string, address: string, mac: string, serial: string): string => `
name: ${site}
defaults: {backend: metal, power: {driver: ipmi, user: u, password: {env: P}}}
nodes:
  - name: a
    power: {address: ${address}}
    nics: [{mac: "${mac}", role: control}]
    disks: [{serial: "${serial}", role: os}]
`;
  const one = parseInventory(file('one', '10.0.0.1', '02:00:00:00:00:01', 'S1'), 'one.yaml');
  const more = `${file('two', '10.0.0.2', '02:00:00:00:00:02', 'S2')}
  - name: b
    power: {address: 10.0.0.2}
    nics: [{mac: 0200.0000.0002, role: control}, {mac: 02-00-00-00-00-03, role: x}, {mac: "020000000003", role: y}]
    disks: [{serial: s2, role: os}, {wwn: naa.5000c500a, role: data}, {wwn: "0x5000C500A", role: data}]
`;
  t.strictSame(
    validateInventory(more, 'two.yaml', [one]).map(({ key, what }) => [key, what]),
    [
      ['nodes[1].power.address', 'the BMC address 10.0.0.2 is already that of a (line 6)'],
      ['nodes[1].nics[0].mac', 'the MAC address 02:00:00:00:00:02 is already that of a (line 7)'],
      ['nodes[1].nics[2].mac', 'the MAC address 02:00:00:00:00:03 is already that of b (line 12)'],
      ['nodes[1].disks[0].serial', 'the disk serial s2 is already that of a (line 8)'],
      ['nodes[1].disks[2].wwn', 'the disk WWN 5000c500a is already that of b (line 13)'],
    ],
  );
  const same = file('two', '10.0.0.1', '02-00-00-00-00-01', 's1');
  const between = validateInventory(same, 'two.yaml', [one]);
  t.match(
    between.map(formatProblem),
    [/BMC address 10\.0\.0\.1 .* one\/a/, /MAC address .* one\/a/, /disk serial .* one\/a/],
    'between sites too',
  );
  const two = parseInventory(same, 'two.yaml');
  t.equal(validateAgainst(two, [one]).length, 3);
  t.strictSame(validateAgainst(two, [two]), [], 'a site that comes again is itself');
  t.end();
});

t.test('what is wrong between keys is named', (t) => {
  const cases: [string, RegExp][] = [
    ['nodes: [{name: a}]', /nodes\[0\]: the node has no backend/],
    ['nodes: [{name: a, backend: metal}]', /a metal node needs a way to switch it/],
    [
      'nodes: [{name: a, backend: metal, power: {driver: ipmi, user: u}}]',
      /needs address:.*\n.*needs password:/,
    ],
    ['nodes: [{name: a, backend: container, power: {driver: libvirt}}]', /no power supply of its own/],
    [
      'nodes: [{name: "n[1-3]", backend: libvirt, nics: [{mac: "02:00:00:00:00:01", role: x}]}]',
      /1 value for 3 nodes/,
    ],
    [
      'nodes: [{name: a, backend: libvirt, disks: [{role: os, size: 1TB}]}]',
      /nothing tells this disk from others/,
    ],
    [
      'defaults: {power: {driver: ipmi, address: 10.0.0.1}}\nnodes: [{name: a, backend: libvirt}]',
      /"address" is not a key here\. The keys here are driver, user, password/,
    ],
    ['nodes: [{name: a, backend: libvirt, memory: 12 gigs}]', /this is no size/],
    [
      'nodes: [{name: a, backend: libvirt, power: {driver: ipmi, address: 1.2.3.4, user: u, password: {file: relative}}}]',
      /password.*\{file: \/absolute\/path\}/,
    ],
  ];
  for (const [text, message] of cases) t.match(problems(`name: lab\n${text}`).join('\n'), message, text);
  t.end();
});

t.test('anchors and aliases are followed, and a bomb of them is refused', (t) => {
  const shared = `
name: lab
nodes:
  - {name: a, <<: &one {backend: libvirt, memory: &m 8GiB}}
  - {name: b, <<: *one}
  - {name: c, backend: libvirt, memory: *m}
`;
  const bytes = parseInventory(shared, 'lab.yaml').nodes.map((node) => node.memoryBytes);
  t.strictSame(bytes, [8 * 2 ** 30, 8 * 2 ** 30, 8 * 2 ** 30]);
  const names = Array.from(
    { length: 3000 },
    (_, index) => `  - {name: n${String(index)}, power: *p, backend: libvirt}\n`,
  );
  const many = `name: lab\ndefaults: {power: &p {driver: libvirt}}\nnodes:\n${names.join('')}`;
  t.strictSame(problems(many), [], 'thousands of plain aliases are fine');
  const lines = Array.from({ length: 9 }, (_, index) => {
    const below = index === 0 ? 'x' : `*a${String(index - 1)}`;
    return `a${String(index)}: &a${String(index)} [${Array.from({ length: 10 }, () => below).join(', ')}]`;
  });
  t.match(problems(lines.join('\n')), [/aliases stand for more than/]);
  t.match(problems('name: &x [*x]\nnodes: [*x]'), [/text/, /table/], 'one that holds itself too');
  t.end();
});

t.test('what is no YAML at all is told with its line', (t) => {
  t.match(problems(': : :'), [/lab\.yaml:1: /]);
  t.match(problems('name: a\nname: b\nnodes: []'), [/lab\.yaml:2: Map keys must be unique/]);
  t.match(problems(''), [/lab\.yaml: this is not a table of keys/]);
  t.match(problems('nodes: [*q]'), [/alias .*q/]);
  t.notMatch(problems('power: {password: correct-horse').join(), /correct-horse/);
  t.end();
});

t.test('no text breaks validation, and what it finds is what parsing refuses', (t) => {
  const word = fc.constantFrom(
    'name',
    'nodes',
    'n[01-02]',
    'backend',
    'metal',
    'power',
    'mac',
    '{',
    '}',
    '[',
    ']',
    ': ',
    '- ',
    '\n',
    '\n  ',
    '&a ',
    '*a',
    '<<',
    'null',
    '1',
    '"',
    ',',
  );
  const text = fc.array(word, { maxLength: 40 }).map((parts) => parts.join(''));
  fc.assert(
    fc.property(text, (input) => {
      const found = validateInventory(input, 'x');
      let refused = false;
      try {
        parseInventory(input, 'x');
      } catch {
        refused = true;
      }
      return refused === found.length > 0;
    }),
    { numRuns: 500 },
  );
  t.end();
});

t.test('values', (t) => {
  t.strictSame(expandNames('n[08-10]x'), ['n08x', 'n09x', 'n10x']);
  for (const bad of ['n[3-1]', 'n[1-10]', 'n[a-b]', '-n', 'N1', 'a b', 'n[1-2][3-4]', 'n[00000-99999]', '']) {
    t.equal(expandNames(bad), undefined, bad);
  }
  t.equal(parseSize('1.2TB'), 1.2e12);
  t.equal(parseSize(1024), 1024);
  for (const bad of ['12', '12gb', '-1GB', 'GB', '0GB', 1.5, -1, null])
    t.equal(parseSize(bad), undefined, String(bad));
  for (const bad of [
    '01:00:5e:00:00:01',
    '00:00:00:00:00:00',
    '02:00:00:00:00',
    '02:00-00:00:00:00',
    'x',
    5,
  ]) {
    t.equal(parseMac(bad), undefined, String(bad));
  }
  t.equal(parseAddress('BMC-1.Example'), 'bmc-1.example');
  for (const bad of ['10.0.0.300', '10.0.0', '1.2.3.4.5', 'a_b', 'fe80::1%eth0', '', 'http://x']) {
    t.equal(parseAddress(bad), undefined, bad);
  }
  const hex = fc.integer({ min: 0, max: 255 });
  fc.assert(
    fc.property(fc.tuple(hex, hex, hex, hex, hex, hex), fc.constantFrom(':', '-', ''), (bytes, separator) => {
      const digits = [(bytes[0] & 0xfe) | 2, ...bytes.slice(1)].map((byte) =>
        byte.toString(16).padStart(2, '0'),
      );
      return parseMac(digits.join(separator).toUpperCase()) === digits.join(':');
    }),
  );
  t.end();
});

t.test('a secret is read late, kept out of records, and what is missing is told', async (t) => {
  const env = { BMC: 'correct-horse', EMPTY: '', SHORT: 'abc' };
  t.equal(await resolveSecret({ env: 'BMC' }, env), 'correct-horse');
  t.equal(redactor.redact('login correct-horse'), 'login [redacted]');
  const rejected = { code: 'IB_SITE_INVALID' };
  await t.rejects(resolveSecret({ env: 'NONE' }, env), { ...rejected, message: /\{env: NONE\} is not set/ });
  await t.rejects(resolveSecret({ env: 'EMPTY' }, env), { ...rejected, message: /is empty/ });
  await t.rejects(resolveSecret({ env: 'SHORT' }, env), { ...rejected, message: /shorter than 6/ });
  const file = join(t.testdir(), 'secret');
  await t.rejects(resolveSecret({ file }), { ...rejected, message: /cannot be read/ });
  writeFileSync(file, 'battery-staple\n', { mode: 0o644 });
  await t.rejects(resolveSecret({ file }), {
    ...rejected,
    message: /open to other users/,
    hint: /chmod 600/,
  });
  chmodSync(file, 0o600);
  t.equal(await resolveSecret({ file }), 'battery-staple');
  writeFileSync(file, 'two\nlines\n');
  await t.rejects(resolveSecret({ file }), { ...rejected, message: /more than one line/ });
});
