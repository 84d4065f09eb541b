/** The account of a BMC: a name and a password file, held to what IPMI can carry before anything is sent. */
import { readFile, stat } from 'node:fs/promises';
import { InfrabedError, errnoOf, isInfrabedError } from '../../../core/errors.js';
import { sha256 } from '../../../core/ids.js';
import { redactor } from '../../../core/log.js';

/** IPMI 2.0, sections 22.28 (user name, 16 bytes) and 22.30 (password, 20 bytes; a BMC may keep only 16). */
const maxNameBytes = 16;
const maxPasswordBytes = 20;
const oldPasswordBytes = 16;

export interface Account {
  /** Tells one password from another, and nothing else. */
  fingerprint: string;
  /** Longer than the 16 bytes that some BMCs keep. */
  isLong: boolean;
}

/**
 * Reads the password as ipmitool will: the first line of the file.
 * @throws InfrabedError IB_BMC_AUTH when the file cannot be used. The message never holds the password.
 */
export async function readAccount(node: string, username: string, passwordFile: string): Promise<Account> {
  const refuse = (what: string, hint: string): never => {
    throw new InfrabedError('IB_BMC_AUTH', `The BMC account of ${node} cannot be used: ${what}.`, { hint });
  };
  if (Buffer.byteLength(username) > maxNameBytes) {
    refuse(`its name has more than ${String(maxNameBytes)} bytes`, 'Choose a shorter user name.');
  }
  let content: Buffer;
  try {
    const { mode } = await stat(passwordFile);
    if ((mode & 0o077) !== 0) {
      refuse(`others can read ${passwordFile}`, `Run "chmod 600 ${passwordFile}", and change the password.`);
    }
    content = await readFile(passwordFile);
  } catch (error) {
    if (isInfrabedError(error) || errnoOf(error) === undefined) throw error;
    return refuse(`${passwordFile} cannot be read (${String(errnoOf(error))})`, 'Write the password there.');
  }
  const end = content.findIndex((byte) => byte === 0x0a || byte === 0x0d);
  const password = end === -1 ? content : content.subarray(0, end);
  if (password.length === 0) refuse(`${passwordFile} is empty`, 'Write the password on its first line.');
  if (password.includes(0))
    refuse(`${passwordFile} holds a NUL byte`, 'A BMC password ends at the first one.');
  if (password.length > maxPasswordBytes) {
    // ipmitool would cut it off in silence, and each try would count towards a lock-out.
    refuse(
      `its password has ${String(password.length)} bytes and IPMI 2.0 carries at most ${String(maxPasswordBytes)}`,
      `Choose a shorter password (${String(oldPasswordBytes)} bytes fit every BMC).`,
    );
  }
  redactor.add(password.toString());
  return { fingerprint: sha256(password), isLong: password.length > oldPasswordBytes };
}
