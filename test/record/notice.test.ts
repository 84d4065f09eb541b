import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Clock } from '../../src/core/clock.js';
import { deliverNotices } from '../../src/record/notice/deliver.js';
import { postNotice } from '../../src/record/notice/post.js';
import { openStore, type Store } from '../../src/record/store/store.js';

interface Bench {
  folder: string;
  store: Store;
  clock: Clock & { at: number };
  post: (subject?: string) => Promise<void>;
}

async function bench(t: Test): Promise<Bench> {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-notice-'));
  const store = await openStore(folder);
  t.teardown(async () => {
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const clock = { at: Date.UTC(2026, 0, 1), now: () => clock.at, sleep: () => Promise.resolve() };
  return {
    folder,
    store,
    clock,
    post: (subject = 'l-1') =>
      postNotice(store.db, clock, {
        kind: 'lease.warning',
        subject,
        occasion: 5,
        payload: { owner: 'ada' },
      }),
  };
}

/** A hook that appends what it gets to a file, and fails while the file `broken` is there. */
function hookIn(folder: string): { hook: string[]; heard: () => Record<string, unknown>[]; broken: string } {
  const program = join(folder, 'hook.sh');
  const file = join(folder, 'heard');
  const broken = join(folder, 'broken');
  writeFileSync(
    program,
    `#!/bin/sh\nif [ -e '${broken}' ]; then echo nobody home >&2; exit 9; fi\ncat >> '${file}'\n`,
  );
  chmodSync(program, 0o755);
  writeFileSync(file, '');
  const heard = (): Record<string, unknown>[] =>
    readFileSync(file, 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  return { hook: [program], heard, broken };
}

async function webhook(
  t: Test,
  status: () => number,
): Promise<{ url: string; calls: { id: string | undefined; body: Record<string, unknown> }[] }> {
  const calls: { id: string | undefined; body: Record<string, unknown> }[] = [];
  const server = createServer((request: IncomingMessage, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      const id = request.headers['infrabed-notice'];
      calls.push({ id: typeof id === 'string' ? id : undefined, body: JSON.parse(text) as never });
      response.writeHead(status()).end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return {
    url: `http://127.0.0.1:${String((server.address() as AddressInfo).port)}/token-of-the-channel`,
    calls,
  };
}

void t.test(
  'a notice posted twice for one occasion is one notice, told to hook and webhook by one id',
  async (t) => {
    const { folder, store, clock, post } = await bench(t);
    const { hook, heard } = hookIn(folder);
    const web = await webhook(t, () => 204);
    await post();
    await post();
    t.match(await deliverNotices(store, { hook, webhook: web.url }, clock), { delivered: 1, failed: [] });
    const expected = { id: 'lease.warning:l-1:5', kind: 'lease.warning', subject: 'l-1', owner: 'ada' };
    t.match(heard(), [{ ...expected, at: '2026-01-01T00:00:00.000Z' }]);
    t.match(web.calls, [{ id: 'lease.warning:l-1:5', body: expected }]);
    t.match(
      await deliverNotices(store, { hook, webhook: web.url }, clock),
      { delivered: 0 },
      'and never again',
    );
    t.equal(heard().length, 1);
  },
);

void t.test('what could not be told is told later, and only to whom has not heard it', async (t) => {
  const { folder, store, clock, post } = await bench(t);
  const { hook, heard, broken } = hookIn(folder);
  writeFileSync(broken, '');
  const web = await webhook(t, () => 200);
  await post();
  const first = await deliverNotices(store, { hook, webhook: web.url }, clock);
  t.match(first.failed, [/hook: .*status 9: nobody home/]);
  t.match(
    await deliverNotices(store, { hook, webhook: web.url }, clock),
    { failed: [] },
    'not before its time',
  );
  rmSync(broken);
  clock.at += 10_000;
  t.match(await deliverNotices(store, { hook, webhook: web.url }, clock), { delivered: 1, failed: [] });
  t.equal(heard().length, 1);
  t.equal(web.calls.length, 1, 'the webhook had it already');
});

void t.test('a webhook that refuses or cannot be reached is named without its address', async (t) => {
  const { store, clock, post } = await bench(t);
  const web = await webhook(t, () => 503);
  await post('l-1');
  const refused = await deliverNotices(store, { hook: null, webhook: web.url }, clock);
  t.match(refused.failed, [/webhook: The webhook answered with status 503/]);
  await post('l-2');
  const gone = await deliverNotices(store, { hook: null, webhook: 'http://127.0.0.1:9/secret-token' }, clock);
  t.match(gone.failed, [/could not be called/]);
  const rows = await store.db.selectFrom('notices').select('error').execute();
  t.notMatch(JSON.stringify([refused, gone, rows]), /token/);
});

void t.test('a delivery that died half-way is taken up again by the next controller', async (t) => {
  const { folder, store, clock, post } = await bench(t);
  const { hook, heard } = hookIn(folder);
  await post();
  // As the dead controller left it: claimed, but not written down as told.
  await store.db
    .updateTable('notices')
    .set({ attempts: 1, next_try_at: clock.at + 90_000 })
    .execute();
  t.match(await deliverNotices(store, { hook, webhook: null }, clock), { delivered: 0, failed: [] });
  clock.at += 90_000;
  t.match(await deliverNotices(store, { hook, webhook: null }, clock), { delivered: 1 });
  t.equal(heard().length, 1);
});

void t.test('two controllers at once tell a notice once, and with nobody to tell it is done', async (t) => {
  const { folder, store, clock, post } = await bench(t);
  const { hook, heard } = hookIn(folder);
  await post();
  const settings = { hook, webhook: null };
  await Promise.all([deliverNotices(store, settings, clock), deliverNotices(store, settings, clock)]);
  t.equal(heard().length, 1);
  await post('l-2');
  await deliverNotices(store, { hook: null, webhook: null }, clock);
  clock.at += 86_400_000;
  await deliverNotices(store, settings, clock);
  t.equal(heard().length, 1, 'old news are not told to a hook of later');
});
