/**
 * How a command gets an operation done: through the server that INFRABED_SERVER names, or else as root on the state
 * folder of this machine.
 */
import { userInfo } from 'node:os';
import type { Actor } from '../core/actor.js';
import { call, parseServer } from '../web/api/client.js';
import { carryOut } from '../web/api/carry-out.js';
import type { Operation } from '../web/api/operation.js';
import { loadToken } from '../web/api/token.js';
import { asRoot } from './as-root.js';
import { DoneElsewhere, type Face } from './command.js';
import { openDesk } from './desk.js';
import { version } from './version.js';

/**
 * Does `operation` and returns its answer. Where the command had to be run again through sudo this does not return:
 * DoneElsewhere ends the command, so ask and print only after the first call.
 * @throws InfrabedError what the operation throws, here as through a server; IB_SERVER, IB_NOT_ROOT; DoneElsewhere.
 */
export async function perform<I, O>(face: Face, operation: Operation<I, O>, input: I): Promise<O> {
  const { io, signal } = face;
  const server = serverNamed();
  if (server !== undefined) {
    const address = parseServer(server, process.env['INFRABED_CA']);
    const token = await loadToken(process.env);
    return call(address, token, operation, input, { io, signal, version: version() });
  }
  if (asRoot(face)) throw new DoneElsewhere();
  const opened = await openDesk(face, {
    recovery: operation.method !== 'GET' && operation.withoutRecovery !== true,
  });
  try {
    return await carryOut(operation, opened.desk, input, localActor());
  } finally {
    await opened.close();
  }
}

/** The server that commands go through, where there is one. */
export function serverNamed(env: NodeJS.ProcessEnv = process.env): string | undefined {
  return env['INFRABED_SERVER'] || undefined;
}

/** Who works on this machine without a server: root is the operator, named as whom sudo came from. */
export function localActor(env: NodeJS.ProcessEnv = process.env): Actor {
  const sudoUser = process.getuid?.() === 0 ? env['SUDO_USER'] : undefined;
  return { name: sudoUser || userInfo().username, role: 'operator' };
}
