/** Asks who it is, by socket and token file of its environment: run as another user by the tests. */
import { silentHost } from '../../src/core/io.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { call, parseServer } from '../../src/web/api/client.js';
import { loadToken } from '../../src/web/api/token.js';
import { userWhoami } from '../../src/web/api/users.js';

try {
  const token = await loadToken(process.env);
  const server = parseServer(process.env['INFRABED_SERVER'] ?? '', process.env['INFRABED_CA']);
  const options = { io: silentHost, signal: new AbortController().signal, version: '9.9.9' };
  const who = await call(server, token, userWhoami, {}, options);
  process.stdout.write(JSON.stringify({ uid: process.getuid?.(), ...who }));
} catch (error) {
  if (!isInfrabedError(error)) throw error;
  process.stdout.write(JSON.stringify({ uid: process.getuid?.(), code: error.code, message: error.message }));
}
