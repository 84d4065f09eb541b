/** Tokens: what they look like, their hash, and where a client finds its own. Never on a command line. */
import { randomBytes } from 'node:crypto';
import { open } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import { sha256 } from '../../core/ids.js';
import { redactor } from '../../core/log.js';

/** The prefix lets scanners of repositories and logs know one when they see it; then 32 bytes as base64url. */
const tokenPattern = /^ib_[A-Za-z0-9_-]{43}$/;

export function newToken(): string {
  const token = `ib_${randomBytes(32).toString('base64url')}`;
  redactor.add(token);
  return token;
}

export function isToken(text: string): boolean {
  return tokenPattern.test(text);
}

/** What the store keeps. Nobody guesses 32 random bytes, so that a slow hash would add nothing. */
export function tokenHash(token: string): string {
  return sha256(token);
}

/**
 * INFRABED_TOKEN_FILE, else ~/.config/infrabed/token, else INFRABED_TOKEN.
 * @throws InfrabedError IB_SERVER when there is none, it is no token, or others could read its file.
 */
export async function loadToken(env: NodeJS.ProcessEnv): Promise<string> {
  const named = env['INFRABED_TOKEN_FILE'];
  const usual = join(env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'infrabed', 'token');
  const text = (await readSecretFile(named || usual, { needed: Boolean(named) })) ?? env['INFRABED_TOKEN'];
  if (!text) {
    throw new InfrabedError('IB_SERVER', 'A server was named in INFRABED_SERVER, but there is no token.', {
      hint: `An operator makes one by "infrabed user add NAME"; put it into ${usual} (chmod 600), or name its file in INFRABED_TOKEN_FILE.`,
    });
  }
  const token = text.trim();
  // Also what turns out to be no token may be a secret of something else.
  redactor.add(token);
  if (isToken(token)) return token;
  throw new InfrabedError('IB_SERVER', 'What stands where the token should be is no token of infrabed.', {
    hint: 'A token is one line: ib_ and 43 letters, digits, - or _.',
  });
}

async function readSecretFile(path: string, { needed }: { needed: boolean }): Promise<string | undefined> {
  try {
    const handle = await open(path, 'r');
    try {
      const { mode } = await handle.stat();
      if ((mode & 0o077) !== 0) {
        throw new InfrabedError(
          'IB_SERVER',
          `Others than its owner may read or write the token in ${path}.`,
          {
            hint: `Run "chmod 600 ${path}"; if it was open for long, have a new one made: infrabed user token.`,
          },
        );
      }
      return await handle.readFile('utf8');
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof InfrabedError) throw error;
    if (!needed && ['ENOENT', 'ENOTDIR'].includes(errnoOf(error) ?? '')) return undefined;
    throw new InfrabedError('IB_SERVER', `The token file ${path} cannot be read: ${messageOf(error)}.`, {
      cause: error,
    });
  }
}
