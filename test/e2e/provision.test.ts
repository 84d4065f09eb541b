/** Layers, facts and drift on real nodes: what the playbooks leave, what a reboot changes, what nobody can hide. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir as defaultStateDir } from '../../src/core/paths.js';
import { createCluster } from '../../src/testbed/cluster/create.js';
import { imageCacheDir } from '../../src/testbed/driver/container/image-cache.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import { gatherFacts, type NodeFacts } from '../../src/testbed/facts/facts.js';
import { provision, type ProvisionOptions } from '../../src/testbed/provision/provision.js';
import { diffFacts } from '../../src/trial/drift/diff.js';

t.setTimeout(600_000);

const skip = process.getuid?.() === 0 ? false : 'container nodes need root';

t.test('container nodes', { skip }, async (t) => {
  process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(defaultStateDir());
  const stateDir = await mkdtemp(join(tmpdir(), 'provision-'));
  const owned = await createCluster({
    backend: createContainerBackend({ stateDir, clock: systemClock }),
    id: `e2e-prov-${String(process.pid)}`,
    generation: 1,
    nodes: [
      { name: 'db', roles: ['database', 'storage'] },
      { name: 'pooler', roles: ['pooler'] },
    ],
    layers: ['os', 'postgres'],
    stateDir,
    journal: nullJournal,
    io: silentHost,
  });
  t.teardown(async () => {
    await owned.destroy();
    await rm(stateDir, { recursive: true, force: true });
  });
  const { cluster } = owned;
  const options: ProvisionOptions = {
    cluster,
    layers: ['os', 'postgres'],
    controllerKey: owned.controllerKey,
    nonce: 'n0nce-1',
    workDir: stateDir,
    io: silentHost,
  };
  /** As an agent would: with the node's own programs. */
  const onNode = async (node: string, script: string): Promise<string> => {
    const result = await cluster.setUp(node, { argv: ['/bin/bash', '-euc', script], timeoutMs: 60_000 });
    if (result.exitCode !== 0) throw new Error(`${script}: ${result.stderr}`);
    return result.stdout;
  };
  const facts = (node: string): Promise<NodeFacts> => gatherFacts(cluster, node);
  const drift = (before: NodeFacts, after: NodeFacts): string[] =>
    diffFacts(before, after).map((one) => `${one.change} ${one.kind}:${one.subject}`);

  await t.test('both layers come up, and a second run changes nothing', async (t) => {
    const first = await provision(options);
    t.same(
      first.layers.map((layer) => layer.layer),
      ['os', 'postgres'],
    );
    const second = await provision(options);
    t.same(
      second.layers.flatMap((layer) => Object.values(layer.hosts).map((host) => host.changed)),
      [0, 0, 0, 0],
    );
    t.match(await cluster.read('db', '/etc/machine-info'), { content: /^DEPLOYMENT=n0nce-1$/m });
    t.match(
      await onNode(
        'db',
        'cat /sys/class/net/eth0/mtu; runuser -u postgres -- psql -XAtc "SHOW server_version_num"',
      ),
      /^9000\n15/,
    );
    t.match(
      await onNode('pooler', 'systemctl is-active pgbouncer; systemctl is-enabled pgbouncer'),
      'active\nenabled\n',
    );
  });

  await t.test('Ansible leaves no line of its modules in the journal', async (t) => {
    t.equal(await onNode('db', 'journalctl --no-pager | grep -ci ansible || true'), '0\n');
  });

  await t.test('a failing play on a node names host and reason', async (t) => {
    const playbooksDir = join(stateDir, 'playbooks');
    await mkdir(playbooksDir);
    await writeFile(
      join(playbooksDir, 'bad.yml'),
      '- hosts: pooler\n  gather_facts: false\n  tasks:\n    - name: Start it\n      ansible.builtin.systemd: {name: nosuch, state: started}\n',
    );
    const error: unknown = await provision({ ...options, layers: ['bad'], playbooksDir }).catch(
      (thrown: unknown) => thrown,
    );
    t.ok(isInfrabedError(error, 'IB_PROVISION'));
    t.match(String(error), /"Start it" failed on pooler: Could not find the requested service nosuch/);
  });

  await t.test('a node whose host key is another one is not provisioned', async (t) => {
    const imposter = {
      ...cluster,
      nodes: cluster.nodes.map((node) => ({
        ...node,
        hostKey: cluster.nodes.find((other) => other !== node)!.hostKey,
      })),
    };
    const error: unknown = await provision({ ...options, cluster: imposter }).catch(
      (thrown: unknown) => thrown,
    );
    t.match(String(error), /could not be reached/);
  });

  await t.test('a reboot by power-cycle is no drift', async (t) => {
    const before = await facts('db');
    t.same(before.notes, []);
    t.ok(before.units?.['ssh.service'], 'units are listed');
    await cluster.power('db').cycle();
    await cluster.waitForSsh(['db'], 60_000);
    t.same(drift(before, await facts('db')), [], 'units still on their way up are waited for');
  });

  await t.test('every change an administrator makes is seen under its kind', async (t) => {
    const before = await facts('pooler');
    await onNode(
      'pooler',
      [
        'useradd -m eve',
        'echo "eve ALL=(ALL) NOPASSWD: ALL" > /etc/sudoers.d/eve',
        'mkdir -p /home/eve/.ssh; cat /etc/ssh/ssh_host_ed25519_key.pub > /home/eve/.ssh/authorized_keys',
        'echo "* * * * * root true" > /etc/cron.d/eve',
        'printf "[Service]\\nExecStart=/bin/sleep 1000\\n[Install]\\nWantedBy=multi-user.target\\n" > /etc/systemd/system/eve.service',
        'systemctl daemon-reload; systemctl enable --now eve.service 2>/dev/null',
        'nft add table inet eve',
        'ip link set eth0 mtu 1400',
        'ip route add 192.0.2.0/24 via 10.77.0.1',
        'sysctl -qw net.ipv4.ip_forward=1',
        'mkdir /mnt/eve; mount -t tmpfs none /mnt/eve',
        'echo "#" >> /usr/bin/ldd',
        'systemd-run --quiet --unit=eve-port nc -lk 4444',
      ].join('\n'),
    );
    await systemClock.sleep(500);
    const changes = drift(before, await facts('pooler'));
    for (const expected of [
      'added user:eve',
      'added group:eve',
      'added sudoers:/etc/sudoers.d/eve',
      'added cron:/etc/cron.d/eve',
      'added unit:eve.service',
      'added firewall:inet eve',
      'changed link:eth0',
      'added route:inet 192.0.2.0/24 dev eth0 table main',
      'changed sysctl:net.ipv4.ip_forward',
      'added mount:/mnt/eve',
      'changed file:/usr/bin/ldd',
      'added socket:tcp/0.0.0.0:4444',
    ])
      t.ok(changes.includes(expected), expected);
    t.ok(
      changes.some((change) => change.startsWith('added authorized-key:eve SHA256:')),
      'an authorised key',
    );
  });

  await t.test('replaced programs do not hide a change', async (t) => {
    const before = await facts('pooler');
    await onNode(
      'pooler',
      'for tool in systemctl ss nft ip python3; do rm -f /usr/bin/$tool /usr/sbin/$tool; printf "#!/bin/sh\\nexit 0\\n" > /usr/bin/$tool; chmod 755 /usr/bin/$tool; done; touch /root/planted',
    );
    const after = await facts('pooler');
    t.same(after.notes, []);
    const changes = drift(before, after);
    t.ok(changes.includes('added file:/root/planted'));
    t.ok(
      changes.some((change) => change.endsWith('file:/usr/bin/systemctl')),
      'the replaced program itself is seen',
    );
    t.notOk(
      changes.some((change) => change.includes(' unit:') || change.includes(' socket:')),
      'units and sockets are still read with programs that can be trusted',
    );
  });
});
