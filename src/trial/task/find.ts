/** Finds task packages by path or by name. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { delimiter, join, resolve } from 'node:path';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { asset } from '../../core/paths.js';
import { loadTask, type LoadOptions } from './load.js';
import { suggestion } from './problem.js';
import type { TaskPackage } from './schema.js';

/** Where packages are looked for: INFRABED_TASKS (separated by colons), ./tasks, and those that come with infrabed. */
export function taskFolders(env: NodeJS.ProcessEnv = process.env, cwd: string = process.cwd()): string[] {
  const named = (env['INFRABED_TASKS'] ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...new Set([...named, join(cwd, 'tasks'), asset('tasks')].map((folder) => resolve(cwd, folder)))];
}

export interface BrokenTask {
  dir: string;
  error: string;
}

/** Every package below the folders, by short name; of two with the same name the first folder's counts. */
export async function listTasks(
  folders: readonly string[],
  options: LoadOptions = {},
): Promise<{ tasks: TaskPackage[]; broken: BrokenTask[] }> {
  const tasks = new Map<string, TaskPackage>();
  const broken: BrokenTask[] = [];
  for (const dir of await packageFolders(folders)) {
    try {
      const task = await loadTask(dir, options);
      if (!tasks.has(task.shortName)) tasks.set(task.shortName, task);
    } catch (error) {
      if (!isInfrabedError(error)) throw error;
      broken.push({ dir, error: messageOf(error) });
    }
  }
  return { tasks: [...tasks.values()].sort((a, b) => (a.shortName < b.shortName ? -1 : 1)), broken };
}

async function packageFolders(folders: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const folder of folders) {
    if (!existsSync(folder)) continue;
    const names = (await readdir(folder)).sort();
    found.push(
      ...names.map((name) => join(folder, name)).filter((dir) => existsSync(join(dir, 'task.toml'))),
    );
  }
  return found;
}

/**
 * The package that a person names: a path, the folder's name, or the task's name with or without organisation.
 * @throws InfrabedError IB_TASK_UNKNOWN, with the nearest name; IB_TASK_INVALID for the package itself.
 */
export async function findTask(
  nameOrPath: string,
  folders: readonly string[] = taskFolders(),
  options: LoadOptions = {},
): Promise<TaskPackage> {
  if (existsSync(join(nameOrPath, 'task.toml'))) return loadTask(nameOrPath, options);
  if (/^[./]/.test(nameOrPath)) return loadTask(nameOrPath, options);
  for (const folder of folders) {
    if (existsSync(join(folder, nameOrPath, 'task.toml'))) return loadTask(join(folder, nameOrPath), options);
  }
  const { tasks } = await listTasks(folders, options);
  const named = tasks.find(({ shortName, definition }) =>
    [shortName, definition.task.name].includes(nameOrPath),
  );
  if (named !== undefined) return named;
  const names = tasks.map(({ shortName }) => shortName);
  throw new InfrabedError(
    'IB_TASK_UNKNOWN',
    `There is no task "${nameOrPath}"${suggestion(nameOrPath, names)}.`,
    {
      hint: 'Run "infrabed task list" for the tasks there are, or give the path of a package.',
    },
  );
}
