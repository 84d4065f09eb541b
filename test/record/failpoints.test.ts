// The store's failpoints: which writes have one, and that a kill falls on the side of the write that its name says.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { packageRoot } from '../../src/core/paths.js';
import { openStore } from '../../src/record/store/store.js';
import { writeOf } from '../../src/record/store/write-points.js';

function writeAndDie(stateDir: string, env: Record<string, string>): NodeJS.Signals | null {
  const program = join(packageRoot, 'test/fixtures/write-and-die.ts');
  return spawnSync(process.execPath, ['--import=tsx', program, stateDir], {
    cwd: packageRoot,
    env: { ...process.env, ...env },
  }).signal;
}

function newFolder(test: { teardown(action: () => unknown): void }): string {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-points-'));
  test.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

void t.test('every write has a point before and after; reads, migrations and heartbeats have none', (t) => {
  const stateDir = newFolder(t);
  const log = join(stateDir, 'points');
  t.equal(writeAndDie(stateDir, { INFRABED_FAILPOINT_LOG: log }), null);
  t.same(readFileSync(log, 'utf8').trim().split('\n'), [
    'store.controllers.insert.before#1',
    'store.controllers.insert.after#1',
    'store.commit.marks+sites.before#1',
    'store.commit.marks+sites.after#1',
    'store.marks.delete.before#1',
    'store.marks.delete.after#1',
  ]);
  t.end();
});

for (const [side, sites] of [
  ['before', 0],
  ['after', 1],
] as const) {
  void t.test(
    `killed ${side} a commit, the transaction is ${sites === 0 ? 'not' : 'wholly'} there`,
    async (t) => {
      const stateDir = newFolder(t);
      const signal = writeAndDie(stateDir, { INFRABED_FAILPOINT: `kill:store.commit.marks+sites.${side}#1` });
      t.equal(signal, 'SIGKILL');
      const store = await openStore(stateDir);
      t.equal((await store.db.selectFrom('sites').selectAll().execute()).length, sites);
      t.equal(
        (await store.db.selectFrom('marks').where('key', '=', 'test').selectAll().execute()).length,
        sites,
      );
      await store.close();
    },
  );
}

void t.test('a statement is known by its table and kind', (t) => {
  t.same(writeOf('insert into "trials" ("id") values (?)'), { table: 'trials', kind: 'insert' });
  t.same(writeOf('insert or ignore into "notices" ("id") values (?)'), { table: 'notices', kind: 'insert' });
  t.same(writeOf('update "controllers" set "host" = ?'), { table: 'controllers', kind: 'update' });
  t.same(writeOf('delete from "clusters" where "id" = ?'), { table: 'clusters', kind: 'delete' });
  t.equal(writeOf('update "controllers" set "heartbeat_at" = ? where "id" = ?'), undefined);
  t.equal(writeOf('select "insert" from "updates"'), undefined);
  t.end();
});
