/** The same migrations on a real PostgreSQL: it takes all of them, and refuses what SQLite refuses. */
import { chown, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import {
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type CompiledQuery,
  type DatabaseConnection,
  type QueryResult,
} from 'kysely';
import t from 'tap';
import { run } from '../../src/core/exec.js';
import { notCleanMessage, overlapConstraint } from '../../src/record/store/calendar-rules.js';
import { migrations, postgresParts } from '../../src/record/store/migrations.js';

t.setTimeout(180_000);

/** Takes statements down instead of carrying them out: `psql` does that, so that no driver is needed. */
class Recorder extends DummyDriver {
  constructor(readonly statements: string[]) {
    super();
  }

  override acquireConnection(): Promise<DatabaseConnection> {
    const { statements } = this;
    return Promise.resolve({
      executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
        if (parameters.length > 0) throw new Error(`a migration with parameters: ${sql}`);
        statements.push(`${sql};`);
        return Promise.resolve({ rows: [] });
      },
      streamQuery() {
        throw new Error('a migration reads nothing');
      },
    });
  }
}

async function statementsOf(name: string): Promise<string> {
  const statements: string[] = [];
  const db = new Kysely<unknown>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new Recorder(statements),
      createIntrospector: (of) => new PostgresIntrospector(of),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
  await migrations(postgresParts)[name]!.up(db);
  return statements.join('\n');
}

/** The newest PostgreSQL of this machine. */
async function binaries(): Promise<string | undefined> {
  const root = '/usr/lib/postgresql';
  const versions = await readdir(root).catch(() => []);
  const newest = versions.sort((a, b) => Number(a) - Number(b)).at(-1);
  return newest === undefined ? undefined : join(root, newest, 'bin');
}

t.test('PostgreSQL takes every migration and keeps the same rules', async (t) => {
  const bin = await binaries();
  if (bin === undefined) {
    t.comment('skipped: PostgreSQL is not installed (make setup)');
    return;
  }
  // It refuses to run as root; 65534 is nobody.
  const isRoot = process.getuid?.() === 0;
  const drop = isRoot ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'] : [];
  const folder = await mkdtemp('/tmp/infrabed-pg-');
  if (isRoot) await chown(folder, 65534, 65534);
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const data = join(folder, 'data');
  await mkdir(data, { mode: 0o700 });
  if (isRoot) await chown(data, 65534, 65534);
  const asNobody = (program: string, ...args: string[]): ReturnType<typeof run> => {
    const [first = program, ...others] = [...drop, join(bin, program), ...args];
    return run(first, others, { cwd: folder });
  };
  await asNobody('initdb', '-D', data, '-A', 'trust', '-U', 'test', '--no-sync', '-E', 'UTF8');
  // No TCP: the socket lies in the folder.
  const options = `-c listen_addresses= -c unix_socket_directories=${folder} -c fsync=off`;
  await asNobody('pg_ctl', '-D', data, '-o', options, '-w', '-l', join(folder, 'log'), 'start');
  t.teardown(() => asNobody('pg_ctl', '-D', data, '-m', 'immediate', '-w', 'stop'));

  const psql = (sql: string): Promise<string> => {
    const args = [
      '-h',
      folder,
      '-U',
      'test',
      '-d',
      'postgres',
      '-X',
      '-q',
      '-A',
      '-t',
      '-v',
      'ON_ERROR_STOP=1',
      '-c',
      sql,
    ];
    return asNobody('psql', ...args).then((done) => done.stdout.trim());
  };

  const names = Object.keys(migrations(postgresParts)).sort();
  for (const name of names) {
    if (name.startsWith('0003')) {
      // What was held before reservations stays held.
      await psql(`insert into sites values ('local', '{}');
        insert into leases values ('l-old', 'ada', 'trial', 7, 1000, 9000, 'active', 'c-1');
        insert into nodes values ('local/n01', 'local', 'container', 'leased', null, 'l-old'),
          ('local/n02', 'local', 'container', 'cleaning', null, null)`);
    }
    await psql(`begin; ${await statementsOf(name)} commit`);
  }
  t.equal(
    await psql("select node, starts_at, busy_until from bookings where lease = 'l-old'"),
    'local/n01|1000|9000',
  );

  const lease = (id: string, generation: number): string =>
    `insert into leases (id, owner, purpose, site, wanted, own, priority, generation, starts_at, ends_at, state, created_at)
      values ('${id}', 'bob', 'x', 'local', '{}', 0, 0, ${String(generation)}, 0, 1, 'reserved', 0)`;
  const booking = (id: string, node: string, from: number, to: number): string =>
    `insert into bookings values ('${id}', '${node}', ${String(from)}, ${String(to)}, ${String(to)}, 0)`;
  await psql(`${lease('l-2', 8)}; ${lease('l-3', 9)}`);
  await t.rejects(psql(booking('l-2', 'local/n01', 8999, 12_000)), {
    message: new RegExp(overlapConstraint),
  });
  await t.rejects(psql(booking('l-2', 'local/n01', 9000, 9000)), { message: /bookings_forward/ });
  await psql(booking('l-2', 'local/n01', 9000, 12_000));
  await psql(booking('l-3', 'local/n02', 9000, 12_000));
  await t.rejects(psql("update bookings set node = 'local/n01' where lease = 'l-3'"), {
    message: new RegExp(overlapConstraint),
  });
  await t.rejects(psql("update bookings set starts_at = 8000 where lease = 'l-2'"), {
    message: new RegExp(overlapConstraint),
  });

  const available = (clean: string): string =>
    `update nodes set state = 'available', clean_record = ${clean} where name = 'local/n02'`;
  await psql(
    `insert into clean_records (node, method, proof, at) values ('local/n01', 'x', '{}', 1), ('local/n02', 'x', '{}', 1)`,
  );
  await t.rejects(psql(available('null')), { message: new RegExp(notCleanMessage) });
  await t.rejects(psql(available("(select id from clean_records where node = 'local/n01')")), {
    message: new RegExp(notCleanMessage),
  });
  await psql(available("(select id from clean_records where node = 'local/n02')"));
  await psql("update nodes set state = 'leased' where name = 'local/n02'");
  await t.rejects(
    psql(available('clean_record')),
    { message: new RegExp(notCleanMessage) },
    'the old record again',
  );

  const before = await psql("select calendar_revision from nodes where name = 'local/n01'");
  await psql("delete from bookings where lease = 'l-3'");
  t.equal(
    await psql("select calendar_revision from nodes where name = 'local/n01'"),
    before,
    'another node was changed',
  );
  t.equal(
    await psql(
      "select nodes.calendar_revision = marks.value from nodes, marks where name = 'local/n02' and key = 'calendar'",
    ),
    't',
  );
});
