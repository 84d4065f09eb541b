/** Where infrabed keeps its state, and where its own files (playbooks, tasks, scripts) lie. */
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { InfrabedError } from './errors.js';

/** Of root, and so of everything that ran through sudo. */
export const rootStateDir = '/var/lib/infrabed';

/** INFRABED_STATE_DIR, else /var/lib/infrabed for root, else $XDG_STATE_HOME/infrabed (default ~/.local/state). */
export function stateDir(env: NodeJS.ProcessEnv = process.env): string {
  if (env['INFRABED_STATE_DIR']) return resolve(env['INFRABED_STATE_DIR']);
  if (process.getuid?.() === 0) return rootStateDir;
  return join(env['XDG_STATE_HOME'] ?? join(homedir(), '.local', 'state'), 'infrabed');
}

/** Short-lived sockets and keys; short, because socket paths end at 107 characters. */
export const runtimeDir = '/run/infrabed';

/** The folder that holds package.json. */
export const packageRoot: string = (() => {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    const parent = dirname(folder);
    if (parent === folder)
      throw new InfrabedError('IB_INTERNAL', 'package.json was not found above the code.');
    folder = parent;
  }
  return folder;
})();

/** A file that ships beside the code, e.g. asset('src/testbed/driver/container/node-supervisor.sh'). */
export function asset(relative: string): string {
  return join(packageRoot, relative);
}
