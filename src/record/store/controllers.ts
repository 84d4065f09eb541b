/** Which controller processes there are, and which of those that the store remembers still live. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import type { Clock } from '../../core/clock.js';
import type { ControllersTable } from './schema.js';
import type { Store } from './store.js';

/** Writes this process down as a controller. Returns its id, which leases and trials then name. */
export async function registerController(store: Store, clock: Clock, pid = process.pid): Promise<string> {
  const pidStart = await processStart(pid);
  if (pidStart === undefined) {
    throw new InfrabedError('IB_INTERNAL', `/proc does not show the process ${String(pid)} itself.`);
  }
  const id = `c-${String(pid)}-${String(pidStart)}-${randomBytes(3).toString('hex')}`;
  const row = { id, pid, pid_start: pidStart, started_at: clock.now() };
  await store.db.insertInto('controllers').values(row).execute();
  return id;
}

/** Forgets a controller that ended in order. */
export async function unregisterController(store: Store, id: string): Promise<void> {
  await store.db.deleteFrom('controllers').where('id', '=', id).execute();
}

/** True while the process that registered under this id runs. An id that the store does not know is dead. */
export async function controllerIsAlive(store: Store, id: string): Promise<boolean> {
  const row = await store.db.selectFrom('controllers').selectAll().where('id', '=', id).executeTakeFirst();
  return row !== undefined && (await isRunning(row));
}

/** Ids of all controllers in the store whose process has ended. */
export async function deadControllers(store: Store): Promise<string[]> {
  const rows = await store.db.selectFrom('controllers').selectAll().orderBy('started_at').execute();
  const alive = await Promise.all(rows.map(isRunning));
  return rows.filter((_row, index) => !alive[index]).map((row) => row.id);
}

async function isRunning(row: ControllersTable): Promise<boolean> {
  return (await processStart(row.pid)) === row.pid_start;
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
