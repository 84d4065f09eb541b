/** Checkers and the power-cycle on real nodes, honest ones and such as an agent has tampered with. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { checkers } from '../../checkers/index.js';
import { systemClock } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir as defaultStateDir } from '../../src/core/paths.js';
import { evidenceSchema, type EvidenceRecord } from '../../src/record/bundle/schema.js';
import { createCluster } from '../../src/testbed/cluster/create.js';
import { imageCacheDir } from '../../src/testbed/driver/container/image-cache.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import { rebootNodes, runGate } from '../../src/trial/gate/index.js';
import { checkSchema, type CheckDefinition } from '../../src/trial/task/schema.js';

t.setTimeout(600_000);

const skip = process.getuid?.() === 0 ? false : 'container nodes need root';

t.test('container nodes', { skip }, async (t) => {
  process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(defaultStateDir());
  const stateDir = await mkdtemp(join(tmpdir(), 'checks-'));
  const owned = await createCluster({
    backend: createContainerBackend({ stateDir, clock: systemClock }),
    id: `e2e-checks-${String(process.pid)}`,
    generation: 1,
    nodes: ['node0', 'node1'].map((name) => ({ name, roles: [] })),
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
  const taskDir = join(stateDir, 'task');
  await mkdir(join(taskDir, 'tests'), { recursive: true });
  await mkdir(join(taskDir, 'checks'));

  /** As an agent would: with the node's own programs. */
  const onNode = async (node: string, script: string): Promise<void> => {
    const result = await cluster.setUp(node, { argv: ['/bin/bash', '-euc', script], timeoutMs: 60_000 });
    if (result.exitCode !== 0) throw new Error(`${script}: ${result.stderr}`);
  };
  const gate = async (
    checks: CheckDefinition[],
    rebooted?: Parameters<typeof runGate>[0]['rebooted'],
  ): Promise<EvidenceRecord[]> => {
    const records: EvidenceRecord[] = [];
    await runGate({
      moment: 'immediate',
      checks,
      cluster,
      checkers,
      taskDir,
      drift: () => Promise.resolve({ changes: [], control: [], controlRecorded: true }),
      clock: systemClock,
      signal: new AbortController().signal,
      onEvidence: (record) => void records.push(evidenceSchema.parse(record)),
      ...(rebooted === undefined ? {} : { rebooted }),
    });
    return records;
  };
  const define = (uses: string, table: object, on = 'node0'): CheckDefinition =>
    checkSchema.parse({
      id: 'x',
      gates: ['immediate'],
      uses,
      on,
      with: table,
      weight: 1,
      class: 'functional',
    });
  const verdict = async (uses: string, table: object, on = 'node0'): Promise<string> => {
    const definition = define(uses, table, on);
    const [record] = await gate([definition]);
    if (record?.outcome !== 'gathered')
      return `${String(record?.outcome)} ${record?.blame ?? ''}: ${record?.error?.message ?? ''}`;
    const checker = checkers.get(uses)!;
    const { verdict, why } = checker.judge(record.evidence as never, checker.with.parse(definition.with));
    return `${verdict}: ${why}`;
  };

  await t.test('on nodes as they are', async (t) => {
    t.match(await verdict('unit-state', { unit: 'ssh.service' }), /^pass/);
    t.match(await verdict('unit-state', { unit: 'nosuch.service' }), /^fail: .*does not exist/);
    t.match(await verdict('ping-path', { to: 'node1', count: 1 }), /^pass/);
    t.match(await verdict('ping-path', { to: 'node1', size: 20000, count: 1 }), /^fail: .*message too long/);
    t.match(await verdict('ping-path', { to: '10.77.0.250', count: 1 }), /^fail: 0 of 1/);
    t.match(await verdict('port-open', { to: 'node1', port: 22, banner: '^SSH-2.0' }), /^pass/);
    t.match(await verdict('port-open', { to: 'node1', port: 23 }), /^fail: .*refused/);
    for (const [port, expected] of [
      [22, /^pass/],
      [23, /^fail/],
    ] as const)
      t.match(await verdict('port-open', { port, from: 'controller' }), expected);
    t.match(await verdict('process-absent', { name: 'sshd' }), /^fail: process \d+ of root/);
    t.match(
      await verdict('process-absent', { command: 'processes|python3' }),
      /^pass/,
      'the look itself does not count',
    );
    t.match(await verdict('package-state', { package: 'openssh-server', min_version: '1:9' }), /^pass/);
    t.match(
      await verdict('package-state', { package: ['openssh-server', 'nosuch'] }),
      /^fail: nosuch is unknown/,
    );
    t.match(
      await verdict('file-content', { path: '/etc/hostname', equals: 'node0', mode: '0644', owner: 'root' }),
      /^pass/,
    );
    t.match(await verdict('nodes-reachable', { nodes: ['node0', 'node1'] }), /^pass/);
  });

  await t.test('files are those of the node, under /usr too, and links hide nothing', async (t) => {
    await onNode(
      'node0',
      'mkdir /usr/local/lib/x; echo a > /usr/local/lib/x/y.bak; ln -s /usr/local/lib /srv/link',
    );
    t.match(await verdict('file-content', { path: '/usr/local/lib/x/y.bak', equals: 'a' }), /^pass/);
    t.match(
      await verdict('file-absent', { path: '/srv/link/x/*.bak' }),
      /^fail: \/usr\/local\/lib\/x\/y\.bak is still there/,
    );
    t.match(await verdict('file-absent', { path: '/usr/local/**/*.orig' }), /^pass/);
  });

  await t.test('a web page, a script of the package and a foreign test', async (t) => {
    await onNode('node1', 'systemd-run --quiet --unit=web python3 -m http.server 8080 --directory /etc');
    await cluster.exec('node1', {
      argv: ['bash', '-c', 'for _ in {1..50}; do : < /dev/tcp/127.0.0.1/8080 && exit; sleep 0.1; done'],
    });
    t.match(
      await verdict('http-probe', { to: 'node1', port: 8080, path: '/hostname', body_contains: 'node1' }),
      /^pass/,
    );
    await writeFile(
      join(taskDir, 'checks/name.sh'),
      '#!/bin/bash\nprintf \'{"pass": true, "why": "%s %s"}\' "$(hostname)" "$1"\n',
    );
    t.equal(await verdict('shell', { script: 'checks/name.sh', args: ["it's"] }), "pass: node0 it's");
    await writeFile(
      join(taskDir, 'tests/test.sh'),
      'systemctl is-active ssh && echo 0.5 > /logs/verifier/reward.txt\n',
    );
    t.match(await verdict('harbor-test', {}), /^fail: .*reward 0.5, below 1/);
    t.match(
      await verdict('file-absent', { path: ['/tests', '/logs'] }),
      /^pass/,
      'it leaves nothing on the node',
    );
  });

  await t.test('PostgreSQL by its socket and over TCP', async (t) => {
    await onNode(
      'node0',
      `pg_createcluster 15 main --start -o listen_addresses='*' -- --auth-local=peer --auth-host=scram-sha-256 --no-sync >/dev/null
       echo 'host all all 10.77.0.0/24 scram-sha-256' >> /etc/postgresql/15/main/pg_hba.conf
       cd /; runuser -u postgres -- psql -qc "create role app login password 'right-one'; " -c 'select pg_reload_conf()' >/dev/null
       install -m 0600 /dev/null /root/app.env; echo PGPASSWORD=right-one > /root/app.env`,
    );
    await onNode('node1', 'echo right-one > /root/pw; echo wrong-one > /root/bad');
    const local = { database: 'postgres', user: 'postgres', as: 'postgres' };
    t.match(
      await verdict('sql-query', { ...local, query: "select 1, null, 'a b'; ", min_rows: 1 }),
      /^pass: .*\["1",null,"a b"\]/,
    );
    t.match(
      await verdict('sql-query', { ...local, query: 'select 1 where false', expect_rows: [] }),
      /^pass/,
    );
    t.match(await verdict('sql-query', { ...local, query: 'select nosuch' }), /^fail: .*nosuch/);
    const remote = {
      database: 'postgres',
      user: 'app',
      to: 'node0',
      query: 'select current_user',
      expect_rows: [['app']],
    };
    t.match(await verdict('sql-query', { ...remote, password_file: '/root/pw' }, 'node1'), /^pass/);
    t.match(
      await verdict('sql-query', { ...remote, password_file: '/root/bad' }, 'node1'),
      /^fail: .*authentication failed/,
    );
    t.match(
      await verdict('sql-query', { ...remote, password_file: '/root/app.env', password_key: 'PGPASSWORD' }),
      /^pass/,
    );
    const refusal = {
      database: 'postgres',
      user: 'app',
      to: 'node0',
      query: 'select 1',
      password_file: '/root/bad',
      expect_error: 'password authentication failed',
    };
    t.match(await verdict('sql-query', refusal, 'node1'), /^pass: refused/);
  });

  await t.test('a replaced systemctl, psql, shell or loader changes nothing that checks see', async (t) => {
    await onNode(
      'node0',
      `systemctl stop cron
       for program in /usr/bin/systemctl /usr/bin/psql /usr/lib/postgresql/15/bin/psql /usr/bin/ping /usr/bin/python3.11; do
         rm -f "$program"; printf '#!/bin/sh\\necho ActiveState=active; echo LoadState=loaded; echo UnitFileState=enabled; exit 0\\n' > "$program"
         chmod +x "$program"
       done
       echo /tmp/evil.so > /etc/ld.so.preload`,
    );
    t.match(await verdict('unit-state', { unit: 'cron.service' }), /^fail: cron.service is inactive/);
    t.match(
      await verdict('sql-query', {
        database: 'postgres',
        user: 'postgres',
        as: 'postgres',
        query: 'select nosuch',
      }),
      /^fail: the query failed/,
    );
    t.match(await verdict('ping-path', { to: '10.77.0.250', count: 1 }), /^fail/);
    t.match(await verdict('process-absent', { name: 'sshd' }), /^fail/);
  });

  await t.test(
    'a node that lets nobody in any more fails what needs a login, and nothing is an error of ours',
    async (t) => {
      await onNode('node0', 'rm /etc/ld.so.preload /usr/sbin/sshd; kill "$(cat /run/sshd.pid)"');
      t.match(
        await verdict('nodes-reachable', { nodes: ['node0', 'node1'] }),
        /^fail: node0 cannot be logged in to/,
      );
      t.match(await verdict('unit-state', { unit: 'systemd-networkd.service', enabled: 'any' }), /^pass/);
      const rebooted = await rebootNodes({
        cluster,
        nodes: ['node0', 'node1'],
        order: 'together',
        timeoutMs: 20_000,
        settleMs: 0,
        clock: systemClock,
        signal: new AbortController().signal,
      });
      t.match(rebooted, [
        { node: 'node0', outcome: 'not-back', blame: 'node' },
        { node: 'node1', outcome: 'booted' },
      ]);
      const [first, second] = await gate(
        [
          define('file-content', { path: '/etc/hostname', contains: 'node' }),
          define('process-absent', { name: 'x' }, 'node1'),
        ],
        rebooted,
      );
      t.match(first, { outcome: 'unreachable', blame: 'node' });
      t.match(second, { outcome: 'gathered' });
    },
  );
});
