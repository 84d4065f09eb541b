/**
 * The tables as a list of migrations. Only what SQLite and PostgreSQL both know is used (text, bigint, integer,
 * double precision); what differs between them stands in `dialectParts`, so that a second set is a second value.
 */
import { sql, type CreateTableBuilder, type Kysely, type Migration } from 'kysely';
import { postgresRules, sqliteRules, type CalendarRules } from './calendar-rules.js';

/** What the two databases write differently: a key that counts by itself, and rules that the database itself keeps. */
export interface DialectParts {
  countingKey<T extends string>(table: CreateTableBuilder<T>): CreateTableBuilder<T, 'id'>;
  rules: CalendarRules;
}

const sqliteParts: DialectParts = {
  countingKey: (table) => table.addColumn('id', 'integer', (column) => column.primaryKey().autoIncrement()),
  rules: sqliteRules,
};

/** For the store of several controller hosts. */
export const postgresParts: DialectParts = {
  countingKey: (table) =>
    table.addColumn('id', 'bigint', (column) => column.primaryKey().generatedByDefaultAsIdentity()),
  rules: postgresRules,
};

/** Migrations in order of their names. One that was ever released is never changed again. */
export function migrations(parts: DialectParts = sqliteParts): Record<string, Migration> {
  return {
    '0001-first-tables': {
      async up(db) {
        await createHoldings(db);
        await createTrials(db, parts);
      },
    },
    '0002-clean-records': {
      up: (db) => createCleanRecords(db, parts),
    },
    '0003-reservations': {
      async up(db) {
        await createCalendar(db);
        await extendHoldings(db);
        await createPeople(db, parts);
        await parts.rules.install(db);
      },
    },
  };
}

/** What we hold: sites, nodes, leases, clusters, and the controllers that act on them. */
async function createHoldings(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('sites')
    .addColumn('name', 'text', (column) => column.primaryKey())
    .addColumn('inventory', 'text', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('nodes')
    .addColumn('name', 'text', (column) => column.primaryKey())
    .addColumn('site', 'text', (column) => column.notNull().references('sites.name'))
    .addColumn('backend', 'text', (column) => column.notNull())
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('fault', 'text')
    .addColumn('lease', 'text')
    .execute();
  await db.schema
    .createTable('leases')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('owner', 'text', (column) => column.notNull())
    .addColumn('purpose', 'text', (column) => column.notNull())
    // Unique, so that two leases can never carry the same fencing token.
    .addColumn('generation', 'bigint', (column) => column.notNull().unique())
    .addColumn('starts_at', 'bigint', (column) => column.notNull())
    .addColumn('ends_at', 'bigint')
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('controller', 'text', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('controllers')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('pid', 'bigint', (column) => column.notNull())
    .addColumn('pid_start', 'bigint', (column) => column.notNull())
    .addColumn('started_at', 'bigint', (column) => column.notNull())
    .execute();
  await db.schema
    .createTable('clusters')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('lease', 'text', (column) => column.notNull())
    .addColumn('backend', 'text', (column) => column.notNull())
    .addColumn('layers', 'text', (column) => column.notNull())
    .addColumn('nodes', 'text', (column) => column.notNull())
    .addColumn('kept', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();
}

/** What we ran: trials, their phases, and the verdict of each check at each gate. */
async function createTrials(db: Kysely<unknown>, parts: DialectParts): Promise<void> {
  await db.schema
    .createTable('trials')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('task', 'text', (column) => column.notNull())
    .addColumn('agent', 'text', (column) => column.notNull())
    .addColumn('attempt', 'integer', (column) => column.notNull())
    .addColumn('lease', 'text')
    .addColumn('controller', 'text', (column) => column.notNull())
    .addColumn('bundle', 'text', (column) => column.notNull())
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('outcome', 'text')
    .addColumn('reward', 'double precision')
    .addColumn('started_at', 'bigint', (column) => column.notNull())
    .addColumn('ended_at', 'bigint')
    .execute();
  await parts
    .countingKey(db.schema.createTable('phases'))
    .addColumn('trial', 'text', (column) => column.notNull().references('trials.id'))
    .addColumn('phase', 'text', (column) => column.notNull())
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('at', 'bigint', (column) => column.notNull())
    .addColumn('detail', 'text')
    .execute();
  await db.schema
    .createTable('checks')
    .addColumn('trial', 'text', (column) => column.notNull().references('trials.id'))
    .addColumn('check_id', 'text', (column) => column.notNull())
    .addColumn('gate', 'text', (column) => column.notNull())
    .addColumn('verdict', 'text', (column) => column.notNull())
    .addColumn('weight', 'double precision', (column) => column.notNull())
    .addPrimaryKeyConstraint('checks_key', ['trial', 'check_id', 'gate'])
    .execute();
  await db.schema.createIndex('phases_of_trial').on('phases').columns(['trial', 'id']).execute();
  await db.schema.createIndex('trials_by_start').on('trials').column('started_at').execute();
  await db.schema.createIndex('nodes_of_lease').on('nodes').column('lease').execute();
}

/** Why each node was available: one row for each time it became so. */
async function createCleanRecords(db: Kysely<unknown>, parts: DialectParts): Promise<void> {
  await parts
    .countingKey(db.schema.createTable('clean_records'))
    .addColumn('node', 'text', (column) => column.notNull().references('nodes.name'))
    .addColumn('lease', 'text')
    .addColumn('method', 'text', (column) => column.notNull())
    .addColumn('proof', 'text', (column) => column.notNull())
    .addColumn('at', 'bigint', (column) => column.notNull())
    .execute();
}

/** A lease that ends before it begins has never been; the end of time is what an open end of old becomes. */
const endOfTime = Date.UTC(9999, 11, 31);

/** Leases with a booked end, and one booking for each of their nodes. */
async function createCalendar(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('leases_new')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('owner', 'text', (column) => column.notNull())
    .addColumn('purpose', 'text', (column) => column.notNull())
    .addColumn('site', 'text', (column) => column.notNull())
    .addColumn('wanted', 'text', (column) => column.notNull())
    .addColumn('own', 'integer', (column) => column.notNull())
    .addColumn('priority', 'integer', (column) => column.notNull())
    .addColumn('generation', 'bigint', (column) => column.notNull().unique())
    .addColumn('starts_at', 'bigint', (column) => column.notNull())
    .addColumn('ends_at', 'bigint', (column) => column.notNull())
    .addColumn('ended_at', 'bigint')
    .addColumn('end_reason', 'text')
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('controller', 'text')
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute();
  await sql`insert into leases_new
    (id, owner, purpose, site, wanted, own, priority, generation, starts_at, ends_at, ended_at, end_reason, state,
      controller, created_at)
    select id, owner, purpose, 'local', '{}', 1, 0, generation, starts_at, coalesce(ends_at, ${sql.lit(endOfTime)}),
      ends_at, case when ends_at is null then null else 'released' end, state, controller, starts_at
    from leases`.execute(db);
  await db.schema.dropTable('leases').execute();
  await db.schema.alterTable('leases_new').renameTo('leases').execute();
  await db.schema.createIndex('leases_by_state').on('leases').columns(['state', 'ends_at']).execute();
  await db.schema
    .createTable('bookings')
    .addColumn('lease', 'text', (column) => column.notNull().references('leases.id'))
    .addColumn('node', 'text', (column) => column.notNull().references('nodes.name'))
    .addColumn('starts_at', 'bigint', (column) => column.notNull())
    .addColumn('ends_at', 'bigint', (column) => column.notNull())
    .addColumn('busy_until', 'bigint', (column) => column.notNull())
    .addColumn('pinned', 'integer', (column) => column.notNull())
    .addPrimaryKeyConstraint('bookings_key', ['lease', 'node'])
    .addCheckConstraint('bookings_forward', sql`starts_at < ends_at and ends_at <= busy_until`)
    .execute();
  await db.schema
    .createIndex('bookings_of_node')
    .on('bookings')
    .columns(['node', 'starts_at', 'busy_until', 'lease', 'pinned'])
    .execute();
  // What was held by an open lease stays held.
  await sql`insert into bookings (lease, node, starts_at, ends_at, busy_until, pinned)
    select leases.id, nodes.name, leases.starts_at, leases.ends_at, leases.ends_at, 1
    from nodes inner join leases on leases.id = nodes.lease
    where leases.state = 'active' and leases.starts_at < leases.ends_at`.execute(db);
}

/** What nodes, controllers, trials and sites need beyond the first trial. */
async function extendHoldings(db: Kysely<unknown>): Promise<void> {
  const nodes = db.schema.alterTable('nodes');
  await nodes.addColumn('spec', 'text', (column) => column.notNull().defaultTo('{}')).execute();
  await nodes.addColumn('failures', 'integer', (column) => column.notNull().defaultTo(0)).execute();
  await nodes.addColumn('retired', 'integer', (column) => column.notNull().defaultTo(0)).execute();
  await nodes.addColumn('hold', 'text').execute();
  await nodes.addColumn('since', 'bigint', (column) => column.notNull().defaultTo(0)).execute();
  await nodes.addColumn('probe_at', 'bigint').execute();
  await nodes.addColumn('clean_record', 'bigint').execute();
  await nodes.addColumn('calendar_revision', 'bigint', (column) => column.notNull().defaultTo(0)).execute();
  const controllers = db.schema.alterTable('controllers');
  await controllers.addColumn('host', 'text', (column) => column.notNull().defaultTo('')).execute();
  await controllers.addColumn('heartbeat_at', 'bigint', (column) => column.notNull().defaultTo(0)).execute();
  const trials = db.schema.alterTable('trials');
  await trials.addColumn('owner', 'text', (column) => column.notNull().defaultTo('root')).execute();
  await trials.addColumn('request', 'text').execute();
  await trials.addColumn('progress', 'text').execute();
  await db.schema
    .alterTable('sites')
    .addColumn('added_at', 'bigint', (column) => column.notNull().defaultTo(0))
    .execute();
}

/** Who may ask, who changed what, and what has to be told. */
async function createPeople(db: Kysely<unknown>, parts: DialectParts): Promise<void> {
  await db.schema
    .createTable('users')
    .addColumn('name', 'text', (column) => column.primaryKey())
    .addColumn('role', 'text', (column) => column.notNull())
    .addColumn('token_hash', 'text', (column) => column.notNull().unique())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('revoked_at', 'bigint')
    .execute();
  await parts
    .countingKey(db.schema.createTable('changes'))
    .addColumn('at', 'bigint', (column) => column.notNull())
    .addColumn('actor', 'text', (column) => column.notNull())
    .addColumn('kind', 'text', (column) => column.notNull())
    .addColumn('subject', 'text', (column) => column.notNull())
    .addColumn('detail', 'text', (column) => column.notNull())
    .execute();
  await db.schema.createIndex('changes_of_subject').on('changes').columns(['subject', 'id']).execute();
  await db.schema
    .createTable('notices')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('kind', 'text', (column) => column.notNull())
    .addColumn('subject', 'text', (column) => column.notNull())
    .addColumn('payload', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('told', 'text', (column) => column.notNull())
    .addColumn('attempts', 'integer', (column) => column.notNull())
    .addColumn('next_try_at', 'bigint', (column) => column.notNull())
    .addColumn('delivered_at', 'bigint')
    .addColumn('error', 'text')
    .execute();
  await db.schema
    .createTable('marks')
    .addColumn('key', 'text', (column) => column.primaryKey())
    .addColumn('value', 'bigint', (column) => column.notNull())
    .execute();
}
