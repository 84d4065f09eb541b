/** The store: one SQLite file in the state folder, opened through Kysely and brought to the newest migration. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import SqliteDatabase from 'better-sqlite3';
import { Kysely, Migrator, SqliteDialect, type SqliteDatabase as KyselySqlite } from 'kysely';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import { failpointsOn } from '../../core/failpoint.js';
import { migrations } from './migrations.js';
import type { Database } from './schema.js';
import { storeError } from './store-error.js';
import { WritePoints } from './write-points.js';

export type { Database } from './schema.js';

/**
 * How long a statement waits for other controllers' writes before it gives up. SQLite lets whoever asks next go first,
 * not whoever waits longest, so twenty that reserve at once need patience.
 */
const defaultBusyTimeoutMs = 60_000;

export interface Store {
  readonly db: Kysely<Database>;
  /** The SQLite file. */
  readonly path: string;
  close(): Promise<void>;
}

/**
 * Opens the store of a state folder, making and migrating it where needed. Safe with several processes at once.
 * @throws InfrabedError IB_STATE_DIR, IB_STORE (unreadable, locked, damaged), IB_DISK_FULL or IB_STORE_NEWER.
 */
export async function openStore(stateDir: string, options: { busyTimeoutMs?: number } = {}): Promise<Store> {
  makeStateDir(stateDir);
  const path = join(stateDir, 'store.sqlite');
  const raw = openFile(path, options.busyTimeoutMs ?? defaultBusyTimeoutMs);
  const db = new Kysely<Database>({ dialect: new SqliteDialect({ database: translating(raw, path) }) });
  try {
    await migrate(db, raw, path);
  } catch (error) {
    await db.destroy();
    throw error;
  }
  return { db, path, close: () => db.destroy() };
}

function makeStateDir(stateDir: string): void {
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  } catch (error) {
    const full = errnoOf(error) === 'ENOSPC';
    throw new InfrabedError(
      full ? 'IB_DISK_FULL' : 'IB_STATE_DIR',
      `The state folder ${stateDir} cannot be made: ${messageOf(error)}.`,
      { hint: 'Name a folder that you may write to in INFRABED_STATE_DIR.', cause: error },
    );
  }
}

function openFile(path: string, busyTimeoutMs: number): SqliteDatabase.Database {
  let raw: SqliteDatabase.Database | undefined;
  try {
    raw = new SqliteDatabase(path, { timeout: busyTimeoutMs });
    raw.pragma('journal_mode = WAL');
    // FULL: phases are written down before they are begun, also with respect to a power cut of the host.
    raw.pragma('synchronous = FULL');
    raw.pragma('foreign_keys = ON');
    return raw;
  } catch (error) {
    raw?.close();
    throw storeError(error, path);
  }
}

/**
 * The driver's view on the file: every failing statement becomes an InfrabedError. A transaction takes the write
 * lock at its begin: one that first reads and then writes could otherwise fail at once with SQLITE_BUSY, busy
 * time-out or not (https://www.sqlite.org/lang_transaction.html, "Read transactions versus write transactions").
 */
function translating(raw: SqliteDatabase.Database, path: string): KyselySqlite {
  const attempt = <T>(action: () => T): T => {
    try {
      return action();
    } catch (error) {
      throw storeError(error, path);
    }
  };
  const points = failpointsOn ? new WritePoints() : undefined;
  return {
    close: () => {
      raw.close();
    },
    prepare(sql) {
      const statement = attempt(() => raw.prepare(sql === 'begin' ? 'begin immediate' : sql));
      const execute = <T>(action: () => T): T =>
        points === undefined ? attempt(action) : points.around(sql, raw.inTransaction, () => attempt(action));
      return {
        reader: statement.reader,
        all: (parameters) => execute(() => statement.all(...parameters)),
        run: (parameters) => execute(() => statement.run(...parameters)),
        iterate: (parameters) => statement.iterate(...parameters),
      };
    },
  };
}

/** In one transaction of our own: Kysely makes none for SQLite, and two controllers may start at once. */
async function migrate(db: Kysely<Database>, raw: SqliteDatabase.Database, path: string): Promise<void> {
  const known = migrations();
  if (isCurrent(raw, path, Object.keys(known))) return;
  const migrator = new Migrator({ db, provider: { getMigrations: () => Promise.resolve(known) } });
  try {
    raw.exec('begin immediate');
    const { error } = await migrator.migrateToLatest();
    if (error !== undefined) throw storeError(error, path);
    raw.exec('commit');
  } catch (error) {
    if (raw.inTransaction) raw.exec('rollback');
    throw storeError(error, path);
  }
}

/** @throws InfrabedError IB_STORE_NEWER when a migration was applied that this version does not know. */
function isCurrent(raw: SqliteDatabase.Database, path: string, known: readonly string[]): boolean {
  let applied: string[];
  try {
    const table = raw.prepare("select 1 from sqlite_master where name = 'kysely_migration'").get();
    if (table === undefined) return false;
    applied = raw
      .prepare<[], { name: string }>('select name from kysely_migration')
      .all()
      .map((row) => row.name);
  } catch (error) {
    throw storeError(error, path);
  }
  const unknown = applied.filter((name) => !known.includes(name));
  if (unknown.length > 0) {
    throw new InfrabedError(
      'IB_STORE_NEWER',
      `The store ${path} was written by a newer infrabed (migration ${unknown.join(', ')}).`,
      {
        hint: 'Use that version, or point INFRABED_STATE_DIR at another folder.',
        details: { path, unknown },
      },
    );
  }
  return applied.length === known.length;
}
