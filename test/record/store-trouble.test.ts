// The store on a disk that is full or may only be read, in the hands of another process, and as an older version left it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import SqliteDatabase from 'better-sqlite3';
import { Kysely, Migrator, SqliteDialect } from 'kysely';
import t, { type Test } from 'tap';
import { run } from '../../src/core/exec.js';
import { packageRoot } from '../../src/core/paths.js';
import { migrations } from '../../src/record/store/migrations.js';
import { openStore } from '../../src/record/store/store.js';

const needsRoot = process.getuid?.() === 0 ? {} : { skip: 'mounting a small disk needs root' };

async function folderFor(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-store-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Runs the fixture in a mount namespace that `mounts` (a line of shell, `$1` the folder) has prepared. */
async function inTrouble(folder: string, mounts: string, trouble: string): Promise<unknown> {
  const fixture = join(packageRoot, 'test/fixtures/troubled-store.ts');
  const script = `${mounts} && exec "$2" --import=tsx "$3" "$1" "$4"`;
  const { stdout } = await run(
    'unshare',
    ['--mount', 'sh', '-c', script, 'sh', folder, process.execPath, fixture, trouble],
    { cwd: packageRoot, timeoutMs: 60_000 },
  );
  return JSON.parse(stdout);
}

void t.test('a full disk refuses a row, keeps what was there, and takes rows again', needsRoot, async (t) => {
  const folder = await folderFor(t);
  t.strictSame(await inTrouble(folder, 'mount -t tmpfs -o size=3m small "$1"', 'full'), {
    filled: 'foreign',
    refused: 'IB_DISK_FULL',
    again: 'none',
    names: ['after', 'before'],
  });
});

void t.test('a store that may only be read says so, and what to do', needsRoot, async (t) => {
  const folder = await folderFor(t);
  const store = await openStore(folder);
  await store.close();
  const readOnly = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1"';
  t.match(await inTrouble(folder, readOnly, 'read-only'), {
    code: 'IB_STORE',
    message: /may not be written to|cannot be opened/,
  });
});

void t.test('a store that another process keeps locked is named with who to look for', async (t) => {
  const folder = await folderFor(t);
  const store = await openStore(folder, { busyTimeoutMs: 100 });
  t.teardown(() => store.close());
  const holder = spawn(
    process.execPath,
    [
      '-e',
      "const S=require('better-sqlite3');const d=new S(process.argv[1]);d.exec('begin immediate');console.log('held');setInterval(()=>0,1000)",
      store.path,
    ],
    { cwd: packageRoot, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  t.teardown(() => holder.kill('SIGKILL'));
  await once(holder.stdout, 'data');
  await t.rejects(store.db.insertInto('sites').values({ name: 's', inventory: '' }).execute(), {
    code: 'IB_STORE',
    message: /stayed locked by another process/,
    hint: /fuser/,
  });
  holder.kill('SIGKILL');
  await once(holder, 'exit');
  await store.db.insertInto('sites').values({ name: 's', inventory: '' }).execute();
  t.equal((await store.db.selectFrom('sites').selectAll().execute()).length, 1, 'and it goes on afterwards');
});

void t.test('a store of before reservations keeps its leases, and what they held stays held', async (t) => {
  const folder = await folderFor(t);
  const path = join(folder, 'store.sqlite');
  const raw = new SqliteDatabase(path);
  const old = new Kysely<unknown>({ dialect: new SqliteDialect({ database: raw }) });
  const known = Object.fromEntries(Object.entries(migrations()).filter(([name]) => name < '0003'));
  const migrator = new Migrator({
    db: old,
    provider: { getMigrations: () => Promise.resolve(known) },
  });
  const { error } = await migrator.migrateToLatest();
  t.equal(error, undefined);
  raw.exec(`
    insert into sites values ('local', '{}');
    insert into leases values ('l-old', 'ada', 'trial', 1, 1000, 2000, 'ended', 'c-1');
    insert into leases values ('l-kept', 'ada', 'cluster up', 2, 3000, null, 'active', 'c-2');
    insert into nodes values ('local/n01', 'local', 'container', 'active', null, 'l-kept');
    insert into nodes values ('local/n02', 'local', 'container', 'available', null, null);
  `);
  await old.destroy();
  const store = await openStore(folder);
  t.teardown(() => store.close());
  const leases = await store.db.selectFrom('leases').selectAll().orderBy('generation').execute();
  t.match(leases, [
    { id: 'l-old', state: 'ended', ends_at: 2000, ended_at: 2000, end_reason: 'released', own: 1 },
    { id: 'l-kept', state: 'active', ended_at: null, controller: 'c-2' },
  ]);
  t.match(await store.db.selectFrom('bookings').selectAll().execute(), [
    { lease: 'l-kept', node: 'local/n01', starts_at: 3000, pinned: 1 },
  ]);
  const clash = {
    lease: 'l-old',
    node: 'local/n01',
    starts_at: 9000,
    ends_at: 9001,
    busy_until: 9001,
    pinned: 1,
  };
  await t.rejects(store.db.insertInto('bookings').values(clash).execute(), /bookings overlap/);
  await t.rejects(
    store.db.updateTable('nodes').set({ state: 'available' }).where('name', '=', 'local/n01').execute(),
    /not proven clean/,
  );
});
