/** The users of a BMC, from Get User Access and Get User Name (IPMI 2.0, sections 22.27 and 22.29) of every slot. */
import type { BmcUser } from '../driver.js';
import { InfrabedError } from '../../../core/errors.js';
import { bytesOf, rawArgs } from './hex.js';
import { scriptEnd } from './script.js';

/** Present channel: that of the session, whatever number the LAN channel of this BMC has (section 6.3). */
const thisChannel = 0x0e;
const mostUsers = 63;
const privileges: Readonly<Record<number, string>> = {
  1: 'CALLBACK',
  2: 'USER',
  3: 'OPERATOR',
  4: 'ADMINISTRATOR',
  5: 'OEM',
  0xf: 'NO ACCESS',
};

/** Asks for every slot in one session: commands for `ipmitool exec`, each slot's replies below its number. */
export function usersScript(): string {
  const lines: string[] = [];
  for (let id = 1; id <= mostUsers; id += 1) {
    lines.push(`echo user ${String(id)}`, rawArgs([0x06, 0x44, thisChannel, id]).join(' '));
    lines.push('echo name', rawArgs([0x06, 0x46, id]).join(' '));
  }
  return `${lines.join('\n')}\n`;
}

/**
 * @throws InfrabedError IB_BMC when a slot that the BMC says it has did not answer.
 */
export function usersOf(stdout: string): BmcUser[] {
  const users: BmcUser[] = [];
  const [asked = '', end] = stdout.split(scriptEnd);
  if (end === undefined) throw new InfrabedError('IB_BMC', 'The list of BMC users did not come to its end.');
  let slots = mostUsers;
  for (const part of asked.split(/^user /m).slice(1)) {
    const [number = '', ...lines] = part.split('\n');
    const id = Number.parseInt(number, 10);
    if (id > slots) break;
    const [access = '', name = ''] = lines.join('\n').split(/^name\s*$/m);
    const bytes = bytesOf(access, 4, `Get User Access of user ${String(id)}`);
    slots = Math.min(mostUsers, (bytes[0] ?? 0) & 0x3f);
    users.push({ id, name: nameOf(name), ...accessOf(bytes) });
  }
  if (users.length < slots || users.length === 0) {
    throw new InfrabedError('IB_BMC', `Only ${String(users.length)} of ${String(slots)} BMC users answered.`);
  }
  return users;
}

function accessOf(bytes: readonly number[]): Pick<BmcUser, 'privilege' | 'enabled'> {
  const status = ((bytes[1] ?? 0) >> 6) & 0x3;
  const access = bytes[3] ?? 0;
  const isMessaging = (access & 0x10) !== 0;
  const privilege = privileges[access & 0xf] ?? 'NO ACCESS';
  // Status 01b: enabled, 10b: disabled, 00b: not told. Without IPMI messaging nobody logs in over this channel.
  const told = status === 1 ? true : status === 2 ? false : null;
  return { privilege, enabled: isMessaging && privilege !== 'NO ACCESS' ? told : false };
}

/** A slot that was never named may be refused (CCh) instead of coming back empty. */
function nameOf(stdout: string): string {
  if (stdout.trim() === '') return '';
  const bytes = bytesOf(stdout, 1, 'Get User Name');
  const end = bytes.indexOf(0);
  return Buffer.from(end === -1 ? bytes : bytes.slice(0, end)).toString('utf8');
}
