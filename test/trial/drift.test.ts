/** The difference of facts: what counts, what changes by itself, and the control trial's share. */
import t from 'tap';
import fc from 'fast-check';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isInfrabedError } from '../../src/core/errors.js';
import type { NodeFacts } from '../../src/testbed/facts/facts.js';
import { readControl, writeControl } from '../../src/trial/drift/control.js';
import { diffFacts } from '../../src/trial/drift/diff.js';
import type { DriftChange } from '../../src/trial/drift/drift.js';

const empty: NodeFacts = {
  version: 1,
  node: 'node0',
  gatheredAt: 0,
  durationMs: 0,
  packages: {},
  units: {},
  timers: {},
  files: {},
  users: {},
  groups: {},
  authorizedKeys: [],
  sudoers: {},
  cron: {},
  mounts: [],
  sockets: [],
  firewall: {},
  sysctls: {},
  routes: [],
  rules: [],
  links: {},
  notes: [],
};
const file = (sha256: string, mode = '0644') => ({
  type: 'file' as const,
  mode,
  owner: 'root',
  group: 'root',
  sizeBytes: 3,
  sha256,
});
const link = (mtu: number, flags: string[] = ['UP']) => ({
  mtu,
  flags,
  master: '',
  addresses: ['10.77.0.11/24'],
});
const keys = (changes: DriftChange[]): string[] =>
  changes.map((one) => `${one.change} ${one.kind}:${one.subject}`);

t.test('files added, removed, changed and with another mode are told apart', (t) => {
  const before = { ...empty, files: { '/etc/a': file('1'), '/etc/b': file('2'), '/etc/c': file('3') } };
  const after = {
    ...empty,
    files: { '/etc/a': file('1', '0600'), '/etc/b': file('9'), '/etc/d': file('4') },
  };
  const changes = diffFacts(before, after);
  t.same(keys(changes), [
    'changed file:/etc/a',
    'changed file:/etc/b',
    'removed file:/etc/c',
    'added file:/etc/d',
  ]);
  t.match(changes[0], { before: /0644 root:root/, after: /0600 root:root/, node: 'node0' });
  t.end();
});

t.test('what changes by itself is no drift', (t) => {
  const before: NodeFacts = {
    ...empty,
    units: {
      'session-3.scope': { active: 'active' },
      'logrotate.service': { enabled: 'static', active: 'inactive' },
      'cron.service': { enabled: 'enabled', active: 'active' },
    },
    sockets: [{ protocol: 'tcp', local: '0.0.0.0:22', processes: ['sshd'] }],
    links: { eth0: link(9000, ['UP', 'LOWER_UP', 'RUNNING']) },
    files: { '/var/lib/systemd/random-seed': file('1') },
    sysctls: { 'net.netfilter.nf_conntrack_count': '4' },
  };
  const after: NodeFacts = {
    ...empty,
    units: {
      'session-9.scope': { active: 'active' },
      'user@0.service': { enabled: 'static', active: 'active' },
      'logrotate.service': { enabled: 'static', active: 'inactive' },
      'cron.service': { enabled: 'enabled', active: 'reloading' },
      'idle.service': { active: 'inactive' },
    },
    sockets: [
      { protocol: 'tcp', local: '0.0.0.0:22', processes: ['sshd'] },
      { protocol: 'udp', local: '0.0.0.0:43121', processes: ['chronyd'] },
    ],
    links: { eth0: link(9000) },
    files: { '/var/lib/systemd/random-seed': file('2') },
    sysctls: { 'net.netfilter.nf_conntrack_count': '9' },
  };
  t.same(diffFacts(before, after), []);
  t.end();
});

t.test('every kind of change is seen, under its kind', (t) => {
  const after: NodeFacts = {
    ...empty,
    packages: { 'nmap:amd64': { version: '7', status: 'install ok installed' } },
    units: { 'evil.service': { enabled: 'enabled', active: 'active' }, 'evil.timer': { enabled: 'enabled' } },
    timers: { 'evil.timer': 'evil.service' },
    files: { '/usr/bin/systemctl': { ...file(''), sha256: undefined, stamp: '1.2' } },
    users: { eve: { uid: 0, gid: '0', home: '/root', shell: '/bin/sh', password: 'empty' } },
    groups: { eve: { gid: 7, members: [] } },
    authorizedKeys: [{ user: 'root', fingerprint: 'SHA256:x', comment: '', options: '' }],
    sudoers: { '/etc/sudoers.d/eve': ['eve ALL=ALL'] },
    cron: { '/etc/cron.d/eve': ['* * * * * root true'] },
    mounts: [{ target: '/mnt', root: '/', options: 'rw', type: 'ext4', source: '/dev/sdb' }],
    sockets: [{ protocol: 'tcp', local: '0.0.0.0:4444', processes: ['nc'] }],
    firewall: { 'inet filter': 'table inet filter {\n}' },
    sysctls: { 'net.ipv4.ip_forward': '1' },
    routes: [
      {
        family: 'inet',
        destination: 'default',
        table: 'main',
        device: 'eth0',
        gateway: '10.0.0.1',
        protocol: 'static',
        metric: 0,
        type: 'unicast',
        options: '',
      },
    ],
    links: { wg0: link(1420) },
  };
  const kinds = new Set(diffFacts(empty, after).map((change) => change.kind));
  t.same([...kinds].sort(), [
    'authorized-key',
    'cron',
    'file',
    'firewall',
    'group',
    'link',
    'mount',
    'package',
    'route',
    'socket',
    'sudoers',
    'sysctl',
    'timer',
    'unit',
    'user',
  ]);
  t.end();
});

t.test('a kind that can no longer be read is a change, not silence', (t) => {
  t.same(diffFacts(empty, { ...empty, firewall: null }), [
    {
      node: 'node0',
      kind: 'firewall',
      subject: '*',
      change: 'changed',
      before: 'can be read',
      after: 'cannot be read',
    },
  ]);
  t.same(diffFacts({ ...empty, firewall: null }, { ...empty, firewall: null }), []);
  t.end();
});

t.test('the difference of anything with itself is nothing, and turns round with its sides', (t) => {
  const facts = fc
    .dictionary(fc.stringMatching(/^\/etc\/[a-z]{1,3}$/), fc.stringMatching(/^[0-9a-f]{2}$/))
    .map((files) => ({
      ...empty,
      files: Object.fromEntries(Object.entries(files).map(([path, sha]) => [path, file(sha)])),
    }));
  fc.assert(
    fc.property(facts, facts, (a, b) => {
      if (diffFacts(a, a).length > 0) return false;
      const there = diffFacts(a, b);
      const back = diffFacts(b, a);
      return (
        there.length === back.length &&
        there.every((one, i) => one.before === back[i]?.after && one.after === back[i].before)
      );
    }),
  );
  t.end();
});

t.test('a control record is written whole, read back, and a damaged one is named', async (t) => {
  const stateDir = await mkdtemp(join(tmpdir(), 'control-'));
  t.teardown(() => rm(stateDir, { recursive: true, force: true }));
  const key = { taskHash: 'a'.repeat(64), imageHash: 'b'.repeat(64) };
  t.equal(await readControl(stateDir, key), undefined);
  const change: DriftChange = {
    node: 'n',
    kind: 'file',
    subject: '/x',
    change: 'added',
    before: null,
    after: 'y',
  };
  await writeControl(stateDir, key, [change, { ...change, after: 'z' }], 42);
  t.match(await readControl(stateDir, key), { recordedAt: 42, changes: [change] });
  const [name] = await readdir(join(stateDir, 'controls'));
  t.match(await readFile(join(stateDir, 'controls', name!), 'utf8'), /"version": 1/);
  await writeFile(join(stateDir, 'controls', name!), '{"version":');
  const error = await readControl(stateDir, key).catch((thrown: unknown) => thrown);
  t.ok(isInfrabedError(error, 'IB_STATE_DIR'));
});
