/** Every checker: its parameters, what it gathers (scripts run for real where they can), and its pure judge. */
import { createServer, type Server } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import t, { type Test } from 'tap';
import { checkers } from '../../checkers/index.js';
import { netOf } from '../../checkers/no-drift.js';
import { parseDpkg } from '../../checkers/package-state.js';
import { parsePing } from '../../checkers/ping-path.js';
import { parseReward } from '../../checkers/harbor-test.js';
import { parseRows } from '../../checkers/sql-query.js';
import { parseShow } from '../../checkers/unit-state.js';
import { run, start } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { globMatcher } from '../../src/core/glob.js';
import type { NodeCommand } from '../../src/testbed/driver/driver.js';
import type { CheckContext, Json, Judgement } from '../../src/trial/gate/checker.js';
import type { DriftChange } from '../../src/trial/drift/drift.js';
import { checkersDocument } from './document.js';
import { dead, FakeCluster } from '../trial/fake-cluster.js';

const context = (cluster: FakeCluster, fields: Partial<CheckContext> = {}): CheckContext => ({
  cluster,
  node: 'node0',
  moment: 'immediate',
  signal: new AbortController().signal,
  commandTimeoutMs: 5000,
  taskDir: '/nowhere',
  drift: () => Promise.resolve({ changes: [], control: [], controlRecorded: true }),
  ...fields,
});

interface Seen {
  evidence: Json;
  judgement: Judgement;
}

/** Gathers and judges as a trial and a review do, evidence and parameters parsed on the way. */
async function check(name: string, table: unknown, around: CheckContext): Promise<Seen> {
  const checker = checkers.get(name)!;
  const parameters = checker.with.parse(table);
  const evidence = checker.evidence.parse(
    JSON.parse(JSON.stringify(await checker.gather(around, parameters))),
  );
  return { evidence, judgement: checker.judge(evidence, parameters) };
}

const verdict = async (name: string, table: unknown, around: CheckContext): Promise<string> => {
  const { judgement } = await check(name, table, around);
  return `${judgement.verdict}: ${judgement.why}`;
};

/** A node whose commands run on this machine, for scripts that only look. */
function thisMachine(): FakeCluster {
  return new FakeCluster().answer(async ({ argv, stdin, env }: NodeCommand) => {
    const [program, ...args] = argv;
    const { exitCode, stdout, stderr } = await run(program!, args, {
      allowFailure: true,
      ...(stdin === undefined ? {} : { input: stdin }),
      ...(env === undefined ? {} : { env: { ...env } }),
    });
    return { exitCode, stdout, stderr };
  });
}

async function folder(t: Test): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'checkers-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

async function listening(t: Test, server: Server | ReturnType<typeof createTcpServer>): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as AddressInfo).port;
}

t.test('every checker has a name of its own, a summary and described parameters', (t) => {
  for (const [name, checker] of checkers) {
    t.equal(checker.name, name);
    t.match(checker.summary, /^[A-Z].*\.$|^tests\/test\.sh .*\.$/);
    const { shape } = checker.with as unknown as { shape: Record<string, { description?: string }> };
    for (const [key, schema] of Object.entries(shape))
      t.ok(schema.description, `${name}.${key} is described`);
  }
  t.end();
});

t.test('docs/checkers.md describes every checker as it is', async (t) => {
  const path = asset('docs/checkers.md');
  const written = await format(checkersDocument(checkers.values()), {
    ...(await resolveConfig(path)),
    filepath: path,
  });
  if (process.env['UPDATE_DOCS'] === '1') await writeFile(path, written);
  t.equal(await readFile(path, 'utf8'), written, 'run with UPDATE_DOCS=1 after a change of parameters');
});

t.test('parameters that make no sense are refused with a reason', (t) => {
  const refused: [string, unknown, RegExp][] = [
    ['shell', { script: '../outside.sh' }, /must lie inside the package/],
    ['shell', { script: '/etc/x.sh' }, /must lie inside the package/],
    ['shell', { script: 'x.sh', expect_stdout_matches: '(' }, /is no regular expression/],
    ['file-content', { path: '/etc/x' }, /needs at least one of/],
    ['file-content', { path: 'etc/x', equals: '' }, /path/],
    ['file-absent', { path: 'relative' }, /absolute path/],
    ['process-absent', {}, /needs at least one of/],
    ['unit-state', { unit: 'ssh' }, /with its type/],
    ['sql-query', { database: 'd', user: 'u' }, /either query or query_file/],
    [
      'sql-query',
      { database: 'd', user: 'u', query: 'x', expect_error: 'x', expect_rows: [] },
      /exclude each other/,
    ],
    ['port-open', { port: 0 }, /port/],
  ];
  for (const [name, table, expected] of refused) {
    t.match(
      checkers.get(name)!.with.safeParse(table),
      { success: false, error: { message: expected } },
      name,
    );
  }
  t.end();
});

t.test('shell: a script of the package, judged by what it prints', async (t) => {
  const dir = await folder(t);
  const around = context(thisMachine(), { taskDir: dir });
  await mkdir(join(dir, 'checks'));
  const script = async (text: string): Promise<string> => {
    await writeFile(join(dir, 'checks/x.sh'), text);
    return 'checks/x.sh';
  };
  const echo = await script('#!/usr/bin/env bash\nset -eu\necho "$INFRABED_NODE: $1"\n');
  t.equal(
    await verdict('shell', { script: echo, args: ['a b'], expect_stdout: 'node0: a b' }, around),
    'pass: the script printed "node0: a b"',
  );
  t.match(
    await verdict('shell', { script: echo, args: ['a'], expect_stdout: 'b' }, around),
    /^fail: the script printed "node0: a", not "b"/,
  );
  t.match(
    await verdict('shell', { script: echo, args: ['a'], expect_stdout_matches: '^node\\d: a$' }, around),
    /^pass/,
  );
  t.match(
    await verdict('shell', { script: echo }, around),
    /^fail: the script ended with status 1, not 0: .*unbound/,
  );
  const json = await script(
    '#!/usr/bin/env python3\nimport json\nprint(json.dumps({"pass": False, "why": "too few", "n": 2}))\n',
  );
  t.equal(await verdict('shell', { script: json }, around), 'fail: too few');
  t.match(await verdict('shell', { script: json, expect_json: { n: 2 } }, around), /^pass/);
  t.match(
    await verdict('shell', { script: json, expect_json: { n: 3, m: 1 } }, around),
    /^fail: n is 2, not 3/,
  );
  const quiet = await script('#!/bin/sh\nexit 3\n');
  t.match(
    await verdict('shell', { script: quiet, expect_status: 3 }, around),
    /^pass: the script ended with status 3/,
  );
  const odd = await script('#!/usr/bin/perl\n');
  await t.rejects(check('shell', { script: odd }, around), { code: 'IB_TASK_INVALID' });
  await t.rejects(check('shell', { script: 'none.sh' }, around), { code: 'IB_TASK_INVALID' });
  await script('#!/bin/sh\nexit 3\n');
  const late = new FakeCluster().answer(() => ({ exitCode: null, timedOut: true, signal: 'SIGKILL' }));
  t.match(
    await verdict('shell', { script: quiet }, context(late, { taskDir: dir })),
    /^fail: the script did not end in time/,
  );
  const own = new FakeCluster().answer(() => ({ stdout: 'x' }));
  await check('shell', { script: quiet, programs: 'own' }, context(own, { taskDir: dir }));
  t.match(own.calls[0], /^node0 ssh sh -s --/);
});

t.test('file-content: what a file holds, its mode and owner', async (t) => {
  const cluster = new FakeCluster().file(
    'node0',
    '/etc/x.conf',
    '[Link]\nMTUBytes=9000\n',
    '0640',
    'root',
    'postgres',
  );
  cluster
    .of('node0')
    .files.set('/etc/link', { type: 'symlink', mode: '0777', owner: 'root', group: 'root', target: '/x' });
  const say = (table: object): Promise<string> =>
    verdict('file-content', { path: '/etc/x.conf', ...table }, context(cluster));
  t.match(await say({ matches: '^MTUBytes=9000$', mode: '640', owner: 'root', group: 'postgres' }), /^pass/);
  t.match(await say({ equals: '[Link]\nMTUBytes=9000' }), /^pass/);
  t.match(
    await say({ contains: ['[Link]', 'MTUBytes=1500'] }),
    /^fail: \/etc\/x.conf does not hold "MTUBytes=1500"/,
  );
  t.match(await say({ not_contains: '9000' }), /^fail: \/etc\/x.conf holds "9000"/);
  t.match(await say({ not_matches: '^MTU.*' }), /^fail: .* with "MTUBytes=9000"/);
  t.match(await say({ mode: '0600' }), /^fail: .* has mode 0640, not 0600/);
  t.match(await say({ owner: 'bob' }), /^fail: .* belongs to root/);
  t.match(
    await verdict('file-content', { path: '/etc/none', equals: '' }, context(cluster)),
    /^fail: .* is not there/,
  );
  t.match(
    await verdict('file-content', { path: '/etc/link', contains: 'a' }, context(cluster)),
    /^fail: .* is a symlink/,
  );
});

t.test('file-absent: paths and patterns, through links in the middle but never at the end', async (t) => {
  const dir = await folder(t);
  await mkdir(join(dir, 'a/b/.hidden'), { recursive: true });
  await writeFile(join(dir, 'a/one.bak'), '');
  await writeFile(join(dir, 'a/b/.hidden/two.bak'), '');
  await symlink('a', join(dir, 'link'));
  await symlink('nowhere', join(dir, 'dangling'));
  await symlink('loop', join(dir, 'loop'));
  const around = context(thisMachine());
  const found = async (path: string | string[], except: string[] = []): Promise<string[]> => {
    const { evidence } = await check('file-absent', { path, except }, around);
    return (evidence as { found: { path: string }[] }).found.map((one) => one.path.slice(dir.length + 1));
  };
  t.same(await found(`${dir}/none`), []);
  t.same(await found([`${dir}/a/one.bak`, `${dir}/a/none`]), ['a/one.bak']);
  t.same(await found(`${dir}/link/*.bak`), ['a/one.bak'], 'a folder that was made a link hides nothing');
  t.same(await found(`${dir}/**/*.bak`), ['a/b/.hidden/two.bak', 'a/one.bak']);
  t.same(await found(`${dir}/**/*.bak`, [`${dir}/a/b/**`]), ['a/one.bak']);
  t.same(await found(`${dir}/a/*.bak`, [`${dir}/a/o?e.[a-z]ak`]), []);
  t.same(await found(`${dir}/**/*.bak`, [`${dir}/*`]), ['a/b/.hidden/two.bak', 'a/one.bak']);
  t.same(await found(`${dir}/dangling`), ['dangling'], 'a link that leads nowhere is there all the same');
  t.same(await found(`${dir}/loop/x`), []);
  t.equal(
    await verdict('file-absent', { path: `${dir}/a/*.bak` }, around),
    `fail: ${dir}/a/one.bak is still there (file)`,
  );
  t.match(await verdict('file-absent', { path: `${dir}/a/*.orig` }, around), /^pass/);
});

t.test('unit-state: active and enabled, as systemd itself tells it', async (t) => {
  const show = (active: string, file: string, load = 'loaded'): FakeCluster =>
    new FakeCluster().answerTo('systemctl show', {
      stdout: `LoadState=${load}\nActiveState=${active}\nSubState=running\nUnitFileState=${file}\nResult=success\n`,
    });
  const say = (cluster: FakeCluster, table: object = {}): Promise<string> =>
    verdict('unit-state', { unit: 'ssh.service', ...table }, context(cluster));
  t.equal(await say(show('active', 'enabled')), 'pass: ssh.service is active and enabled');
  t.match(await say(show('active', 'disabled')), /^fail: ssh.service is active but disabled, not enabled/);
  t.match(await say(show('failed', 'enabled')), /^fail: ssh.service is failed/);
  t.match(await say(show('inactive', '', 'not-found')), /^fail: ssh.service does not exist/);
  t.match(await say(show('inactive', '', 'not-found'), { active: 'inactive', enabled: 'any' }), /^pass/);
  t.match(await say(show('active', 'static'), { enabled: ['enabled', 'static'] }), /^pass/);
  t.throws(() => parseShow('Failed to connect to bus'), { code: 'IB_NODE_FAILED' });
  const hung = new FakeCluster().answer(() => ({ exitCode: null, timedOut: true }));
  await t.rejects(say(hung), { code: 'IB_TIMEOUT', details: { node: 'node0' } });
});

t.test('port-open: from the node and from the controller', async (t) => {
  const port = await listening(
    t,
    createTcpServer((socket) => socket.on('error', () => undefined).end('220 hello\r\n')),
  );
  const around = context(thisMachine());
  const here = { address: '127.0.0.1', port };
  t.match(await verdict('port-open', here, around), /^pass/);
  t.match(await verdict('port-open', { ...here, banner: '^220 ' }, around), /^pass/);
  t.match(await verdict('port-open', { ...here, banner: '^SSH' }, around), /^fail: .* answers "220 hello"/);
  t.match(await verdict('port-open', { ...here, open: false }, around), /^fail: .* answers/);
  t.match(
    await verdict('port-open', { address: '127.0.0.1', port: 1 }, around),
    /^fail: .* does not answer: refused/,
  );
  const cluster = new FakeCluster();
  t.match(
    await verdict('port-open', { port: 22, to: 'node1', from: 'controller' }, context(cluster)),
    /^pass/,
  );
  t.match(
    await verdict('port-open', { port: 23, open: false, from: 'controller' }, context(cluster)),
    /^pass/,
  );
  cluster.of('node0').standing = dead('infrastructure');
  await t.rejects(check('port-open', { port: 23, from: 'controller' }, context(cluster)), {
    code: 'IB_NODE_UNREACHABLE',
  });
});

t.test('http-probe: status, body and speed of one request', async (t) => {
  const port = await listening(
    t,
    createServer((request, response) => {
      response.statusCode = request.url === '/moved' ? 302 : 200;
      response.setHeader('location', '/');
      response.end(`host ${String(request.headers.host)} is well`);
    }),
  );
  const say = (table: object): Promise<string> =>
    verdict('http-probe', { address: '127.0.0.1', port, ...table }, context(thisMachine()));
  t.match(
    await say({ body_contains: 'is well', body_matches: '^host', max_ms: 5000 }),
    /^pass: .* answered 200/,
  );
  t.match(await say({ host: 'app.test', body_contains: 'app.test' }), /^pass/);
  t.match(await say({ path: '/moved' }), /^fail: .* answered 302, not 200/);
  t.match(await say({ path: '/moved', status: [301, 302] }), /^pass/);
  t.match(await say({ body_contains: 'ill' }), /^fail: the body/);
  t.match(await say({ max_ms: 0.001 }), /^fail: .* more than 0.001/);
  t.match(await say({ port: 1 }), /^fail: .* gave no answer: .*refused/);
});

t.test('ping-path: replies of a size, unfragmented', async (t) => {
  const output = (received: number): string =>
    `3 packets transmitted, ${String(received)} received, 0% packet loss, time 402ms`;
  const pinging = (answer: object): FakeCluster => new FakeCluster().answerTo('ping', answer);
  const say = (cluster: FakeCluster, table: object = {}): Promise<string> =>
    verdict('ping-path', { to: 'node1', size: 8972, ...table }, context(cluster));
  const well = pinging({ stdout: output(3) });
  t.match(await say(well), /^pass: 3 of 3 packets of 8972 bytes came back from 10\.77\.0\.12/);
  t.match(well.calls[0], /-s 8972 -M do -- 10\.77\.0\.12$/);
  const tooLong = {
    exitCode: 1,
    stdout: output(0),
    stderr: 'ping: local error: message too long, mtu=1500\n',
  };
  t.match(await say(pinging(tooLong)), /^fail: 0 of 3 .*message too long, mtu=1500/);
  t.match(await say(pinging(tooLong), { reply: false }), /^pass/);
  t.match(await say(pinging({ stdout: output(2) }), { max_loss: 40 }), /^pass/);
  t.match(
    await say(pinging({ exitCode: 2, stderr: 'ping: connect: Network is unreachable\n' })),
    /^fail: 0 of 0 .*unreachable/,
  );
  await t.rejects(say(pinging({ exitCode: 127, stderr: 'ping: not found' })), { code: 'IB_NODE_FAILED' });
  t.same(
    parsePing(
      'a',
      'From 10.0.0.1 icmp_seq=1 Destination Host Unreachable\n2 packets transmitted, 0 received',
      false,
    ).error,
    'Destination Host Unreachable',
  );
});

t.test('process-absent: by command line, name and user, this look itself left out', async (t) => {
  const around = context(thisMachine());
  const sleeper = start('sleep', ['43210'], { stdio: 'ignore' });
  t.teardown(() => sleeper.kill());
  t.match(await verdict('process-absent', { command: 'no-such-program-at-all' }, around), /^pass/);
  t.match(
    await verdict('process-absent', { command: '^sleep 43210$' }, around),
    /^fail: process \d+ of \w+ runs: sleep 43210/,
  );
  const { evidence } = await check('process-absent', { name: 'x' }, around);
  const checker = checkers.get('process-absent')!;
  const processes = [{ pid: 7, user: 'bob', name: 'sleep', command: 'sleep 9' }];
  t.ok((evidence as { processes: unknown[] }).processes.length > 0);
  t.equal(checker.judge({ processes }, { user: 'alice' }).verdict, 'pass');
  t.match(checker.judge({ processes }, { name: 'sleep', user: 'bob' }), {
    verdict: 'fail',
    why: /process 7 of bob/,
  });
});

t.test('package-state: installed, absent and versions', async (t) => {
  const cluster = new FakeCluster()
    .answerTo('dpkg-query', {
      exitCode: 1,
      stdout: 'curl\tinstalled\t7.88\nvim\tconfig-files\t9.0\n',
      stderr: 'no packages found',
    })
    .answer(({ argv }) => (argv[0] === 'dpkg' ? { exitCode: argv[4] === '7.0' ? 0 : 1 } : undefined));
  const say = (table: object): Promise<string> => verdict('package-state', table, context(cluster));
  t.match(await say({ package: 'curl', version: '7.88' }), /^pass/);
  t.match(await say({ package: 'curl', min_version: '7.0' }), /^pass/);
  t.match(await say({ package: 'curl', min_version: '8.0' }), /^fail: curl has version 7.88, below 8.0/);
  t.match(await say({ package: ['curl', 'nano'] }), /^fail: nano is unknown to dpkg/);
  t.match(await say({ package: 'nano', state: 'absent' }), /^pass/);
  t.match(await say({ package: 'vim', state: 'absent' }), /^fail: vim is config-files/);
  t.same(parseDpkg('libc6\tinstalled\t2\nlibc6\tnot-installed\t\n').get('libc6'), {
    status: 'installed',
    version: '2',
  });
});

t.test('no-drift: an allow-list, net of what the control trial changes', async (t) => {
  const change = (subject: string, fields: Partial<DriftChange> = {}): DriftChange => ({
    node: 'node0',
    kind: 'file',
    subject,
    change: 'added',
    before: null,
    after: 'x',
    ...fields,
  });
  const changes = [
    change('/etc/systemd/network/10-a.network'),
    change('/root/note'),
    change('ssh', { kind: 'unit' }),
    change('/etc/o', { node: 'node1' }),
  ];
  const around = (control: DriftChange[] = [], controlRecorded = true): CheckContext =>
    context(new FakeCluster(), { drift: () => Promise.resolve({ changes, control, controlRecorded }) });
  const allow = ['file:/etc/systemd/network/*', 'unit:ssh'];
  t.match(await verdict('no-drift', { allow }, around()), /^fail: file:\/root\/note added on node0$/);
  t.match(
    await verdict('no-drift', { allow }, around([change('/root/note', { after: 'y' })])),
    /^pass: no change beyond the 2 allowed and 1 usual ones$/,
  );
  t.match(
    await verdict('no-drift', { allow: [...allow, 'file:/root/**'] }, around([], false)),
    /^pass: .*no control trial/,
  );
  t.match(await verdict('no-drift', { kinds: ['user'] }, around()), /^pass/);
  t.match(await verdict('no-drift', { nodes: ['node1'] }, around()), /^fail: file:\/etc\/o added on node1/);
  t.same(
    netOf([change('/a'), change('/a', { change: 'removed' })], [change('/a')]).map((one) => one.change),
    ['removed'],
  );
  const globs: [string, string, boolean][] = [
    ['file:/etc/*', 'file:/etc/a', true],
    ['file:/etc/*', 'file:/etc/a/b', false],
    ['file:/etc/**', 'file:/etc/a/b', true],
    ['package:lib?', 'package:libc', true],
    ['{user,group}:bob', 'group:bob', true],
    ['file:/a.b', 'file:/axb', false],
    ['file:/[!a]x', 'file:/bx', true],
    ['file:/[!a]x', 'file:/ax', false],
    ['socket:tcp/0.0.0.0:22*', 'socket:tcp/0.0.0.0:22 (sshd)', true],
  ];
  for (const [glob, text, expected] of globs)
    t.equal(globMatcher([glob])(text), expected, `${glob} and ${text}`);
});

t.test('sql-query: rows, refusals and where the password comes from', async (t) => {
  const dir = await folder(t);
  await writeFile(join(dir, 'old-password'), 'leaked\n');
  const asked: NodeCommand[] = [];
  const database = (answer: object): FakeCluster =>
    new FakeCluster()
      .answer((command) => {
        asked.push(command);
        return answer;
      })
      .file('node0', '/etc/app.env', 'PGHOST=x\nPGPASSWORD = "s3cret=1"\n')
      .file('node0', '/root/pw', 's3cret\n');
  const say = (answer: object, table: object): Promise<string> =>
    verdict(
      'sql-query',
      { query: 'select 1', database: 'app', user: 'app', ...table },
      context(database(answer), { taskDir: dir }),
    );
  const rows = { stdout: '1\x1fa\x1e2\x1f\x1d\x1e' };
  t.match(
    await say(rows, {
      expect_rows: [
        [1, 'a'],
        ['2', 'x'],
      ],
    }),
    /^fail: the query gave .*null/,
  );
  t.match(await say({ stdout: '1\x1ft\x1e' }, { expect_rows: [[1, true]] }), /^pass/);
  t.match(await say(rows, { min_rows: 3 }), /^fail: the query gave 2 rows, fewer than 3/);
  t.match(await say(rows, { max_rows: 1 }), /^fail: .*more than 1/);
  const refused = {
    exitCode: 2,
    stderr: 'psql: error: FATAL: password authentication failed for user "app"',
  };
  t.match(await say(refused, { expect_error: 'password authentication failed' }), /^pass: refused/);
  t.match(await say(refused, {}), /^fail: the query failed: .*password authentication/);
  t.match(
    await say({ exitCode: 2, stderr: 'could not connect' }, { expect_error: 'authentication' }),
    /^fail: it failed with "could not connect"/,
  );
  t.match(await say(rows, { expect_error: 'authentication' }), /^fail: the query went through/);
  asked.length = 0;
  await say(rows, { password_file: '/root/pw', to: 'node1', port: 6432 });
  await say(rows, { password_file: '/etc/app.env', password_key: 'PGPASSWORD' });
  await say(rows, { password_file: 'old-password' });
  t.same(
    asked.map(({ stdin }) => String(stdin).split('\n')[0]),
    ['s3cret', 's3cret=1', 'leaked'],
  );
  t.notOk(
    asked.some(({ argv }) => argv.join(' ').includes('s3cret')),
    'no password is on a command line',
  );
  t.same(asked[0]!.argv.slice(-6), ['10.77.0.12', '6432', 'app', 'app', 'root', 'prefer']);
  t.match(await say(rows, { password_file: '/root/none' }), /^fail: .*no password in \/root\/none/);
  await t.rejects(say({ exitCode: 100 }, {}), { code: 'IB_CHECKER_FAILED' });
  t.same(parseRows(''), []);
  t.same(
    parseRows('\x1e'),
    [[]].map(() => ['']),
    'one row of one empty text',
  );
});

t.test(
  'nodes-reachable: a node that is well but lets nobody in fails, one we lost is not judged',
  async (t) => {
    const cluster = new FakeCluster();
    const say = (): Promise<string> =>
      verdict('nodes-reachable', { nodes: ['node0', 'node1'] }, context(cluster));
    t.equal(await say(), 'pass: node0, node1: a fresh login works');
    cluster.of('node1').standing = dead('node');
    t.match(await say(), /^fail: node1 cannot be logged in to/);
    cluster.of('node1').standing = dead('infrastructure');
    await t.rejects(say(), { code: 'IB_NODE_UNREACHABLE', details: { node: 'node1' } });
  },
);

t.test('harbor-test: the reward file of a foreign package', async (t) => {
  const dir = await folder(t);
  await mkdir(join(dir, 'tests/data'), { recursive: true });
  await writeFile(join(dir, 'tests/test.sh'), '#!/bin/bash\n');
  await writeFile(join(dir, 'tests/data/x'), Buffer.from([0, 255]));
  const asked: NodeCommand[] = [];
  const node = (answer: object): FakeCluster =>
    new FakeCluster().answer((command) => {
      asked.push(command);
      return {
        stdout: JSON.stringify({
          exitCode: 0,
          rewardText: null,
          rewardJson: null,
          output: 'said',
          ...answer,
        }),
      };
    });
  const say = (answer: object, table: object = {}): Promise<string> =>
    verdict('harbor-test', table, context(node(answer), { taskDir: dir }));
  t.match(await say({ rewardText: '1\n' }), /^pass: .*reward 1/);
  t.match(await say({ rewardText: '0.5' }), /^fail: .*reward 0.5, below 1/);
  t.match(await say({ rewardText: '0.5' }, { threshold: 0.5 }), /^pass/);
  t.match(await say({}), /^fail: .*left no reward \(status 0\): said/);
  t.match(JSON.parse(String(asked[0]!.stdin)), [{ path: 'data/x', base64: 'AP8=' }, { path: 'test.sh' }]);
  t.equal(parseReward(null, '{"reward": 0.25, "other": 1}'), 0.25);
  t.equal(parseReward(null, '{"a": 1, "b": 0}'), 0.5);
  t.equal(parseReward('not a number', null), null);
  t.equal(parseReward(null, '{'), null);
});
