/** The wire, the client's settings and tokens, without a server. */
import t from 'tap';
import fc from 'fast-check';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { redactor } from '../../src/core/log.js';
import { parseServer } from '../../src/web/api/client.js';
import { isToken, loadToken, newToken } from '../../src/web/api/token.js';
import { fromQuery, jsonSchema, outgoing } from '../../src/web/api/wire.js';
import { change, echo } from './things.js';

t.test('what a client puts into path and query is what the server takes out of them', (t) => {
  const schema = jsonSchema(echo.input, 'input');
  const input = fc.record(
    {
      id: fc.string({ unit: 'grapheme', minLength: 1 }).filter((id) => id !== '.' && id !== '..'),
      text: fc.string({ unit: 'grapheme' }),
      count: fc.integer(),
      flag: fc.boolean(),
      tags: fc.array(fc.string({ unit: 'grapheme' }), { minLength: 1 }),
      sizes: fc.array(
        fc.double({ noNaN: true, noDefaultInfinity: true }).map((x) => x + 0),
        { minLength: 1 },
      ),
    },
    { requiredKeys: ['id'], noNullPrototype: true },
  );
  fc.assert(
    fc.property(input, (value) => {
      const { path, body } = outgoing(echo, value);
      const url = new URL(path, 'http://localhost');
      const id = decodeURIComponent(url.pathname.split('/').at(-1) ?? '');
      t.equal(body, undefined);
      t.strictSame({ id, ...fromQuery(schema, url.searchParams) }, value);
    }),
  );
  t.end();
});

t.test('a POST carries in its body what is not in its path', (t) => {
  t.strictSame(outgoing(change, { owner: 'a/b', to: 1 }), {
    path: '/v1/things/a%2Fb/change',
    body: '{"to":1}',
  });
  t.throws(() => outgoing(change, { owner: '', to: 1 }), { code: 'IB_USAGE' });
  t.throws(() => outgoing(change, { owner: '..', to: 1 }), { code: 'IB_USAGE' });
  t.throws(() => outgoing(echo, { id: 'x', text: null }), { code: 'IB_USAGE' });
  t.end();
});

t.test('a server is a Unix socket or HTTPS and nothing else', (t) => {
  t.same(parseServer('unix:/run/x.sock'), { kind: 'unix', socketPath: '/run/x.sock' });
  t.match(parseServer('https://Host:7443/'), { kind: 'tls', origin: 'https://host:7443' });
  t.match(parseServer('https://[::1]:7443', 'ca.pem'), { origin: 'https://[::1]:7443', caFile: 'ca.pem' });
  for (const text of [
    'http://host:80',
    'host:80',
    'unix:relative',
    'unix://run/x/../y'.replace('//run', 'run'),
    'https://host/v1',
    'https://user:pass@host',
    'https://host?x',
    '',
  ]) {
    t.throws(() => parseServer(text), { code: 'IB_USAGE', hint: /https:\/\/host:port/ }, text);
  }
  t.end();
});

t.test('a token is random, known by its shape, and never leaves in a log', (t) => {
  const tokens = Array.from({ length: 50 }, newToken);
  t.equal(new Set(tokens).size, 50);
  t.ok(tokens.every(isToken));
  const foreign = `ib_${'Zz09_-'.repeat(8).slice(0, 43)}`;
  t.equal(redactor.redact(`x=${foreign}; ${tokens[0] ?? ''}`), 'x=[redacted]; [redacted]');
  t.equal(redactor.redact('ib_uverbs_create_qp'), 'ib_uverbs_create_qp', 'names of InfiniBand are no tokens');
  t.notOk(isToken(` ${foreign}`));
  t.notOk(isToken(foreign.slice(1)));
  t.end();
});

t.test('a client takes its token from a file of its own, and from the environment last', async (t) => {
  const home = mkdtempSync(join(tmpdir(), 'infrabed-token-'));
  t.teardown(() => rmSync(home, { recursive: true }));
  const [first, second] = [newToken(), newToken()];
  const env = { XDG_CONFIG_HOME: join(home, 'none'), INFRABED_TOKEN: first };
  t.equal(await loadToken(env), first);
  const file = join(home, 'token');
  writeFileSync(file, `${second}\n`, { mode: 0o600 });
  t.equal(await loadToken({ ...env, INFRABED_TOKEN_FILE: file }), second);
  await t.rejects(loadToken({ ...env, INFRABED_TOKEN: '' }), { code: 'IB_SERVER', hint: /user add/ });
  await t.rejects(loadToken({ ...env, INFRABED_TOKEN_FILE: join(home, 'nix') }), {
    code: 'IB_SERVER',
    message: /cannot be read/,
  });
  await t.rejects(loadToken({ ...env, INFRABED_TOKEN: 'sesame-open' }), {
    code: 'IB_SERVER',
    message: /^(?!.*sesame).*is no token/,
  });
});
