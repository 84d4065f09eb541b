/**
 * The tables as a list of migrations. Only what SQLite and PostgreSQL both know is used (text, bigint, integer,
 * double precision); what differs between them stands in `dialectParts`, so that a second set is a second value.
 */
import type { CreateTableBuilder, Kysely, Migration } from 'kysely';

/** The one thing that the two databases write differently: a key that counts by itself. */
interface DialectParts {
  countingKey<T extends string>(table: CreateTableBuilder<T>): CreateTableBuilder<T, 'id'>;
}

const sqliteParts: DialectParts = {
  countingKey: (table) => table.addColumn('id', 'integer', (column) => column.primaryKey().autoIncrement()),
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
