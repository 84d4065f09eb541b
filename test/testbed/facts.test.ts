/** Facts are gathered below a root that may be hostile: links, pipes, odd names. */
import t from 'tap';
import { mkdir, symlink, writeFile, chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../../src/core/exec.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { asset } from '../../src/core/paths.js';
import { gatherFacts, parseFacts, type FactsSource, type NodeFacts } from '../../src/testbed/facts/facts.js';
import type { CommandResult } from '../../src/testbed/driver/driver.js';

const finished: CommandResult = {
  exitCode: 0,
  signal: null,
  stdout: '',
  stderr: '',
  truncated: false,
  timedOut: false,
  durationMs: 1,
};

async function factsBelow(root: string, trees: string[] = []): Promise<NodeFacts> {
  const script = asset('src/testbed/facts/gather-facts.py');
  const { stdout } = await run('python3', ['-I', script, JSON.stringify({ root, trees })]);
  return parseFacts('node0', stdout, { gatheredAt: 5, durationMs: 7 });
}

t.test('files are recorded with mode, owner and hash, and no link is followed', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'facts-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  await mkdir(join(root, 'etc/ssh'), { recursive: true });
  await mkdir(join(root, 'data'));
  await writeFile(join(root, 'etc/hostname'), 'node0\n');
  await chmod(join(root, 'etc/hostname'), 0o640);
  await writeFile(join(root, 'data/kept'), 'x');
  await symlink('/etc/shadow', join(root, 'etc/ssh/planted'));
  await symlink('/etc', join(root, 'srv'));
  await symlink('../../data', join(root, 'etc/ssh/up'));
  await run('mkfifo', [join(root, 'etc/pipe')]);
  await writeFile(Buffer.concat([Buffer.from(join(root, 'etc/')), Buffer.from([0xff, 0x61])]), 'odd');
  const facts = await factsBelow(root, ['/data']);
  t.match(facts.files['/etc/hostname'], {
    type: 'file',
    mode: '0640',
    sizeBytes: 6,
    sha256: /^[0-9a-f]{64}$/,
  });
  t.match(facts.files['/etc/ssh/planted'], { type: 'symlink', target: '/etc/shadow' });
  t.match(facts.files['/etc/pipe'], { type: 'other' }, 'a pipe is not opened');
  t.match(facts.files['/data/kept'], { type: 'file' }, 'further trees are walked');
  t.notOk(
    Object.keys(facts.files).some((path) => path.startsWith('/srv') || path.includes('/up/')),
    'neither a tree nor a folder that is a link is entered',
  );
  t.ok(
    Object.keys(facts.files).some((path) => path.startsWith('/etc/\u{fffd}')),
    'an odd name is no obstacle',
  );
});

t.test('users, keys, sudoers, cron and packages are read from the files themselves', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'facts-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(join(root, path, '..'), { recursive: true });
    await writeFile(join(root, path), text);
  };
  await write('etc/passwd', 'root:x:0:0:root:/root:/bin/bash\nbob:x:1000:1000::/home/bob:/bin/sh\n');
  await write('etc/shadow', 'root:*:19000::::::\nbob:$y$abc:19000::::::\n');
  await write('etc/group', 'root:x:0:\nsudo:x:27:bob,alice\n');
  await write(
    'root/.ssh/authorized_keys',
    '# comment\nfrom="10.0.0.1" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJvZ3Vz me@here\nssh-rsa !!bad\n',
  );
  await write('etc/sudoers.d/bob', '# as agreed\nbob ALL=(ALL) NOPASSWD: ALL\n');
  await write('var/spool/cron/crontabs/bob', '# m h\n* * * * * touch /tmp/x\n');
  await write(
    'var/lib/dpkg/status',
    'Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.2\n\nPackage: b\nStatus: deinstall ok not-installed\n',
  );
  const facts = await factsBelow(root);
  t.match(facts.users['bob'], { uid: 1000, shell: '/bin/sh', password: /^set:[0-9a-f]{12}$/ });
  t.equal(facts.users['root']?.password, 'locked');
  t.same(facts.groups['sudo'], { gid: 27, members: ['alice', 'bob'] });
  t.match(facts.authorizedKeys, [
    { user: 'root', fingerprint: /^SHA256:/, comment: 'me@here', options: 'from="10.0.0.1"' },
  ]);
  t.equal(facts.authorizedKeys.length, 1, 'a key that is none is left out');
  t.same(facts.sudoers, { '/etc/sudoers.d/bob': ['bob ALL=(ALL) NOPASSWD: ALL'] });
  t.same(facts.cron, { '/var/spool/cron/crontabs/bob': ['* * * * * touch /tmp/x'] });
  t.same(facts.packages, { 'a:amd64': { version: '1.2', status: 'install ok installed' } });
});

t.test(
  'a script that fails, hangs or prints something else is a fault of the node with a sentence',
  async (t) => {
    const source = (result: Partial<CommandResult>): FactsSource => ({
      exec: () => Promise.resolve({ ...finished, ...result }),
    });
    const failing = (result: Partial<CommandResult>): Promise<unknown> =>
      gatherFacts(source(result), 'node0').then(
        () => undefined,
        (error: unknown) => error,
      );
    for (const [result, sentence] of [
      [{ exitCode: 1, stderr: 'Traceback\nKeyError: 1\n' }, /KeyError/],
      [{ exitCode: null, timedOut: true }, /did not end in time/],
      [{ truncated: true }, /more than/],
      [{ stdout: 'hello' }, /not JSON/],
      [{ stdout: '{"files":[]}' }, /another shape/],
    ] as const) {
      const error = await failing(result);
      t.ok(isInfrabedError(error, 'IB_NODE_FAILED'));
      t.match(String(error), sentence);
    }
  },
);
