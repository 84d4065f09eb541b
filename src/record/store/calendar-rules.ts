/**
 * What the database itself refuses, whichever process asks: two bookings of one node that overlap, and a node that
 * becomes available without a clean record of its own. SQLite does it by triggers, PostgreSQL by an exclusion constraint.
 */
import { sql, type Kysely } from 'kysely';

/** Installed by a migration, in the dialect of its database. */
export interface CalendarRules {
  install(db: Kysely<unknown>): Promise<void>;
}

/** The words by which the refusals are known again in the database's error. */
export const overlapMessage = 'infrabed: bookings overlap';
export const notCleanMessage = 'infrabed: not proven clean';

const overlap = sql`select raise(abort, ${sql.lit(overlapMessage)}) where exists (
  select 1 from bookings other where other.node = new.node and other.lease <> new.lease
    and other.starts_at < new.busy_until and new.starts_at < other.busy_until)`;

/** Bookings of a node have changed: an index in the memory of any process reads them again. */
const revise = (node: string): ReturnType<typeof sql> => sql`
  insert into marks (key, value) values ('calendar', 1) on conflict (key) do update set value = value + 1;
  update nodes set calendar_revision = (select value from marks where key = 'calendar')
    where name = ${sql.ref(node)};`;

export const sqliteRules: CalendarRules = {
  async install(db) {
    await sql`create trigger bookings_apart_insert before insert on bookings begin ${overlap}; end`.execute(
      db,
    );
    await sql`create trigger bookings_apart_update before update on bookings begin ${overlap}; end`.execute(
      db,
    );
    await sql`create trigger bookings_revised_insert after insert on bookings begin ${revise('new.node')} end`.execute(
      db,
    );
    await sql`create trigger bookings_revised_update after update on bookings begin
      ${revise('old.node')} ${revise('new.node')} end`.execute(db);
    await sql`create trigger bookings_revised_delete after delete on bookings begin ${revise('old.node')} end`.execute(
      db,
    );
    await sql`create trigger nodes_clean before update of state on nodes
      when new.state = 'available' and old.state <> 'available' begin
        select raise(abort, ${sql.lit(notCleanMessage)}) where new.clean_record is null
          or new.clean_record is old.clean_record
          or not exists (select 1 from clean_records where id = new.clean_record and node = new.name);
      end`.execute(db);
  },
};
