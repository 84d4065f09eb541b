/** What every cluster handle does, whatever the backend: run against the fake here, against real nodes in test/e2e. */
import { randomBytes } from 'node:crypto';
import type { Test } from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { sha256 } from '../../src/core/ids.js';
import type { Cluster } from '../../src/testbed/cluster/cluster.js';

export interface SuiteOptions {
  /** Real nodes draw a new boot_id at each boot; sshd on loopback cannot. */
  realBoots: boolean;
  /** Folder on the nodes that pristine and own programs both see. */
  scratch: string;
}

/** @param cluster with at least the nodes `node0` and `node1`, answering SSH. */
export async function clusterSuite(t: Test, cluster: Cluster, options: SuiteOptions): Promise<void> {
  const folder = `${options.scratch}/infrabed-suite-${randomBytes(4).toString('hex')}`;
  const sh = (script: string, ...words: string[]): Promise<unknown> =>
    cluster.setUp('node0', { argv: ['sh', '-ec', script, 'sh', folder, ...words] });
  await sh('mkdir "$1"');
  t.teardown(() => sh('rm -rf "$1"').catch(() => undefined));

  await t.test('exec, ssh and setUp each give exact exit status, streams and standard input', async (t) => {
    for (const way of ['exec', 'ssh', 'setUp'] as const) {
      const command = {
        argv: ['sh', '-c', 'cat; echo "$1 $NAME" >&2; exit 9', 'sh', "it's"],
        stdin: 'in',
        env: { NAME: 'a b' },
      };
      const result = await cluster[way]('node0', command);
      t.match(
        result,
        { exitCode: 9, signal: null, stdout: 'in', stderr: "it's a b\n", timedOut: false },
        way,
      );
    }
  });

  await t.test('a node that is not there is named together with those that are', async (t) => {
    t.throws(() => cluster.node('node9'), { code: 'IB_NODE_UNKNOWN', hint: /node0, node1/ });
    await t.rejects(cluster.exec('node9', { argv: ['true'] }), { code: 'IB_NODE_UNKNOWN' });
    await t.rejects(cluster.waitForSsh(['node9'], 1000), { code: 'IB_NODE_UNKNOWN' });
  });

  await t.test('read tells files with mode, owner, size, hash and content', async (t) => {
    await sh('printf "one\\ntwo\\n" >"$1/file"; chmod 4640 "$1/file"');
    t.strictSame(await cluster.read('node0', `${folder}/file`), {
      type: 'file',
      mode: '4640',
      owner: 'root',
      group: 'root',
      sizeBytes: 8,
      sha256: sha256('one\ntwo\n'),
      content: 'one\ntwo\n',
      truncated: false,
    });
    t.match(await cluster.read('node0', `${folder}/file`, 3), {
      content: 'one',
      truncated: true,
      sizeBytes: 8,
    });
  });

  await t.test('read follows no link, and opens nothing but regular files', async (t) => {
    await sh(
      'ln -s file "$1/link"; mkdir "$1/dir"; ln -s dir "$1/way"; echo x >"$1/dir/inner"; mkfifo "$1/pipe"',
    );
    t.match(await cluster.read('node0', `${folder}/link`), { type: 'symlink', target: 'file', mode: '0777' });
    t.match(await cluster.read('node0', `${folder}/way/inner`), {
      type: 'symlink',
      target: 'dir',
      at: `${folder}/way`,
    });
    t.match(await cluster.read('node0', `${folder}/dir/inner`), { type: 'file', content: 'x\n' });
    t.match(await cluster.read('node0', `${folder}/dir`), { type: 'directory' });
    t.match(await cluster.read('node0', `${folder}/pipe`), { type: 'other' });
    t.strictSame(await cluster.read('node0', `${folder}/none`), { type: 'absent' });
    t.strictSame(await cluster.read('node0', `${folder}/file/below`), { type: 'absent' });
    await t.rejects(cluster.read('node0', 'etc/passwd'), { code: 'IB_USAGE' });
  });

  await t.test('a boot is known by its boot_id, and a healthy node is reachable', async (t) => {
    t.match(await cluster.bootId('node0'), /^[0-9a-f-]{36}$/);
    t.strictSame(await cluster.standing('node0'), { standing: 'reachable' });
  });

  await t.test('a power cycle drops what ran, and the node comes back in a new boot', async (t) => {
    const before = await cluster.bootId('node1');
    const started = `${options.scratch}/infrabed-suite-${randomBytes(4).toString('hex')}`;
    const running = cluster.ssh('node1', { argv: ['sh', '-c', 'touch "$1"; exec sleep 60', 'sh', started] });
    running.catch(() => undefined);
    await waitFor('the command to start', async () => (await isThere(cluster, started)) || undefined, {
      timeoutMs: 20_000,
    });
    await cluster.power('node1').cycle();
    await t.rejects(running, { code: 'IB_NODE_UNREACHABLE' });
    await cluster.waitForSsh(['node1'], 60_000);
    await cluster.setUp('node1', { argv: ['rm', '-f', started] });
    if (options.realBoots) t.not(await cluster.bootId('node1'), before);
    t.equal((await cluster.ssh('node1', { argv: ['echo', 'back'] })).stdout, 'back\n');
  });

  await t.test('a node that we switched off is not to blame, and says so when it is used', async (t) => {
    await cluster.power('node1').off();
    t.equal(await cluster.power('node1').state(), 'off');
    t.match(await cluster.standing('node1'), { standing: 'unreachable', blame: 'infrastructure' });
    await t.rejects(cluster.ssh('node1', { argv: ['true'] }), { code: 'IB_NODE_UNREACHABLE' });
    await t.rejects(cluster.waitForSsh(['node0', 'node1'], 10_000), {
      code: 'IB_TIMEOUT',
      message: /^node1 did not/,
    });
    await cluster.power('node1').on();
    await cluster.waitForSsh(['node1'], 60_000);
  });
}

async function isThere(cluster: Cluster, path: string): Promise<boolean> {
  return (await cluster.read('node1', path)).type !== 'absent';
}
