/**
 * A shared site: a real server, two users without privileges, a hook. They reserve, run a trial through the server, are
 * kept from each other's leases, and a lease that ends while a trial runs ends it in order.
 */
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import t from 'tap';
import { systemClock, waitFor } from '../../src/core/clock.js';
import { run, start, type RunResult } from '../../src/core/exec.js';
import { asset, stateDir as defaultStateDir } from '../../src/core/paths.js';
import { verifyLedger } from '../../src/record/ledger/verify.js';
import { openStore } from '../../src/record/store/store.js';
import { imageCacheDir } from '../../src/testbed/driver/container/index.js';
import { leftovers } from './trial-harness.js';
import { needsRoot } from './needs-root.js';

needsRoot(t);
t.setTimeout(900_000);

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-site-')));
chmodSync(folder, 0o755);
const stateDir = join(folder, 'state');
const socket = join(folder, 'run', 'api.sock');
const heard = join(folder, 'heard');
const onServer = {
  INFRABED_STATE_DIR: stateDir,
  INFRABED_IMAGE_CACHE: process.env['INFRABED_IMAGE_CACHE'] ?? imageCacheDir(defaultStateDir()),
  INFRABED_TASKS: asset('test/e2e/fixtures'),
};
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const command = ['--import=tsx', asset('test/e2e/command.ts')];

function asRoot(...words: string[]): Promise<RunResult> {
  return run(process.execPath, [...command, ...words], {
    env: onServer,
    allowFailure: true,
    timeoutMs: 300_000,
  });
}

/** The command line through the server, as a user of this machine that may read nothing of the state folder. */
function asUser(token: string, ...words: string[]): Promise<RunResult> {
  const env = { INFRABED_SERVER: `unix:${socket}`, INFRABED_TOKEN: token, HOME: folder };
  const nobody = ['--reuid=65534', '--regid=65534', '--clear-groups', process.execPath];
  return run('setpriv', [...nobody, ...command, ...words], { env, allowFailure: true, timeoutMs: 600_000 });
}

interface Told {
  id: string;
  kind: string;
  subject: string;
}
const notices = (): Told[] =>
  readFileSync(heard, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Told);

/** The first line of what a command printed as JSON. */
function json({ stdout, stderr }: RunResult): unknown {
  const [line] = stdout.split('\n').filter(Boolean);
  if (line === undefined) throw new Error(stderr);
  return JSON.parse(line);
}

async function serve(): Promise<{ end(): Promise<number | null> }> {
  const words = ['serve', '--socket', socket];
  const child = start(process.execPath, [...command, ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...onServer },
  });
  t.teardown(() => void child.kill('SIGKILL'));
  if (child.stdout === null) throw new Error('It has a standard output.');
  await once(createInterface({ input: child.stdout }), 'line');
  return {
    async end() {
      child.kill('SIGTERM');
      const [status] = (await once(child, 'close')) as [number | null];
      return status;
    },
  };
}

t.test('two users share a site', async (t) => {
  const tokens = { ada: '', bob: '' };
  for (const name of ['ada', 'bob'] as const) {
    const added = await asRoot('user', 'add', name);
    t.equal(added.exitCode, 0, added.stderr);
    tokens[name] = added.stdout.trim();
  }
  const hook = join(folder, 'hook.sh');
  writeFileSync(heard, '');
  writeFileSync(hook, `#!/bin/sh\ncat >> '${heard}'\n`, { mode: 0o755 });
  writeFileSync(
    join(stateDir, 'settings.yaml'),
    `lease: { warning_sec: 3600, grace_sec: 60, cleaning_gap_sec: 60 }\nnotices: { hook: ['${hook}'] }\n`,
  );
  const server = await serve();

  interface LeaseLine {
    id: string;
    nodes: string[];
    state: string;
    generation: number;
  }
  const reserve = async (token: string, ...words: string[]): Promise<LeaseLine> => {
    const reserved = await asUser(token, 'reserve', '--json', '--why', 'a test', ...words);
    t.equal(reserved.exitCode, 0, reserved.stderr);
    return json(reserved) as LeaseLine;
  };
  // Shorter than the warning of the settings, which so comes at once.
  const adas = await reserve(tokens.ada, '--nodes', '2', '--for', '50m');
  const bobs = await reserve(tokens.bob, '--node', 'n08', '--for', '1h', '--at', '+3h');
  t.match(adas, { state: 'active', nodes: { length: 2 } });
  t.match(bobs, { state: 'reserved', nodes: ['local/n08'] });

  await t.test('neither can touch what is the other’s, and both see it', async (t) => {
    const refused = await asUser(tokens.bob, 'lease', 'release', adas.id, '--yes');
    t.match(refused, { exitCode: 3, stderr: /^IB_NOT_ALLOWED: The lease .* belongs to ada/m });
    t.match(await asUser(tokens.bob, 'run', 'goal', '--lease', adas.id, '--json'), {
      exitCode: 3,
      stdout: /IB_NOT_ALLOWED|infra_error/,
    });
    t.match(await asUser(tokens.bob, 'node', 'quarantine', 'n05', '--why', 'x', '--yes'), {
      exitCode: 3,
      stderr: /^IB_NOT_ALLOWED/m,
    });
    const listed = await asUser(tokens.bob, 'lease', 'list', '--json');
    t.match(listed.stdout, new RegExp(adas.id));
  });

  await t.test('an agent from anywhere, or with the network of the host, is the operator’s', async (t) => {
    const asked = ['run', 'goal', '--lease', adas.id];
    for (const words of [
      ['--agent', 'command:/root/agent'],
      ['--network', 'host'],
      ['--agent-path', '/root'],
    ]) {
      const refused = await asUser(tokens.ada, ...asked, ...words);
      t.match(refused, { exitCode: 3, stderr: /^IB_NOT_ALLOWED/m }, words.join(' '));
    }
  });

  await t.test('a trial runs on the lease through the server, which stays its owner’s', async (t) => {
    const ran = await asUser(tokens.ada, 'run', 'goal', '--lease', adas.id, '--json');
    t.equal(ran.exitCode, 0, ran.stderr);
    const score = json(ran) as { outcome: string; trial: string; bundle: string };
    t.equal(score.outcome, 'resolved');
    t.match(ran.stderr, /immediate/, 'its progress was shown');
    const page = await asUser(tokens.bob, 'trial', 'report', score.trial, '--format', 'html');
    t.match(page.stdout, /<!doctype html>/i);
    const after = json(await asUser(tokens.ada, 'lease', 'show', adas.id, '--json')) as LeaseLine;
    t.match(after, { state: 'active', nodes: adas.nodes });
    t.ok(after.generation > adas.generation, 'taken in hand under a generation of its own');
  });

  await t.test('a lease that ends while a trial runs on it ends the trial in order', async (t) => {
    const running = asUser(tokens.ada, 'run', 'goal', '--lease', adas.id, '--json');
    const store = await openStore(stateDir);
    t.teardown(() => store.close());
    await waitFor(
      'the trial to reach its agent',
      async () => {
        const rows = await store.db
          .selectFrom('phases')
          .select('phase')
          .where('phase', '=', 'agent')
          .execute();
        // Begun and verified of the trial before, and begun of this one.
        return rows.length > 2 ? true : undefined;
      },
      { timeoutMs: 240_000, intervalMs: 100 },
    );
    // As if its time were over: nobody waits that long in a test.
    const now = systemClock.now();
    await store.db
      .updateTable('bookings')
      .set({ ends_at: now, busy_until: now + 60_000 })
      .where('lease', '=', adas.id)
      .execute();
    await store.db.updateTable('leases').set({ ends_at: now }).where('id', '=', adas.id).execute();
    const ended = await running;
    const score = json(ended) as { outcome: string; bundle: string };
    t.match(ended, { exitCode: 3, stderr: /IB_LEASE_ENDED/ });
    t.equal(score.outcome, 'cancelled');
    t.match(await verifyLedger(score.bundle), { ok: true }, 'its record was closed and sealed');
    t.ok(existsSync(join(score.bundle, 'report.html')));
    await waitFor(
      'the server to end the lease',
      async () => {
        const lease = json(await asUser(tokens.ada, 'lease', 'show', adas.id, '--json')) as LeaseLine;
        return lease.state === 'ended' ? true : undefined;
      },
      { timeoutMs: 60_000, intervalMs: 500 },
    );
    const free = await store.db
      .selectFrom('nodes')
      .select('name')
      .where('state', '!=', 'available')
      .execute();
    t.strictSame(free, [], 'every node is available again');
  });

  await t.test('the hook heard of it, each notice under an id of its own', async (t) => {
    const wanted = ['lease.started', 'lease.warning', 'trial.ended', 'lease.ended'];
    await waitFor(
      'the notices',
      () => (wanted.every((kind) => notices().some((told) => told.kind === kind)) ? true : undefined),
      { timeoutMs: 60_000, intervalMs: 200 },
    );
    const ids = notices().map(({ id }) => id);
    t.equal(new Set(ids).size, ids.length);
    t.ok(notices().some(({ kind, subject }) => kind === 'lease.ended' && subject === adas.id));
  });

  await t.test('every change has its actor', async (t) => {
    const store = await openStore(stateDir);
    const changes = await store.db.selectFrom('changes').select(['actor', 'kind', 'subject']).execute();
    await store.close();
    t.match(
      changes.filter(({ subject }) => subject === bobs.id),
      [{ actor: 'bob', kind: 'lease.reserved' }],
    );
    t.ok(changes.every(({ actor }) => ['ada', 'bob', 'root', 'controller'].includes(actor)));
  });

  t.equal(await server.end(), 0);
  t.strictSame(leftovers(stateDir), [], 'nothing is left on the machine');
});
