/** Several commands in one session: a file for `ipmitool exec`, in a folder of its own that is gone afterwards. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** The line that tells that a script was run to its end, from its last command, `echo end`. */
export const scriptEnd = /^end\s*$/m;

/** `work` gets the script's path; the folder is the place for what the script writes. */
export async function withScript<T>(
  script: (folder: string) => string,
  work: (file: string, folder: string) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-ipmi-'));
  try {
    const file = join(folder, 'commands');
    await writeFile(file, `${script(folder)}echo end\n`);
    return await work(file, folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
