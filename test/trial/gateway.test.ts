// The gateway against a real sshd and OpenSSH's own clients: what passes, what is refused, what stands on record.
import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { connect as dial } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import pLimit from 'p-limit';
import ssh2, { type Client } from 'ssh2';
import t, { type Test } from 'tap';
import { systemClock, waitFor } from '../../src/core/clock.js';
import { InfrabedError } from '../../src/core/errors.js';
import { start } from '../../src/core/exec.js';
import type { Journal, JournalEntry } from '../../src/core/journal.js';
import { ObjectStore, type StoredObject } from '../../src/record/bundle/objects.js';
import { generateKeyPair } from '../../src/testbed/ssh/keys.js';
import { startGateway, type Gateway, type GatewayOptions } from '../../src/trial/gateway/index.js';
import { SftpPackets } from '../../src/trial/gateway/sftp-packets.js';
import { LoopbackSshd } from '../testbed/loopback-sshd.js';
import { client, hostConfig, ssh, type Outcome } from './openssh.js';

const MiB = 1024 * 1024;
t.setTimeout(300_000);
const sshd = new LoopbackSshd();
await sshd.start();
t.teardown(() => sshd.remove());

interface Bench {
  gateway: Gateway;
  dir: string;
  records: JournalEntry[];
  objects: ObjectStore;
  /** ssh_config of the agent. */
  config: string;
  privateKey: string;
  of(kind: string): Record<string, unknown>[];
  content(object: unknown): Promise<Buffer>;
}

const directDir = await mkdtemp(join(tmpdir(), 'infrabed-gw-'));
t.teardown(() => rm(directDir, { recursive: true, force: true }));
const direct = join(directDir, 'config');
await writeFile(join(directDir, 'key'), sshd.user.privateKey, { mode: 0o600 });
await writeFile(join(directDir, 'known'), `[127.0.0.1]:${String(sshd.port)} ${sshd.host.publicKey}\n`);
await writeFile(
  direct,
  hostConfig(directDir, sshd.username, `HostName 127.0.0.1\n  Port ${String(sshd.port)}`),
);

async function bench(test: Test, overrides: Partial<GatewayOptions> = {}): Promise<Bench> {
  const dir = await mkdtemp(join(tmpdir(), 'infrabed-gw-'));
  const records: JournalEntry[] = [];
  const journal: Journal = { record: (entry) => void records.push(entry), flush: () => Promise.resolve() };
  const objects = await ObjectStore.open(join(dir, 'objects'));
  const agent = generateKeyPair('agent');
  const gateway = await startGateway({
    trial: 't-test',
    journal,
    objects,
    sessionsDir: join(dir, 'sessions'),
    socketDir: join(dir, 's'),
    nodes: [{ name: 'node0', connect: (signal) => sshd.connect(signal) }],
    agentPublicKey: agent.publicKey,
    clock: systemClock,
    ...overrides,
  });
  test.teardown(async () => {
    await gateway.close('the test ends');
    await rm(dir, { recursive: true, force: true });
  });
  await writeFile(join(dir, 'key'), agent.privateKey, { mode: 0o600 });
  await writeFile(join(dir, 'known'), `node0 ${gateway.hostKeyLine}\n`);
  const config = join(dir, 'config');
  const route = `ProxyCommand socat - UNIX-CONNECT:${gateway.socketPath('node0')}`;
  await writeFile(config, hostConfig(dir, 'root', route));
  return {
    gateway,
    dir,
    records,
    objects,
    config,
    privateKey: agent.privateKey,
    of: (kind) => records.filter((entry) => entry.kind === kind).map((entry) => entry.payload),
    content: (object) => readFile(join(objects.dir, (object as StoredObject).sha256)),
  };
}

/** A library's connection through the gateway, for what OpenSSH's client never does. */
async function library(on: Bench, key = on.privateKey, username = 'root'): Promise<Client> {
  const connection = new ssh2.Client();
  return new Promise((resolve, reject) => {
    connection.once('ready', () => resolve(connection)).on('error', reject);
    // A slow machine is not a refusal: hundreds may log in at once.
    connection.connect({
      sock: dial(on.gateway.socketPath('node0')),
      username,
      privateKey: key,
      readyTimeout: 120_000,
    });
  });
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

t.test('ssh through the gateway behaves as ssh without it', async (test) => {
  const on = await bench(test);
  const binary = randomBytes(3 * MiB);
  const cases: [string, string[], (Buffer | string)?][] = [
    ['output, error and status are exact', ['node0', 'echo out; echo err >&2; exit 37']],
    ['binary standard input comes back unchanged', ['node0', 'cat'], binary],
    ['input ends for the command when the client closes it', ['node0', 'cat | wc -c; echo after'], 'abc'],
    ['a command ended by a signal gives 255', ['node0', 'kill -KILL $$']],
    ['a command that is not there gives 127', ['node0', 'no-such-command-here']],
    ['environment passes as far as sshd accepts it', ['-o', 'SendEnv LC_TEST', 'node0', 'echo $LC_TEST']],
    ['environment that sshd does not accept is dropped', ['-o', 'SetEnv NOPE=1', 'node0', 'echo "[$NOPE]"']],
    [
      'a terminal has size, modes and one stream',
      ['-tt', 'node0', 'stty size; tty >/dev/null && echo tty; echo e >&2'],
    ],
    [
      'quotes, newlines and NUL-free binary in a command survive',
      ['node0', `printf '%s|' "a b" 'c"d'\necho \\x`],
    ],
    ['output after the end of input arrives', ['node0', 'cat >/dev/null; sleep 0.2; echo late'], 'x'],
    ['early end of output is seen', ['node0', 'exec >&- 2>&-; sleep 0.2; exit 5']],
    ['no command at all reads commands from input', ['-T', 'node0'], 'echo from-shell; exit 4\n'],
    ['a subsystem that sshd does not have fails', ['-s', 'node0', 'nothing']],
    [
      'large output on both streams is whole',
      ['node0', 'head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2'],
    ],
  ];
  const turns = pLimit(3);
  const results = await Promise.all(
    cases.map(([, args, input]) =>
      // sshd drops logins when more than ten are under way.
      turns(() => Promise.all([ssh(direct, args, input), ssh(on.config, args, input)])),
    ),
  );
  results.forEach(([expected, got], index) => {
    const name = cases[index]?.[0] ?? '';
    test.equal(got.code, expected.code, `${name}: status`);
    test.ok(got.stdout.equals(expected.stdout), `${name}: output`);
    test.equal(got.stderr, expected.stderr, `${name}: error`);
  });
  const { stdout } = await ssh(on.config, ['node0', 'exit 0']);
  test.equal(stdout.length, 0);
});

t.test('a command is on record with its input, output, status and time', async (test) => {
  const on = await bench(test);
  await ssh(
    on.config,
    ['-o', 'SendEnv LC_TEST', 'node0', 'bash -s'],
    'echo from-script\necho bad >&2\nexit 9\n',
  );
  const [exit] = await waitFor(
    'the record',
    () => (on.of('session.exit').length > 0 ? on.of('session.exit') : undefined),
    {
      timeoutMs: 5000,
    },
  );
  test.match(on.of('session.exec')[0], {
    session: 's0001',
    command: 'bash -s',
    env: { LC_TEST: 'passed' },
    pty: null,
  });
  test.match(exit, { session: 's0001', exitCode: 9, signal: null, endedBy: 'node', accepted: true });
  test.equal((await on.content(exit?.['stdin'])).toString(), 'echo from-script\necho bad >&2\nexit 9\n');
  test.equal((await on.content(exit?.['stdout'])).toString(), 'from-script\n');
  test.equal((await on.content(exit?.['stderr'])).toString(), 'bad\n');
  await ssh(on.config, ['node0', 'kill -TERM $$']);
  await on.gateway.close('looked at');
  test.match(on.of('session.exit')[1], { exitCode: null, signal: 'SIGTERM' });
  test.match(on.records.map((entry) => entry.kind).slice(0, 3), [
    'gateway.open',
    'connection.open',
    'session.exec',
  ]);
});

t.test('of long output the ends are kept, and the hash of all', async (test) => {
  const on = await bench(test);
  const { stdout } = await ssh(on.config, ['node0', 'seq 1 1000000']);
  await on.gateway.close('looked at');
  const kept = on.of('session.exit')[0]?.['stdout'] as StoredObject;
  test.match(kept, { sha256: sha256(stdout), sizeBytes: stdout.length, truncated: true });
  const head = await readFile(join(on.objects.dir, `${kept.sha256}.head`));
  const tail = await readFile(join(on.objects.dir, `${kept.sha256}.tail`));
  test.ok(head.equals(stdout.subarray(0, MiB)) && tail.equals(stdout.subarray(-MiB)));
});

t.test('a terminal session is an asciicast with output, input and changes of size', async (test) => {
  const on = await bench(test);
  const connection = await library(on);
  const text = await new Promise<string>((resolve, reject) => {
    let out = '';
    connection.shell({ term: 'xterm', cols: 91, rows: 27 }, (error, channel) => {
      if (error) {
        reject(error);
        return;
      }
      channel.on('data', (data: Buffer) => (out += data.toString()));
      channel.once('close', () => resolve(out));
      channel.setWindow(40, 132, 0, 0);
      channel.write('stty size; echo "w\u00e4rme"; exit\n');
    });
  });
  connection.end();
  await on.gateway.close('looked at');
  test.match(text, /40 132/);
  test.match(on.of('session.shell')[0], { command: null, pty: { term: 'xterm', columns: 91, rows: 27 } });
  const lines = (await readFile(join(on.dir, 'sessions', 's0001.cast'), 'utf8')).trimEnd().split('\n');
  const [header, ...events] = lines.map((line) => JSON.parse(line) as unknown);
  test.match(header, { version: 2, width: 91, height: 27, env: { TERM: 'xterm' } });
  const said = (code: string): string =>
    (events as [number, string, string][])
      .filter((event) => event[1] === code)
      .map((event) => event[2])
      .join('');
  test.equal(said('r'), '132x40');
  test.match(said('i'), 'stty size; echo "w\u00e4rme"; exit\n');
  test.equal(said('o'), text);
});

t.test('scp, sftp and rsync leave the same files as directly, and uploads are kept by hash', async (test) => {
  const on = await bench(test);
  const small = Buffer.from('hello, node\n');
  const large = randomBytes(5 * MiB);
  const source = join(on.dir, 'source');
  await mkdir(join(source, 'sub'), { recursive: true });
  await writeFile(join(source, 'small'), small);
  await writeFile(join(source, 'sub', 'large'), large);
  await chmod(join(source, 'small'), 0o640);
  const ways: [string, (config: string, target: string) => Promise<Outcome>][] = [
    ['scp', (config, target) => client('scp', ['-F', config, '-rp', `${source}/.`, `node0:${target}`])],
    [
      'scp -O',
      (config, target) =>
        client('scp', ['-O', '-F', config, '-rp', `${source}/small`, `${source}/sub`, `node0:${target}`]),
    ],
    [
      'rsync',
      (config, target) => client('rsync', ['-a', '-e', `ssh -F ${config}`, `${source}/`, `node0:${target}/`]),
    ],
    [
      'sftp',
      (config, target) =>
        client(
          'sftp',
          ['-F', config, '-b', '-', 'node0'],
          `mkdir ${target}/sub\nput -p ${source}/small ${target}/small\nput ${source}/sub/large ${target}/sub/large\n`,
        ),
    ],
  ];
  for (const [name, way] of ways) {
    const [here, there] = [
      join(on.dir, `${name}-direct`.replace(' ', '')),
      join(on.dir, `${name}-gw`.replace(' ', '')),
    ];
    await mkdir(here);
    await mkdir(there);
    test.equal((await way(direct, here)).code, 0, `${name} works directly`);
    const through = await way(on.config, there);
    test.equal(through.code, 0, `${name} works through the gateway: ${through.stderr}`);
    for (const file of ['small', 'sub/large']) {
      test.ok(
        (await readFile(join(here, file))).equals(await readFile(join(there, file))),
        `${name}: ${file}`,
      );
    }
    test.equal(
      (await stat(join(there, 'small'))).mode,
      (await stat(join(here, 'small'))).mode,
      `${name}: mode`,
    );
  }
  const back = await client('scp', ['-F', on.config, `node0:${source}/sub/large`, join(on.dir, 'back')]);
  test.equal(back.code, 0);
  test.ok((await readFile(join(on.dir, 'back'))).equals(large), 'scp back');
  await on.gateway.close('looked at');
  const uploads = on.of('sftp.file').filter((file) => file['writtenBytes'] === large.length);
  test.equal(uploads.length, 2, 'scp and sftp');
  for (const upload of uploads) test.match(upload['content'], { sha256: sha256(large), truncated: false });
  test.ok((await on.content(uploads[0]?.['content'])).equals(large), 'an upload is kept whole');
  test.ok(
    on.of('sftp.file').some((file) => file['readBytes'] === large.length),
    'the download is counted',
  );
  test.notOk(
    (await readdir(on.objects.dir)).some((name) => name.startsWith('.')),
    'no partial object is left',
  );
});

t.test('sftp changes to files are on record, those that failed as failed', async (test) => {
  const on = await bench(test);
  const at = (name: string): string => join(on.dir, name);
  await writeFile(at('a'), 'a');
  const script = [`rename ${at('a')} ${at('b')}`, `chmod 600 ${at('b')}`, `symlink ${at('b')} ${at('c')}`]
    .concat(
      `mkdir ${at('d')}`,
      `rmdir ${at('d')}`,
      `ln ${at('b')} ${at('e')}`,
      `rm ${at('e')}`,
      `-rm ${at('none')}`,
    )
    .join('\n');
  test.equal((await client('sftp', ['-F', on.config, '-b', '-', 'node0'], `${script}\n`)).code, 0);
  await on.gateway.close('looked at');
  test.match(on.of('sftp.rename')[0], { path: at('a'), to: at('b') });
  test.match(on.of('sftp.setstat')[0], { path: at('b'), mode: '0600' });
  test.match(on.of('sftp.symlink')[0], { path: at('c'), target: at('b') });
  test.match(on.of('sftp.hardlink')[0], { path: at('b'), to: at('e') });
  test.match(
    [on.of('sftp.mkdir').length, on.of('sftp.rmdir').length, on.of('sftp.remove').length],
    [1, 1, 2],
  );
  test.match(on.of('sftp.failed'), [{ request: 'sftp.remove', path: at('none'), status: 'no such file' }]);
});

t.test('several sessions share one connection and one login on the node', async (test) => {
  const on = await bench(test);
  const mux = ['-o', 'ControlMaster=auto', '-o', `ControlPath=${join(on.dir, 'mux')}`];
  const master = start('ssh', ['-F', on.config, ...mux, '-N', 'node0'], { stdio: 'ignore' });
  await waitFor('the control socket', () => stat(join(on.dir, 'mux')).catch(() => undefined), {
    timeoutMs: 10_000,
  });
  const outcomes = await Promise.all(
    Array.from({ length: 8 }, (_, index) =>
      ssh(on.config, [...mux, 'node0', `cat; exit ${String(index)}`], `in ${String(index)}`),
    ),
  );
  outcomes.forEach((outcome, index) => {
    test.equal(outcome.code, index);
    test.equal(outcome.stdout.toString(), `in ${String(index)}`);
  });
  test.equal(on.of('connection.open').length, 1);
  test.equal(new Set(on.of('session.exec').map((payload) => payload['session'])).size, 8);
  const gone = new Promise((resolve) => master.once('exit', resolve));
  await ssh(on.config, [...mux, '-O', 'exit', 'node0']);
  await gone;
});

t.test('signals reach the node, after the end of input too', async (test) => {
  const node = new LoopbackSshd(['LogLevel DEBUG1']);
  test.teardown(() => node.remove());
  await node.start();
  const on = await bench(test, { nodes: [{ name: 'node0', connect: (signal) => node.connect(signal) }] });
  const connection = await library(on);
  await new Promise<void>((resolve, reject) => {
    connection.exec('exec sleep 1', (error, channel) => {
      if (error) {
        reject(error);
        return;
      }
      (channel as unknown as { eof(): void }).eof();
      // ssh2 itself would not send it on a channel whose input has ended.
      const inside = connection as unknown as { _protocol: { signal(id: number, name: string): void } };
      const { id } = (channel as unknown as { outgoing: { id: number } }).outgoing;
      setTimeout(() => inside._protocol.signal(id, 'TERM'), 200);
      channel.once('close', () => resolve());
      channel.resume();
    });
  });
  connection.end();
  test.match(on.of('session.signal'), [{ session: 's0001', signal: 'SIGTERM' }]);
  // sshd delivers no signal to a session of root (9.2 says so in its log), so its log is where it can be seen.
  test.match(await readFile(join(node.folder, 'log'), 'utf8'), /request signal reply 0/);
});

t.test('another key, user or method than that of the trial is refused and recorded', async (test) => {
  const on = await bench(test);
  await test.rejects(library(on, generateKeyPair('stranger').privateKey));
  await test.rejects(library(on, on.privateKey, 'admin'));
  const connection = new ssh2.Client();
  await test.rejects(
    new Promise<void>((resolve, reject) => {
      connection.once('ready', () => resolve()).on('error', reject);
      connection.connect({
        sock: dial(on.gateway.socketPath('node0')),
        username: 'root',
        password: 'hunter22',
      });
    }),
  );
  const reasons = on.of('gateway.refused').map((payload) => payload['reason']);
  test.same(new Set(reasons), new Set(['unknown-key', 'unknown-user', 'unsupported-authentication']));
  test.notMatch(JSON.stringify(on.records), /hunter22/, 'a password is never recorded');
  test.equal(on.of('connection.open').length, 0);
});

t.test('agent, port, socket and X11 forwarding are refused and recorded', async (test) => {
  const on = await bench(test);
  const socket = join(on.dir, 'forward.sock');
  const remote = await ssh(on.config, [
    '-o',
    'ExitOnForwardFailure=yes',
    '-R',
    '0:127.0.0.1:9',
    'node0',
    'true',
  ]);
  test.equal(remote.code, 255);
  await ssh(on.config, ['-o', 'ExitOnForwardFailure=yes', '-R', `${socket}:127.0.0.1:9`, 'node0', 'true']);
  const local = await ssh(on.config, [
    '-o',
    'LogLevel=INFO',
    '-W',
    `127.0.0.1:${String(sshd.port)}`,
    'node0',
  ]);
  test.not(local.code, 0);
  test.match(local.stderr, /prohibited/);
  const connection = await library(on);
  await test.rejects(
    new Promise<void>((resolve, reject) =>
      connection.openssh_forwardOutStreamLocal('/run/any.sock', (error) =>
        error ? reject(error) : resolve(),
      ),
    ),
  );
  const x11 = await new Promise<Error | undefined>((resolve) => {
    connection.exec('true', { x11: true }, (error, channel) => {
      (channel as typeof channel | undefined)?.resume();
      resolve(error);
    });
  });
  test.ok(x11, 'X11 is refused');
  connection.end();
  const reasons = new Set(on.of('gateway.refused').map((payload) => payload['reason']));
  test.same(reasons, new Set(['port-forwarding', 'socket-forwarding', 'x11-forwarding']));
});

t.test('agent forwarding is refused while the command itself runs', async (test) => {
  const on = await bench(test);
  const agent = start('ssh-agent', ['-D', '-a', join(on.dir, 'agent')], { stdio: 'ignore' });
  test.teardown(() => agent.kill());
  await waitFor('ssh-agent', () => stat(join(on.dir, 'agent')).catch(() => undefined), { timeoutMs: 5000 });
  const options = ['-o', `IdentityAgent=${join(on.dir, 'agent')}`, '-A'];
  const outcome = await ssh(on.config, [...options, 'node0', 'echo "[$SSH_AUTH_SOCK]"']);
  test.equal(outcome.stdout.toString(), '[]\n');
  test.equal(on.of('gateway.refused')[0]?.['reason'], 'agent-forwarding');
});

t.test('a command whose record cannot be written is not run', async (test) => {
  const marker = join(directDir, 'marker');
  const faults: unknown[] = [];
  const full = new InfrabedError('IB_DISK_FULL', 'No space is left for the ledger.');
  const journal: Journal = {
    record: (entry) => {
      if (entry.kind === 'session.exec') throw full;
    },
    flush: () => Promise.resolve(),
  };
  const on = await bench(test, { journal, onFault: (error) => faults.push(error) });
  const outcome = await ssh(on.config, ['node0', `touch ${marker}`]);
  test.equal(outcome.code, 255);
  test.same(faults, [full]);
  await test.rejects(stat(marker));
  test.not((await ssh(on.config, ['node0', 'true'])).code, 0, 'nothing passes from then on');
  test.same((await on.gateway.close('looked at')).faults, [full.message]);
});

t.test('the gatekeeper is asked before a command runs, and may refuse it', async (test) => {
  const asked: (string | null)[] = [];
  const on = await bench(test, {
    gatekeeper: {
      async decide({ command }) {
        asked.push(command);
        await systemClock.sleep(100);
        return command?.includes('rm -rf') ? 'refuse' : 'allow';
      },
    },
  });
  const allowed = await ssh(on.config, ['node0', 'cat; exit 3'], 'held until decided');
  test.match([allowed.code, allowed.stdout.toString()], [3, 'held until decided']);
  const marker = join(on.dir, 'marker');
  const refused = await ssh(on.config, ['node0', `touch ${marker}; rm -rf ${on.dir}/none`]);
  test.equal(refused.code, 255);
  test.match(refused.stderr, /refused, and was not run/);
  await test.rejects(stat(marker));
  test.equal(asked.length, 2);
  test.equal(on.of('gateway.refused')[0]?.['reason'], 'gatekeeper');
});

t.test('a node that does not answer fails the session as ssh would, and that is on record', async (test) => {
  const gone = new InfrabedError(
    'IB_NODE_UNREACHABLE',
    'node0 could not be reached over SSH: secret inner detail.',
  );
  const on = await bench(test, { nodes: [{ name: 'node0', connect: () => Promise.reject(gone) }] });
  const outcome = await ssh(on.config, ['-o', 'LogLevel=INFO', 'node0', 'true']);
  test.equal(outcome.code, 255);
  test.match(outcome.stderr, /node0 cannot be reached/);
  test.notMatch(outcome.stderr, /secret inner detail/);
  test.match(on.of('connection.unreachable'), [{ code: 'IB_NODE_UNREACHABLE' }]);
});

t.test('closing ends open sessions, revokes the key and leaves no socket', async (test) => {
  const on = await bench(test);
  const running = ssh(on.config, ['node0', 'echo started; exec sleep 60']);
  const shell = ssh(on.config, ['-tt', 'node0', 'exec sleep 60']);
  await waitFor('both sessions', () => on.of('session.exec').length === 2 || undefined, {
    timeoutMs: 10_000,
  });
  const before = Date.now();
  const summary = await on.gateway.close('the window is over');
  test.ok(Date.now() - before < 5000);
  test.match(summary, { connections: 2, sessions: 2, faults: [] });
  test.equal((await running).code, 255);
  test.equal((await shell).code, 255);
  test.same(
    on.of('session.exit').map((payload) => payload['endedBy']),
    ['gateway', 'gateway'],
  );
  test.equal((await ssh(on.config, ['node0', 'true'])).code, 255);
  test.equal(on.of('session.exec').length, 2);
  await test.rejects(stat(on.gateway.socketPath('node0')));
  test.equal(await on.gateway.close('again'), summary, 'closing twice is closing once');
});

t.test('five hundred sessions neither crash it nor flood the record', async (test) => {
  const on = await bench(test, { limits: { connections: 20 } });
  const attempts = Array.from({ length: 500 }, async () => {
    try {
      const connection = await library(on);
      const ended = new Promise<void>((resolve) => connection.once('close', () => resolve()));
      connection.on('error', () => undefined);
      connection.end();
      await ended;
      return true;
    } catch {
      return false;
    }
  });
  const worked = (await Promise.all(attempts)).filter(Boolean).length;
  test.ok(worked >= 20 && worked < 500, `${String(worked)} got in`);
  const outcome = await ssh(on.config, ['node0', 'echo still here']);
  test.equal(outcome.stdout.toString(), 'still here\n');
  const summary = await on.gateway.close('looked at');
  const refused = on.of('gateway.refused').filter((payload) => payload['reason'] === 'too-many-connections');
  const counted = refused.reduce((sum, payload) => sum + Number(payload['count']), 0);
  test.equal(counted, 500 - worked);
  test.equal(summary.refusals, counted);
  test.ok(refused.length < 50, `${String(refused.length)} records`);
});

t.test('sessions beyond the limit of a connection are refused with the reason', async (test) => {
  const on = await bench(test, { limits: { channelsPerConnection: 3 } });
  const connection = await library(on);
  const results = await Promise.all(
    Array.from(
      { length: 5 },
      () =>
        new Promise<string>((resolve) => {
          connection.exec('sleep 1', (error, channel) => {
            if (error) {
              resolve(error.message);
              return;
            }
            channel.once('close', () => resolve('ran'));
            channel.resume();
          });
        }),
    ),
  );
  connection.end();
  test.same(results.filter((result) => result === 'ran').length, 3);
  test.match(
    results.filter((result) => result !== 'ran'),
    [/at most 3 sessions/, /at most 3 sessions/],
  );
});

t.test('a reader that stops does not make the gateway hold what it does not read', async (test) => {
  const on = await bench(test);
  const before = process.memoryUsage().rss;
  const child = start('ssh', ['-F', on.config, 'node0', 'head -c 400000000 /dev/zero']);
  await systemClock.sleep(1500);
  test.ok(process.memoryUsage().rss - before < 64 * MiB, 'bounded while the client does not read');
  let bytes = 0;
  child.stdout?.on('data', (data: Buffer) => (bytes += data.length));
  test.equal(await new Promise((resolve) => child.once('close', resolve)), 0);
  test.equal(bytes, 400_000_000);
});

t.test('a message that breaks the protocol ends that connection only', async (test) => {
  const on = await bench(test);
  const connection = await library(on);
  const closed = new Promise<void>((resolve) => connection.once('close', () => resolve()));
  connection.on('error', () => undefined);
  const inside = connection as unknown as {
    _protocol: {
      _packetRW: { write: { alloc(n: number): Buffer; allocStart: number; finalize(p: Buffer): Buffer } };
      _cipher: { encrypt(p: Buffer): void };
    };
  };
  const { write } = inside._protocol._packetRW;
  const packet = write.alloc(6);
  // CHANNEL_OPEN with a type that is longer than the message.
  packet.set([90, 0, 0, 1, 0, 65], write.allocStart);
  inside._protocol._cipher.encrypt(write.finalize(packet));
  await closed;
  test.equal(on.of('gateway.refused')[0]?.['reason'], 'protocol-error');
  test.equal((await ssh(on.config, ['node0', 'exit 8'])).code, 8);
});

t.test('a command that is no UTF-8 passes unchanged and is recorded in full', async (test) => {
  const on = await bench(test);
  const connection = await library(on);
  const command = Buffer.concat([
    Buffer.from('printf %s '),
    Buffer.from([0xe4, 0xff]),
    Buffer.from(' | od -An -tx1'),
  ]);
  const out = await new Promise<string>((resolve, reject) => {
    connection.exec(command as unknown as string, (error, channel) => {
      if (error) {
        reject(error);
        return;
      }
      let text = '';
      channel.on('data', (data: Buffer) => (text += data.toString()));
      channel.once('close', () => resolve(text.trim()));
    });
  });
  connection.end();
  test.equal(out, 'e4 ff');
  test.equal(on.of('session.exec')[0]?.['commandBase64'], command.toString('base64'));
});

t.test('keep-alive messages are answered by the node, in order with what is refused', async (test) => {
  const on = await bench(test);
  const options = ['-o', 'ServerAliveInterval=1', '-o', 'ServerAliveCountMax=1', '-R', '0:127.0.0.1:9'];
  const outcome = await ssh(on.config, [...options, 'node0', 'sleep 3.5; echo alive']);
  test.match([outcome.code, outcome.stdout.toString()], [0, 'alive\n']);
  const pidFile = join(on.dir, 'pid');
  const freeze = `echo $PPID > ${pidFile}; kill -STOP $PPID; sleep 10`;
  const frozen = await ssh(on.config, [...options.slice(0, 4), 'node0', freeze]);
  process.kill(Number(await readFile(pidFile, 'utf8')), 'SIGKILL');
  test.equal(frozen.code, 255, 'a node that does not answer any more is noticed');
});

t.test('a socket path that is too long or a bad name is refused before anything is opened', async (test) => {
  const long = join(tmpdir(), 'x'.repeat(120));
  await test.rejects(bench(test, { socketDir: long }), { code: 'IB_USAGE' });
  await test.rejects(bench(test, { nodes: [{ name: '../up', connect: () => sshd.connect() }] }), {
    code: 'IB_USAGE',
  });
  await test.rejects(bench(test, { agentPublicKey: 'no key' }), { code: 'IB_USAGE' });
});

t.test('SFTP packets are found however the stream is cut', (test) => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 12 }),
      fc.array(fc.integer({ min: 1, max: 90 }), { minLength: 1 }),
      fc.integer({ min: 1, max: 40 }),
      (bodies, cuts, need) => {
        const stream = Buffer.concat(
          bodies.flatMap((body) => {
            const length = Buffer.alloc(4);
            length.writeUInt32BE(body.length);
            return [length, body];
          }),
        );
        const found: Buffer[] = [];
        const packets = new SftpPackets((head, bodyBytes) => {
          if (head.length < Math.min(need, bodyBytes)) return Math.min(need, bodyBytes);
          const index = found.push(Buffer.from(head)) - 1;
          return (data) => (found[index] = Buffer.concat([found[index] ?? Buffer.alloc(0), data]));
        });
        for (let at = 0, turn = 0; at < stream.length; turn += 1) {
          const size = cuts[turn % cuts.length] ?? 1;
          packets.feed(stream.subarray(at, at + size));
          at += size;
        }
        test.same(
          found.map((body) => body.toString('hex')),
          bodies.map((body) => Buffer.from(body).toString('hex')),
        );
      },
    ),
    { numRuns: 60 },
  );
  test.end();
});
