/** The cluster handle on real container nodes: the suite that the fake is held to, limits of sshd, and what an agent may break. */
import t from 'tap';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import type { JournalEntry } from '../../src/core/journal.js';
import { createCluster } from '../../src/testbed/cluster/create.js';
import type { Cluster } from '../../src/testbed/cluster/cluster.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import { imageCacheDir } from '../../src/testbed/driver/container/image-cache.js';
import { stateDir as defaultStateDir } from '../../src/core/paths.js';
import { clusterSuite } from '../testbed/cluster-suite.js';

t.setTimeout(600_000);

const skip = process.getuid?.() === 0 ? false : 'container nodes need root';

t.test('container nodes', { skip }, async (t) => {
  // Building an image takes minutes, so that all tests share the cache of the machine.
  process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(defaultStateDir());
  // Not a test folder of tap: that is removed before the cluster in it is.
  const stateDir = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-cluster-')));
  const backend = createContainerBackend({ stateDir, clock: systemClock });
  const journal: JournalEntry[] = [];
  const owned = await createCluster({
    backend,
    id: `e2e-${String(process.pid)}`,
    generation: 1,
    nodes: ['node0', 'node1', 'node2'].map((name) => ({ name, roles: [] })),
    layers: ['os'],
    stateDir,
    journal: { record: (entry) => void journal.push(entry), flush: () => Promise.resolve() },
    io: silentHost,
  });
  t.teardown(async () => {
    await owned.destroy();
    rmSync(stateDir, { recursive: true, force: true });
  });
  const { cluster } = owned;

  await t.test('the common suite', (t) => clusterSuite(t, cluster, { realBoots: true, scratch: '/var/tmp' }));

  await t.test('thirty commands at once on one node all give their own exit status', async (t) => {
    const results = await Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        cluster.ssh('node2', { argv: ['sh', '-c', `sleep 0.2; exit ${String(index)}`] }),
      ),
    );
    t.strictSame(
      results.map((result) => result.exitCode),
      Array.from({ length: 30 }, (_, index) => index),
    );
  });

  await t.test('a command over its time is killed on the node with its children', async (t) => {
    const argv = ['sh', '-c', 'sleep 4711 & sleep 4711; true'];
    for (const way of ['ssh', 'exec', 'setUp'] as const) {
      t.match(await cluster[way]('node0', { argv, timeoutMs: 500 }), { timedOut: true, exitCode: null }, way);
      t.equal(
        (await cluster.exec('node0', { argv: ['pgrep', '-f', 'sleep 4711'] })).stdout,
        '',
        `${way}: none is left`,
      );
    }
  });

  await t.test('output over the limit is cut, whichever way it comes', async (t) => {
    const argv = ['sh', '-c', 'head -c 20000000 /dev/zero | tr "\\0" x; exit 3'];
    for (const way of ['ssh', 'exec', 'setUp'] as const) {
      const result = await cluster[way]('node0', { argv, maxOutputBytes: 5000 });
      t.match(result, { exitCode: 3, truncated: true }, way);
      t.equal(result.stdout.length, 5000, way);
    }
  });

  await t.test('reading the node outside SSH leaves no login there', async (t) => {
    const logins = async (): Promise<string> =>
      (await cluster.exec('node0', { argv: ['journalctl', '-u', 'ssh', '-o', 'cat', '--no-pager'] })).stdout;
    const before = await logins();
    await cluster.exec('node0', { argv: ['true'] });
    await cluster.setUp('node0', { argv: ['true'] });
    await cluster.read('node0', '/etc/hostname');
    t.equal(await logins(), before);
  });

  await t.test(
    'a node whose sshd was stopped for good is to blame itself, and can still be looked at',
    async (t) => {
      await cluster.setUp('node2', { argv: ['systemctl', 'disable', '--now', 'ssh.service', 'ssh.socket'] });
      const standing = await cluster.standing('node2');
      t.match(standing, {
        standing: 'unreachable',
        blame: 'node',
        testimony: { power: 'on', initRunning: true },
      });
      t.match(await cluster.read('node2', '/etc/hostname'), { content: 'node2\n' });
      await cluster.power('node2').cycle();
      await t.rejects(cluster.waitForSsh(['node2'], 8000), {
        code: 'IB_TIMEOUT',
        message: /^node2 did not answer/,
      });
      t.match(await cluster.standing('node2'), { blame: 'node' });
    },
  );

  await t.test('a node whose host key was replaced is to blame itself', async (t) => {
    await replaceHostKey(cluster, 'node1');
    await t.rejects(cluster.bootId('node1'), { code: 'IB_SSH_HOST_KEY' });
    t.match(await cluster.standing('node1'), {
      standing: 'unreachable',
      blame: 'node',
      why: /another host key/,
    });
  });

  await t.test('a node that does not boot any more is to blame itself', async (t) => {
    await cluster.setUp('node1', { argv: ['ln', '-sf', '/dev/null', '/etc/systemd/system/default.target'] });
    await cluster.setUp('node1', { argv: ['ln', '-sf', '/dev/null', '/etc/systemd/system/rescue.target'] });
    await cluster
      .power('node1')
      .cycle()
      .catch(() => undefined);
    const standing = await cluster.standing('node1');
    t.match(standing, { standing: 'unreachable', blame: 'node' });
  });

  t.ok(
    journal.some((entry) => entry.kind === 'node.exec' && entry.actor === 'controller'),
    'the commands are in the journal',
  );
});

async function replaceHostKey(cluster: Cluster, node: string): Promise<void> {
  const script =
    'rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key; systemctl restart ssh';
  const result = await cluster.setUp(node, { argv: ['sh', '-ec', script] });
  if (result.exitCode !== 0) throw new Error(`the host key could not be replaced: ${result.stderr}`);
}
