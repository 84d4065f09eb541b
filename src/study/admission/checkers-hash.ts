/** What of checkers/ a task's admission rests on: the modules that its checks name, and all that those use. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import { sha256 } from '../../core/ids.js';
import { asset } from '../../core/paths.js';
import { effectiveChecks } from '../../trial/task/effective-checks.js';
import type { TaskPackage } from '../../trial/task/schema.js';

/** A module beside this one: `from './expectation.js'`. What lies in src/ is the program's, which has a version. */
const importBeside = /\bfrom\s+'\.\/([a-z0-9-]+)\.js'/g;
/** A whole literal: how a module names its script of checkers/scripts. */
const literal = /'([A-Za-z0-9._-]+)'/g;

/**
 * Sources of checkers/, relative to it and sorted, that the checks of these names (`uses`) run: each checker's module,
 * which has the checker's name, the modules that it imports, and the scripts that any of them names. Checkers of the
 * package itself (`./checks/...`) are part of the package's own hash.
 * @throws InfrabedError IB_CHECKER_UNKNOWN for a name without a module.
 */
export async function checkerSources(
  uses: readonly string[],
  folder = asset('checkers'),
): Promise<Map<string, string>> {
  const scripts = new Set(await readdir(join(folder, 'scripts')));
  const sources = new Map<string, string>();
  const left = uses.filter((name) => !name.startsWith('.')).map((name) => `${name}.ts`);
  for (let file = left.pop(); file !== undefined; file = left.pop()) {
    if (sources.has(file)) continue;
    const text = await readModule(folder, file);
    sources.set(file, text);
    left.push(...[...text.matchAll(importBeside)].map((found) => `${found[1] ?? ''}.ts`));
    for (const [, name = ''] of text.matchAll(literal)) {
      if (scripts.has(name)) sources.set(`scripts/${name}`, await readModule(folder, `scripts/${name}`));
    }
  }
  return new Map([...sources].sort(([a], [b]) => (a < b ? -1 : 1)));
}

async function readModule(folder: string, file: string): Promise<string> {
  try {
    return await readFile(join(folder, file), 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    const name = file.replace(/\.ts$/, '');
    throw new InfrabedError(
      'IB_CHECKER_UNKNOWN',
      `There is no checker "${name}": no file ${join(folder, file)}.`,
      {
        cause: error,
      },
    );
  }
}

/** SHA-256 over the sources of checkers/ that this task uses: another checker that changes or is new counts not. */
export async function checkersHash(
  { definition }: Pick<TaskPackage, 'definition'>,
  folder = asset('checkers'),
): Promise<string> {
  const sources = await checkerSources(
    effectiveChecks(definition).map(({ uses }) => uses),
    folder,
  );
  return sha256([...sources].map(([file, text]) => `${file}\0${sha256(text)}`).join('\n'));
}
