/** Which controller processes there are, and which of those that the store remembers still live. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import type { Selectable } from 'kysely';
import { systemClock, type Clock } from '../../core/clock.js';
import type { ControllersTable } from './schema.js';
import type { Store } from './store.js';

/** A controller of another host counts as dead when it has not written its heartbeat for this long. */
export const heartbeatTimeoutMs = 60_000;

/** Writes this process down as a controller. Returns its id, which leases and trials then name. */
export async function registerController(store: Store, clock: Clock, pid = process.pid): Promise<string> {
  const pidStart = await processStart(pid);
  if (pidStart === undefined) {
    throw new InfrabedError('IB_INTERNAL', `/proc does not show the process ${String(pid)} itself.`);
  }
  const id = `c-${String(pid)}-${String(pidStart)}-${randomBytes(3).toString('hex')}`;
  const now = clock.now();
  const row = { id, pid, pid_start: pidStart, started_at: now, host: await hostBoot(), heartbeat_at: now };
  await store.db.insertInto('controllers').values(row).execute();
  return id;
}

/** Says that this controller lives. Returns false when the store does not know it any more: it was taken over. */
export async function beat(store: Store, id: string, clock: Clock): Promise<boolean> {
  const { numUpdatedRows } = await store.db
    .updateTable('controllers')
    .set({ heartbeat_at: clock.now() })
    .where('id', '=', id)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Forgets a controller that ended in order. */
export async function unregisterController(store: Store, id: string): Promise<void> {
  await store.db.deleteFrom('controllers').where('id', '=', id).execute();
}

/** True while the process that registered under this id runs. An id that the store does not know is dead, and so is nobody. */
export async function controllerIsAlive(
  store: Pick<Store, 'db'>,
  id: string | null,
  clock: Clock = systemClock,
): Promise<boolean> {
  if (id === null) return false;
  const row = await store.db.selectFrom('controllers').selectAll().where('id', '=', id).executeTakeFirst();
  return row !== undefined && (await isRunning(row, clock));
}

/** Ids of all controllers in the store whose process has ended. */
export async function deadControllers(store: Store, clock: Clock = systemClock): Promise<string[]> {
  const rows = await store.db.selectFrom('controllers').selectAll().orderBy('started_at').execute();
  const alive = await Promise.all(rows.map((row) => isRunning(row, clock)));
  return rows.filter((_row, index) => !alive[index]).map((row) => row.id);
}

type ControllerRow = Selectable<ControllersTable>;

/**
 * On this host the process table knows, whatever the heartbeat says: one that is stopped for an hour is not dead, and
 * what it may still do is the fence's matter. Since a reboot of the host nothing from before runs; of another host only
 * the heartbeat tells.
 */
async function isRunning(row: ControllerRow, clock: Clock): Promise<boolean> {
  if (row.host === '' || row.host === (await hostBoot())) {
    return (await processStart(row.pid)) === row.pid_start;
  }
  return clock.now() - row.heartbeat_at < heartbeatTimeoutMs;
}

/** The boot id of this host: process ids mean something within one boot only. */
let bootId: string | undefined;
async function hostBoot(): Promise<string> {
  return (bootId ??= (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim());
}

/**
 * Start time of a process in clock ticks since the host's boot (field 22 of /proc/PID/stat, proc(5)), which tells
 * a recycled pid apart. undefined when it is gone or a zombie: `kill -0` would call a zombie alive.
 */
export async function processStart(pid: number): Promise<number | undefined> {
  let stat: string;
  try {
    stat = await readFile(`/proc/${String(pid)}/stat`, 'utf8');
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ESRCH') return undefined;
    throw error;
  }
  // The name of the program, in parentheses, may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
  return Number(fields[19]);
}
