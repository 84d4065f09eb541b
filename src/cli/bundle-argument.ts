/** The argument of commands about finished trials: the folder of a bundle, or the id of a trial of this site. */
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join, resolve, sep } from 'node:path';
import { InfrabedError } from '../core/errors.js';
import { stateDir } from '../core/paths.js';
import { openStore } from '../record/store/store.js';

export interface NamedBundle {
  /** Absolute folder. */
  dir: string;
  /** It lies in this site's state folder, so this site's key must have sealed it. */
  ours: boolean;
}

/** @throws InfrabedError IB_TRIAL_UNKNOWN when it is neither a folder nor a trial. */
export async function namedBundle(argument: string, state = stateDir()): Promise<NamedBundle> {
  const dir = (await isFolder(resolve(argument))) ? resolve(argument) : await bundleOfTrial(argument, state);
  return { dir, ours: dir.startsWith(resolve(state) + sep) };
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

async function bundleOfTrial(trial: string, state: string): Promise<string> {
  const unknown = (why: string): InfrabedError =>
    new InfrabedError('IB_TRIAL_UNKNOWN', `There is no bundle or trial "${trial}"${why}.`, {
      hint: 'See "infrabed trial list", or give the path of a bundle\'s folder.',
    });
  // Looking makes no store: a bundle of somebody else needs none.
  if (!existsSync(join(state, 'store.sqlite'))) throw unknown(`: ${state} holds no trials`);
  const store = await openStore(state);
  try {
    const row = await store.db
      .selectFrom('trials')
      .select('bundle')
      .where('id', '=', trial)
      .executeTakeFirst();
    if (row === undefined) throw unknown('');
    if (!(await isFolder(row.bundle))) throw unknown(`: its bundle ${row.bundle} is gone`);
    return row.bundle;
  } finally {
    await store.close();
  }
}
