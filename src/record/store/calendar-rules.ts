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

/** Name of the exclusion constraint, by which PostgreSQL's refusal of an overlap is known again. */
export const overlapConstraint = 'bookings_apart';

/**
 * The same in PostgreSQL. int8range is half-open by default, as intervals are here; btree_gist lets a text stand beside
 * a range in one exclusion (https://www.postgresql.org/docs/current/btree-gist.html).
 */
export const postgresRules: CalendarRules = {
  async install(db) {
    await sql`create extension if not exists btree_gist`.execute(db);
    await sql`alter table bookings add constraint ${sql.ref(overlapConstraint)}
      exclude using gist (node with =, int8range(starts_at, busy_until) with &&)`.execute(db);
    await sql`create function bookings_revise() returns trigger language plpgsql as $$
      begin
        insert into marks (key, value) values ('calendar', 1)
          on conflict (key) do update set value = marks.value + 1;
        update nodes set calendar_revision = (select value from marks where key = 'calendar')
          where (tg_op <> 'INSERT' and name = old.node) or (tg_op <> 'DELETE' and name = new.node);
        return null;
      end $$`.execute(db);
    await sql`create trigger bookings_revised after insert or update or delete on bookings
      for each row execute function bookings_revise()`.execute(db);
    await sql`create function nodes_check_clean() returns trigger language plpgsql as $$
      begin
        if new.clean_record is null or new.clean_record is not distinct from old.clean_record
          or not exists (select 1 from clean_records where id = new.clean_record and node = new.name)
        then
          raise exception ${sql.lit(notCleanMessage)};
        end if;
        return new;
      end $$`.execute(db);
    await sql`create trigger nodes_clean before update of state on nodes for each row
      when (new.state = 'available' and old.state <> 'available')
      execute function nodes_check_clean()`.execute(db);
  },
};
