/** The server as its callers meet it: over a real Unix socket and real TLS. */
import t from 'tap';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { request } from 'undici';
import { Client } from 'undici';
import { waitFor } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { run, start } from '../../src/core/exec.js';
import type { IoEvent } from '../../src/core/io.js';
import { asset } from '../../src/core/paths.js';
import { parseServer } from '../../src/web/api/client.js';
import { startServer } from '../../src/web/api/server.js';
import {
  userAdd,
  userList,
  userOperations,
  userRevoke,
  userToken,
  userWhoami,
} from '../../src/web/api/users.js';
import { ask, openServer, version, type OpenServer } from './open-server.js';
import { change, defect, echo, marks, operatorsOnly, wait } from './things.js';

t.setTimeout(300_000);

/** A request as any HTTP client sends it. */
async function raw(
  { socketPath }: OpenServer,
  options: {
    method?: 'GET' | 'POST' | 'DELETE';
    path: string;
    headers?: Record<string, string>;
    body?: string;
  },
): Promise<{ status: number; headers: Record<string, unknown>; body: unknown; text: string }> {
  const client = new Client('http://localhost', { socketPath });
  try {
    const response = await client.request({ method: 'GET', ...options });
    const text = await response.body.text();
    const isJson = String(response.headers['content-type']).startsWith('application/json');
    const body: unknown = isJson ? JSON.parse(text) : undefined;
    return { status: response.statusCode, headers: response.headers, body, text };
  } finally {
    await client.destroy();
  }
}

const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
const json = (token: string): Record<string, string> => ({
  ...bearer(token),
  'content-type': 'application/json',
});

t.test('an operation is asked over a Unix socket, by whoever has a token', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  t.same(open.server.addresses, [`unix:${open.socketPath}`]);
  t.equal(statSync(open.socketPath).mode & 0o777, 0o666, 'tokens decide, not the mode');
  t.equal(statSync(join(open.folder, 'run')).mode & 0o777, 0o755);

  await t.test('path, query and body together are its input', async (t) => {
    const input = { id: 'a b/ü', text: '12', count: 3, flag: true, tags: ['x', 'y'], sizes: [1] };
    t.strictSame(await ask(open, open.tokens.ada, echo, input), { input, actor: 'ada' });
    t.strictSame(await ask(open, open.tokens.ada, echo, { id: 'x', flag: false, tags: [] }), {
      input: { id: 'x', flag: false, tags: [] },
      actor: 'ada',
    });
    t.strictSame(await ask(open, open.tokens.ada, change, { owner: 'ada', to: 2 }), { by: 'ada', to: 2 });
    t.strictSame(await ask(open, open.tokens.op, operatorsOnly, { all: true }), { swept: true });
  });

  await t.test('a user does what is its own, an operator everything', async (t) => {
    await t.rejects(ask(open, open.tokens.ada, operatorsOnly, { all: true }), { code: 'IB_NOT_ALLOWED' });
    await t.rejects(ask(open, open.tokens.ada, userList, {}), { code: 'IB_NOT_ALLOWED' });
    await t.rejects(ask(open, open.tokens.ada, userAdd, { name: 'eve', role: 'operator' }), {
      code: 'IB_NOT_ALLOWED',
    });
    await t.rejects(
      ask(open, open.tokens.ada, change, { owner: 'bob', to: 1 }),
      { code: 'IB_LEASE_CONFLICT', message: "That is bob's.", hint: 'Ask.', details: { owner: 'bob' } },
      'code, sentence, hint and details arrive as they were thrown',
    );
    t.same(await ask(open, open.tokens.op, change, { owner: 'bob', to: 1 }), { by: 'op', to: 1 });
    const refused = await raw(open, {
      method: 'DELETE',
      path: '/v1/things?all=true',
      headers: bearer(open.tokens.ada),
    });
    t.equal(refused.status, 403);
  });

  await t.test('without a good token nothing is done', async (t) => {
    const other = `ib_${'A'.repeat(43)}`;
    for (const headers of [
      {},
      bearer(''),
      bearer(other),
      bearer(`${open.tokens.ada}x`),
      bearer(open.tokens.ada.slice(0, -1)),
      { authorization: open.tokens.ada },
      { authorization: `Basic ${open.tokens.ada}` },
      { authorization: `Bearer ${open.tokens.ada} ${open.tokens.op}` },
    ] as Record<string, string>[]) {
      const { status, body, headers: answered } = await raw(open, { path: '/v1/whoami', headers });
      t.equal(status, 401, JSON.stringify(Object.keys(headers)));
      t.match(body, { error: { code: 'IB_NOT_ALLOWED', hint: String } });
      t.match(answered['www-authenticate'], /^Bearer/);
    }
    await t.rejects(ask(open, other, userWhoami, {}), { code: 'IB_NOT_ALLOWED', message: /does not know/ });
  });

  await t.test('what does not fit is refused with what would', async (t) => {
    const bad = async (
      options: Parameters<typeof raw>[1],
      status: number,
      message: RegExp,
    ): Promise<void> => {
      const answer = await raw(open, options);
      t.equal(answer.status, status, answer.text);
      t.match(answer.body, { error: { message } });
      t.notMatch(answer.text, /node_modules|\.ts:|at .*\(/, 'no stack');
    };
    const headers = json(open.tokens.ada);
    const post = { method: 'POST', path: '/v1/things/ada/change', headers } as const;
    await bad({ ...post, body: '{"to":1,"too":1}' }, 400, /Unrecognized key: "too"/);
    await bad({ ...post, body: '{"to":-1}' }, 400, /to: /);
    await bad({ ...post, body: '{}' }, 400, /to: /);
    await bad({ ...post, body: '[1]' }, 400, /JSON object/);
    await bad({ ...post, body: '{' }, 400, /JSON/);
    await bad({ ...post, body: '{"to":1,"owner":"bob"}' }, 400, /owner twice/);
    await bad(
      { ...post, body: 'x', headers: { ...headers, 'content-type': 'text/csv' } },
      415,
      /media type/i,
    );
    await bad({ ...post, body: `{"to":"${'1'.repeat(2 ** 20)}"}` }, 413, /large/);
    await bad({ path: '/v1/things/x?count=many', headers: bearer(open.tokens.ada) }, 400, /count: /);
    await bad({ path: '/v1/things/x?count=1&count=2', headers: bearer(open.tokens.ada) }, 400, /count: /);
    await bad(
      { path: '/v1/things/x?nix=1', headers: bearer(open.tokens.ada) },
      400,
      /Unrecognized key: "nix"/,
    );
    await bad({ path: '/v1/nix', headers: bearer(open.tokens.ada) }, 404, /knows no GET/);
    await bad(
      { method: 'DELETE', path: '/v1/things/x', headers: bearer(open.tokens.ada) },
      404,
      /knows no DELETE/,
    );
  });

  await t.test('a defect is told by its request alone; the log has its place', async (t) => {
    await t.rejects(ask(open, open.tokens.ada, defect, { how: 'throws' }), {
      code: 'IB_INTERNAL',
      message: 'An error inside the server.',
      hint: /req-/,
    });
    t.match(open.logged.join(''), /things\.ts/);
    await t.rejects(ask(open, open.tokens.ada, defect, { how: 'other-shape' }), { code: 'IB_INTERNAL' });
  });

  await t.test('health and the description need no token; another version is told', async (t) => {
    t.match(await raw(open, { path: '/v1/health' }), { status: 200, body: { status: 'ok', version } });
    t.match(await raw(open, { path: '/v1/openapi.json' }), { status: 200, body: { openapi: '3.1.0' } });
    const told: IoEvent[] = [];
    const io = { notify: (event: IoEvent) => void told.push(event), ask: () => Promise.resolve(false) };
    await ask(open, open.tokens.ada, userWhoami, {}, { io, version: '1.2.3' });
    t.match(told, [{ type: 'warning', message: /server runs infrabed 9\.9\.9, this is 1\.2\.3/ }]);
    await ask(open, open.tokens.ada, userWhoami, {}, { io });
    t.equal(told.length, 1);
  });
});

t.test('users come, change their token and go', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  const { op } = open.tokens;
  const bob = await ask(open, op, userAdd, { name: 'bob', role: 'user' });
  t.match(bob, { user: { name: 'bob', role: 'user', revokedAt: null }, token: /^ib_[\w-]{43}$/ });
  t.same(await ask(open, bob.token, userWhoami, {}), { name: 'bob', role: 'user' });
  await t.rejects(ask(open, op, userAdd, { name: 'bob', role: 'operator' }), {
    code: 'IB_USAGE',
    hint: /user token bob/,
  });
  for (const name of ['controller', 'Bob', '', 'a'.repeat(33), '../x', '-x']) {
    await t.rejects(ask(open, op, userAdd, { name, role: 'user' }), { code: 'IB_USAGE' }, name);
  }

  const own = await ask(open, bob.token, userToken, { name: 'bob' });
  t.not(own.token, bob.token);
  await t.rejects(
    ask(open, bob.token, userWhoami, {}),
    { code: 'IB_NOT_ALLOWED' },
    'the old one is worthless',
  );
  await t.rejects(ask(open, own.token, userToken, { name: 'ada' }), { code: 'IB_NOT_ALLOWED' });
  const given = await ask(open, op, userToken, { name: 'bob' });
  await t.rejects(ask(open, own.token, userWhoami, {}), { code: 'IB_NOT_ALLOWED' });

  await ask(open, op, userRevoke, { name: 'bob' });
  await t.rejects(ask(open, given.token, userWhoami, {}), { code: 'IB_NOT_ALLOWED' }, 'revoked at once');
  await t.rejects(ask(open, op, userRevoke, { name: 'bob' }), { code: 'IB_USER_UNKNOWN' });
  await t.rejects(ask(open, op, userToken, { name: 'bob' }), { code: 'IB_USER_UNKNOWN' });
  const again = await ask(open, op, userAdd, { name: 'bob', role: 'operator' });
  t.match(await ask(open, again.token, userWhoami, {}), { role: 'operator' });
  const { users } = await ask(open, op, userList, {});
  t.same(
    users.map((user) => user.name),
    ['ada', 'bob', 'op'],
  );

  const changes = await open.store.db
    .selectFrom('changes')
    .selectAll()
    .where('subject', '=', 'bob')
    .execute();
  t.strictSame(
    changes.map(({ actor, kind }) => `${actor} ${kind}`),
    ['op user.added', 'bob user.token', 'op user.token', 'op user.revoked', 'op user.added'],
    'every change has its actor',
  );
  const rows = JSON.stringify([
    await open.store.db.selectFrom('users').selectAll().execute(),
    changes,
    users,
  ]);
  for (const { token } of [bob, own, given, again]) {
    t.notOk(rows.includes(token), 'the store holds no token');
    t.notOk(open.logged.join('').includes(token.slice(3)), 'nor does the log');
  }
  t.match(open.logged.join(''), /"user":"bob","method":"POST","path":"\/v1\/users\/bob\/token","status":200/);
});

t.test('a slow operation tells its progress while it goes on', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  const told: IoEvent[] = [];
  const io = { notify: (event: IoEvent) => void told.push(event), ask: () => Promise.resolve(false) };
  t.same(await ask(open, open.tokens.ada, wait, { until: 'at-once' }, { io }), { waited: false });
  t.strictSame(told, [
    { type: 'phase', scope: 'thing', phase: 'wait', state: 'begin' },
    { type: 'progress', scope: 'thing', message: 'waiting', done: 1, total: 2 },
    { type: 'info', message: 'no token here: [redacted]' },
  ]);
  const post = { method: 'POST', path: '/v1/things/wait', body: '{"until":"at-once"}' } as const;
  const plain = await raw(open, { ...post, headers: json(open.tokens.ada) });
  t.match(plain, { status: 200, body: { waited: false } }, 'one answer for who asks for no lines');
  const refused = await raw(open, {
    ...post,
    body: '{}',
    headers: { ...json(open.tokens.ada), accept: 'application/x-ndjson' },
  });
  t.equal(refused.status, 400, 'what is refused at once has its status also where lines are accepted');
});

t.test('an operation ends when its caller has gone', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  for (const lines of [true, false]) {
    marks.length = 0;
    const abort = new AbortController();
    const begun = new Promise<void>((resolve) => {
      const io = { notify: () => resolve(), ask: () => Promise.resolve(false) };
      const operation = lines ? wait : { ...wait, slow: false };
      void ask(open, open.tokens.ada, operation, { until: 'aborted' }, { io, signal: abort.signal }).catch(
        (error: unknown) => marks.push(isInfrabedError(error) ? error.code : String(error)),
      );
    });
    // Without lines nothing says that it began: the answer is given up while the head is waited for.
    await (lines ? begun : new Promise((resolve) => setTimeout(resolve, 300)));
    abort.abort();
    await waitFor('its end', () => (marks.includes('wound down') ? true : undefined), { timeoutMs: 20_000 });
    t.ok(marks.includes('asked to end: The caller has gone.'), marks.join());
    await waitFor('the answer', () => (marks.includes('IB_CANCELLED') ? true : undefined), {
      timeoutMs: 20_000,
    });
  }
});

t.test('a server that ends asks what runs to end, waits for it and tells its callers', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  marks.length = 0;
  let asked: Promise<unknown> | undefined;
  await new Promise<void>((resolve) => {
    const io = { notify: () => resolve(), ask: () => Promise.resolve(false) };
    asked = t.rejects(ask(open, open.tokens.ada, wait, { until: 'aborted' }, { io }), {
      code: 'IB_CANCELLED',
      message: 'The server is ending.',
    });
  });
  await open.server.close();
  t.same(marks, ['asked to end: The server is ending.', 'wound down'], 'before the server has ended');
  await asked;
  t.notOk(existsSync(open.socketPath));
  await t.rejects(ask(open, open.tokens.ada, userWhoami, {}), {
    code: 'IB_SERVER',
    message: /no server listens/,
  });
});

t.test(
  'the socket of a living server stays, that of a dead one is replaced, a file is not touched',
  async (t) => {
    const open = await openServer();
    t.teardown(() => open.close());
    const { desk, folder, socketPath } = open;
    const other = { operations: userOperations, desk, version };
    await t.rejects(startServer({ ...other, socketPath }), {
      code: 'IB_SERVER',
      message: /listens at .* already/,
    });
    t.ok(await ask(open, open.tokens.ada, userWhoami, {}), 'the first one still answers');

    const dead = join(folder, 'dead.sock');
    const script = 'require("net").createServer().listen(process.argv[1], () => console.log("up"))';
    const child = start(process.execPath, ['-e', script, dead]);
    if (child.stdout !== null) await once(child.stdout, 'data');
    child.kill('SIGKILL');
    await once(child, 'close');
    t.ok(existsSync(dead));
    const [first, second] = await Promise.allSettled([
      startServer({ ...other, socketPath: dead }),
      startServer({ ...other, socketPath: dead }),
    ]);
    t.same([first.status, second.status].sort(), ['fulfilled', 'rejected'], 'one of two takes its place');
    for (const one of [first, second]) if (one.status === 'fulfilled') await one.value.close();

    const file = join(folder, 'file');
    writeFileSync(file, 'mine');
    await t.rejects(startServer({ ...other, socketPath: file }), {
      code: 'IB_SERVER',
      message: /is no socket/,
    });
    t.equal(readFileSync(file, 'utf8'), 'mine');
    await t.rejects(startServer({ ...other, socketPath: join(folder, 'x'.repeat(120)) }), {
      code: 'IB_SERVER',
      message: /107/,
    });
    await t.rejects(startServer(other), { code: 'IB_USAGE' });
  },
);

/** A certificate of 127.0.0.1, signed by itself. */
async function certificate(folder: string): Promise<{ certFile: string; keyFile: string }> {
  const [certFile, keyFile] = [join(folder, 'site.pem'), join(folder, 'site.key')];
  const kind = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const names = ['-subj', '/CN=infrabed', '-addext', 'subjectAltName=IP:127.0.0.1'];
  await run('openssl', ['req', ...kind, ...names, '-out', certFile, '-keyout', keyFile]);
  return { certFile, keyFile };
}

t.test('over TLS the certificate is proven first, and there is no plain HTTP', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  const { desk, folder, tokens } = open;
  const files = await certificate(folder);
  const tls = { host: '127.0.0.1', port: 0, ...files };
  const server = await startServer({ operations: userOperations, desk, version, tls });
  t.teardown(() => server.close());
  const [url = ''] = server.addresses;
  t.match(url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const trusting = { address: parseServer(url, files.certFile) };
  t.same(await ask(trusting, tokens.ada, userWhoami, {}), { name: 'ada', role: 'user' });
  await t.rejects(ask({ address: parseServer(url) }, tokens.ada, userWhoami, {}), {
    code: 'IB_SERVER',
    hint: /INFRABED_CA/,
  });
  const elsewhere = { address: parseServer(url.replace('127.0.0.1', 'localhost'), files.certFile) };
  await t.rejects(
    ask(elsewhere, tokens.ada, userWhoami, {}),
    { code: 'IB_SERVER' },
    'another name than it has',
  );
  await t.rejects(request(`${url.replace('https', 'http')}/v1/health`), 'plain HTTP is not answered');
  await t.rejects(ask({ address: parseServer(url, join(folder, 'none.pem')) }, tokens.ada, userWhoami, {}), {
    code: 'IB_SERVER',
    message: /INFRABED_CA/,
  });

  const taken = { ...tls, port: Number(url.split(':').at(-1)) };
  await t.rejects(startServer({ operations: [], desk, version, tls: taken }), {
    code: 'IB_SERVER',
    message: /listen at/,
  });
  const noKey = { ...tls, keyFile: join(folder, 'none') };
  await t.rejects(startServer({ operations: [], desk, version, tls: noKey }), {
    code: 'IB_SERVER',
    message: /TLS file/,
  });
});

const asRoot = { skip: process.getuid?.() === 0 ? false : 'only root becomes another user' };

t.test('an unprivileged process asks by a token file that is its own alone', asRoot, async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  const nobody = 65_534;
  const home = join(open.folder, 'home');
  const tokenFile = join(home, '.config', 'infrabed', 'token');
  mkdirSync(join(home, '.config', 'infrabed'), { recursive: true });
  writeFileSync(tokenFile, `${open.tokens.ada}\n`, { mode: 0o600 });
  chownSync(tokenFile, nobody, nobody);
  const child = async (): Promise<unknown> => {
    const other = ['--reuid', String(nobody), '--regid', String(nobody), '--clear-groups'];
    const { stdout } = await run(
      'setpriv',
      [...other, process.execPath, '--import=tsx', asset('test/web/call-child.ts')],
      {
        env: { PATH: process.env['PATH'] ?? '', HOME: home, INFRABED_SERVER: `unix:${open.socketPath}` },
        cleanEnv: true,
      },
    );
    return JSON.parse(stdout);
  };
  t.same(await child(), { uid: nobody, name: 'ada', role: 'user' });
  chmodSync(tokenFile, 0o640);
  t.match(await child(), { uid: nobody, code: 'IB_SERVER', message: /Others than its owner/ });
});

t.test('whoever connects and says nothing keeps no server from ending', async (t) => {
  const open = await openServer();
  t.teardown(() => open.close());
  const silent = connect(open.socketPath);
  await once(silent, 'connect');
  silent.resume();
  const closed = once(silent, 'close');
  await open.server.close();
  await closed;
  t.pass('it was hung up on');
});
