// The store: opening, migrating, refusing what it cannot read, and telling live controllers from dead ones.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import SqliteDatabase from 'better-sqlite3';
import { sql } from 'kysely';
import t from 'tap';
import { systemClock } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import {
  controllerIsAlive,
  deadControllers,
  processStart,
  registerController,
  unregisterController,
} from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';

async function stateFolder(test: { teardown(action: () => unknown): void }): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-store-'));
  test.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function codeOf(action: () => Promise<unknown>): Promise<string> {
  try {
    await action();
    return 'no error';
  } catch (error) {
    return isInfrabedError(error) ? error.code : String(error);
  }
}

const trial = {
  id: 't-1',
  task: 'infrabed/x',
  agent: 'noop',
  attempt: 1,
  lease: null,
  controller: 'c-1',
  bundle: '/nowhere',
  state: 'running',
  outcome: null,
  reward: null,
  started_at: 1_790_000_000_123,
  ended_at: null,
};

t.test('a fresh state folder gets a migrated store that keeps what is written', async (t) => {
  const folder = join(await stateFolder(t), 'not', 'yet', 'there');
  const first = await openStore(folder);
  await first.db.insertInto('trials').values(trial).execute();
  await first.db
    .insertInto('phases')
    .values({ trial: 't-1', phase: 'lease', state: 'begun', at: 1, detail: null })
    .execute();
  await first.close();
  const again = await openStore(folder);
  const row = await again.db.selectFrom('trials').selectAll().executeTakeFirstOrThrow();
  t.match(row, trial, 'epoch milliseconds survive as numbers');
  t.equal(
    await codeOf(() =>
      again.db
        .insertInto('phases')
        .values({ trial: 'unknown', phase: 'lease', state: 'begun', at: 1, detail: null })
        .execute(),
    ),
    'IB_STORE',
    'a phase of a trial that is not there is refused',
  );
  await again.close();
});

t.test('several openings of a new store at once all succeed', async (t) => {
  const folder = await stateFolder(t);
  const script =
    "import('./src/record/store/store.ts').then(async ({ openStore }) => { const s = await openStore(process.argv[1]); await s.close(); })";
  const processes = Array.from({ length: 4 }, () =>
    spawn(process.execPath, ['--import=tsx', '-e', script, folder], { stdio: 'inherit' }),
  );
  const codes = await Promise.all(processes.map(async (child) => (await once(child, 'exit'))[0] as number));
  t.strictSame(codes, [0, 0, 0, 0]);
});

t.test('a transaction that reads and then writes waits for the other one', async (t) => {
  const folder = await stateFolder(t);
  const [one, other] = [await openStore(folder), await openStore(folder)];
  t.teardown(() => Promise.all([one.close(), other.close()]));
  await one.db.insertInto('sites').values({ name: 's', inventory: '0' }).execute();
  const count = async (store: typeof one): Promise<void> => {
    await store.db.transaction().execute(async (trx) => {
      const row = await trx.selectFrom('sites').select('inventory').executeTakeFirstOrThrow();
      await trx
        .updateTable('sites')
        .set({ inventory: String(Number(row.inventory) + 1) })
        .execute();
    });
  };
  // One process cannot wait for itself (SQLite blocks), so the two take turns; neither sees SQLITE_BUSY_SNAPSHOT.
  for (let turn = 0; turn < 10; turn++) await count(turn % 2 === 0 ? one : other);
  t.equal((await one.db.selectFrom('sites').selectAll().executeTakeFirstOrThrow()).inventory, '10');
});

t.test('a store of a newer version is refused and left as it is', async (t) => {
  const folder = await stateFolder(t);
  const store = await openStore(folder);
  await store.close();
  const raw = new SqliteDatabase(store.path);
  raw.prepare("insert into kysely_migration (name, timestamp) values ('0099-from-the-future', 'x')").run();
  raw.close();
  await t.rejects(openStore(folder), { code: 'IB_STORE_NEWER', message: /0099-from-the-future/ });
});

t.test('a file that is no database is refused with what to do', async (t) => {
  const folder = await stateFolder(t);
  await writeFile(
    join(folder, 'store.sqlite'),
    'this is not a database, but it is long enough to look like one'.repeat(20),
  );
  await t.rejects(openStore(folder), {
    code: 'IB_STORE',
    message: /is not a database/,
    hint: /Move the file away/,
  });
  t.match(await readFile(join(folder, 'store.sqlite'), 'utf8'), /^this is not/, 'and it is not touched');
});

t.test('a state folder that cannot be made is IB_STATE_DIR', async (t) => {
  const folder = await stateFolder(t);
  await writeFile(join(folder, 'file'), '');
  await t.rejects(openStore(join(folder, 'file', 'state')), {
    code: 'IB_STATE_DIR',
    hint: /INFRABED_STATE_DIR/,
  });
});

t.test('a store that stays locked says so', async (t) => {
  const folder = await stateFolder(t);
  const store = await openStore(folder, { busyTimeoutMs: 50 });
  t.teardown(() => store.close());
  const raw = new SqliteDatabase(store.path);
  raw.exec('begin immediate');
  t.teardown(() => raw.close());
  await t.rejects(store.db.insertInto('sites').values({ name: 's', inventory: '' }).execute(), {
    code: 'IB_STORE',
    message: /stayed locked/,
    hint: /fuser/,
  });
});

t.test('a full disk is IB_DISK_FULL', async (t) => {
  const folder = await stateFolder(t);
  const store = await openStore(folder);
  t.teardown(() => store.close());
  // SQLite gives the same SQLITE_FULL at its own limit as on a full disk.
  await sql`pragma max_page_count = 1`.execute(store.db);
  const big = { name: 'big', inventory: 'x'.repeat(1e6) };
  t.equal(await codeOf(() => store.db.insertInto('sites').values(big).execute()), 'IB_DISK_FULL');
});

t.test('a controller is alive until its process ends', async (t) => {
  const folder = await stateFolder(t);
  const store = await openStore(folder);
  t.teardown(() => store.close());
  const mine = await registerController(store, systemClock);
  const child = spawn('sleep', ['60']);
  t.teardown(() => child.kill('SIGKILL'));
  const theirs = await registerController(store, systemClock, child.pid);
  t.equal(await controllerIsAlive(store, mine), true);
  t.equal(await controllerIsAlive(store, theirs), true);
  t.equal(await controllerIsAlive(store, 'c-unknown'), false);
  child.kill('SIGKILL');
  await once(child, 'exit');
  t.equal(await controllerIsAlive(store, theirs), false);
  t.strictSame(await deadControllers(store), [theirs]);
  await unregisterController(store, theirs);
  t.strictSame(await deadControllers(store), []);
});

t.test('a recycled pid is not taken for the controller that had it', async (t) => {
  const folder = await stateFolder(t);
  const store = await openStore(folder);
  t.teardown(() => store.close());
  const row = {
    id: 'c-old',
    pid: process.pid,
    pid_start: ((await processStart(process.pid)) ?? 0) - 1,
    started_at: 0,
  };
  await store.db.insertInto('controllers').values(row).execute();
  t.equal(await controllerIsAlive(store, 'c-old'), false);
});
