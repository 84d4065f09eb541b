/** Writes a new package from the template: one that passes lint and runs as it is. */
import { existsSync } from 'node:fs';
import { chmod, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { InfrabedError } from '../../core/errors.js';
import { asset } from '../../core/paths.js';

export interface NewTask {
  /** Short name: lower-case letters, digits and dashes. */
  name: string;
  layer: 'L1' | 'L2' | 'L3' | 'L4';
  /** Before the slash of the full name. */
  organisation: string;
  /** Folder in which the package's folder is made. */
  parent: string;
}

/**
 * Returns the folder of the new package.
 * @throws InfrabedError IB_USAGE when the name cannot be one, or the folder is already there.
 */
export async function newTask({ name, layer, organisation, parent }: NewTask): Promise<string> {
  for (const word of [name, organisation]) {
    if (/^[a-z0-9][a-z0-9-]*$/.test(word)) continue;
    throw new InfrabedError('IB_USAGE', `"${word}" cannot be part of a task's name.`, {
      hint: 'Use lower-case letters, digits and dashes.',
    });
  }
  const dir = resolve(parent, name);
  if (existsSync(dir)) {
    throw new InfrabedError('IB_USAGE', `${dir} is already there.`, {
      hint: 'Choose another name or folder.',
    });
  }
  const template = asset('src/trial/task/template');
  for (const entry of await readdir(template, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const source = join(entry.parentPath, entry.name);
    const target = join(dir, relative(template, source));
    const text = await readFile(source, 'utf8');
    await mkdir(dirname(target), { recursive: true });
    await writeFile(target, fillIn(text, { NAME: name, LAYER: layer, ORGANISATION: organisation }));
    // Not by the mode given to writeFile, which the umask would cut.
    await chmod(target, (await stat(source)).mode & 0o777);
  }
  return dir;
}

function fillIn(text: string, words: Readonly<Record<string, string>>): string {
  return text.replace(/@@([A-Z]+)@@/g, (whole, key: string) => words[key] ?? whole);
}
