/** Secrets of an inventory: only references stand in files and in the store; the value is read when it is used. */
import { readFile, stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { redactor } from '../../core/log.js';

export const secretRefSchema = z.union([
  z.strictObject({ env: z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/) }),
  z.strictObject({ file: z.string().refine(isAbsolute) }),
]);
/** Where a secret is to be found: a variable of the controller's environment, or a file by its absolute path. */
export type SecretRef = z.output<typeof secretRefSchema>;

/** Shorter ones could not be struck out of records without eating ordinary text (see Redactor). */
const shortestSecret = 6;

/**
 * Reads a secret now, and strikes it out of everything that is logged from here on.
 * @throws InfrabedError IB_SITE_INVALID saying what is missing, never what was read.
 */
export async function resolveSecret(ref: SecretRef, env: NodeJS.ProcessEnv = process.env): Promise<string> {
  const value = 'env' in ref ? fromEnvironment(ref.env, env) : await fromFile(ref.file);
  if (value.length < shortestSecret) {
    throw refused(ref, `is shorter than ${String(shortestSecret)} characters`, 'Choose a longer secret.');
  }
  redactor.add(value);
  return value;
}

/** `{env: NAME}` or `{file: /path}`, for messages. */
export function describeSecret(ref: SecretRef): string {
  return 'env' in ref ? `{env: ${ref.env}}` : `{file: ${ref.file}}`;
}

function fromEnvironment(name: string, env: NodeJS.ProcessEnv): string {
  const value = env[name];
  if (value) return value;
  const what = value === undefined ? 'is not set' : 'is empty';
  throw refused({ env: name }, what, `Set ${name} in the environment of the controller.`);
}

async function fromFile(file: string): Promise<string> {
  const ref = { file };
  let mode: number;
  let text: string;
  try {
    ({ mode } = await stat(file));
    text = await readFile(file, 'utf8');
  } catch (error) {
    throw refused(
      ref,
      `cannot be read: ${messageOf(error)}`,
      `Write the secret to ${file}, mode 0600.`,
      error,
    );
  }
  if ((mode & 0o077) !== 0) throw refused(ref, 'is open to other users', `Run: chmod 600 ${file}`);
  const value = text.replace(/\r?\n$/, '');
  if (value === '') throw refused(ref, 'is empty', `Write the secret to ${file}.`);
  if (/[\r\n]/.test(value)) {
    throw refused(ref, 'has more than one line', 'A file holds one secret and nothing else.');
  }
  return value;
}

function refused(ref: SecretRef, what: string, hint: string, cause?: unknown): InfrabedError {
  return new InfrabedError('IB_SITE_INVALID', `The secret ${describeSecret(ref)} ${what}.`, { hint, cause });
}
