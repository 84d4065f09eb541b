/** Containers need root: a command that does is started again once through sudo, and says so. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { InfrabedError } from '../core/errors.js';
import { rootStateDir, stateDir } from '../core/paths.js';
import type { Face } from './command.js';

/** Settings that keep their meaning for the other user; INFRABED_STATE_DIR is left out where it is not set: root has its own. */
const passedOn = [
  'INFRABED_STATE_DIR',
  'INFRABED_IMAGE_CACHE',
  'INFRABED_TASKS',
  'INFRABED_LOG',
  'INFRABED_SUPERVISOR',
];

/**
 * True when the command was run as root in another process, whose exit status is now in the face; false when we are
 * root already.
 * @throws InfrabedError IB_NOT_ROOT when sudo is missing or was already tried.
 */
export function asRoot(face: Face): boolean {
  if (process.getuid?.() === 0) return false;
  const hint = 'Run the command as root (sudo), or on a machine where you may.';
  if (process.env['INFRABED_SUDO'] !== undefined) {
    throw new InfrabedError('IB_NOT_ROOT', 'sudo did not make this process root.', { hint });
  }
  face.io.notify({ type: 'info', message: 'This needs root: running it again through sudo.' });
  const kept = passedOn
    .filter((name) => process.env[name] !== undefined)
    .map((name) => `${name}=${process.env[name] ?? ''}`);
  const result = spawnSync(
    'sudo',
    ['env', 'INFRABED_SUDO=1', ...kept, process.execPath, ...process.argv.slice(1)],
    {
      stdio: 'inherit',
    },
  );
  if (result.error !== undefined) {
    throw new InfrabedError('IB_NOT_ROOT', 'This command needs root, and sudo could not be started.', {
      hint,
      cause: result.error,
    });
  }
  face.exitStatus = result.status ?? 3;
  return true;
}

/**
 * For commands that only look: where a person's trials ran through sudo, they lie in root's state folder, which root
 * alone can read. `named` is a path or id that the command was given; a path needs nobody else.
 */
export function asRootToLook(face: Face, named?: string): boolean {
  const elsewhere = trialsAreElsewhere({
    isRoot: process.getuid?.() === 0,
    chosen: process.env['INFRABED_STATE_DIR'] !== undefined,
    ownState: existsSync(stateDir()),
    rootState: existsSync(rootStateDir),
    named: named !== undefined && existsSync(named),
  });
  return elsewhere && asRoot(face);
}

/** True when what is looked for can only lie in root's state folder. */
export function trialsAreElsewhere(found: {
  isRoot: boolean;
  /** INFRABED_STATE_DIR says where to look. */
  chosen: boolean;
  ownState: boolean;
  rootState: boolean;
  /** A file or folder of that name is there. */
  named: boolean;
}): boolean {
  return !found.isRoot && !found.chosen && !found.ownState && found.rootState && !found.named;
}
