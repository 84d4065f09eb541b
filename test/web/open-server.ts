/** A real server on a temporary state folder, with two users, and what it wrote into its log. */
import { mkdtempSync, realpathSync, rmSync, chmodSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { systemClock } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { defaultSettings } from '../../src/core/settings.js';
import { openStore, type Store } from '../../src/record/store/store.js';
import { backends } from '../../src/testbed/driver/index.js';
import { call, type CallOptions, type ServerAddress } from '../../src/web/api/client.js';
import type { Desk, Operation } from '../../src/web/api/operation.js';
import { startServer, type Server, type ServerOptions } from '../../src/web/api/server.js';
import { userAdd, userOperations } from '../../src/web/api/users.js';
import { things } from './things.js';

export const version = '9.9.9';

export interface OpenServer {
  folder: string;
  store: Store;
  desk: Desk;
  server: Server;
  socketPath: string;
  address: ServerAddress;
  tokens: { ada: string; op: string };
  /** Lines of the server's log, as text. */
  logged: string[];
  close(): Promise<void>;
}

export async function openServer(more: Partial<ServerOptions> = {}): Promise<OpenServer> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-web-')));
  // Others come through it to the socket.
  chmodSync(folder, 0o755);
  const store = await openStore(join(folder, 'state'));
  const desk: Desk = {
    store,
    stateDir: join(folder, 'state'),
    settings: defaultSettings,
    clock: systemClock,
    io: silentHost,
    signal: new AbortController().signal,
    backend: backends.fake({ stateDir: folder }),
    backendNamed: () => backends.fake({ stateDir: folder }),
    checkers: new Map(),
    controller: () => Promise.resolve('c-test'),
    trials: () => Promise.reject(new Error('No trial runs in these tests.')),
  };
  const root = { name: 'root', role: 'operator' } as const;
  const ada = await userAdd.handle(desk, { name: 'ada', role: 'user' }, root);
  const op = await userAdd.handle(desk, { name: 'op', role: 'operator' }, root);
  const logged: string[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => void logged.push(line) });
  const socketPath = join(folder, 'run', 'api.sock');
  const server = await startServer({
    operations: [...things, ...userOperations],
    desk,
    version,
    socketPath,
    log,
    ...more,
  });
  return {
    folder,
    store,
    desk,
    server,
    socketPath,
    address: { kind: 'unix', socketPath },
    tokens: { ada: ada.token, op: op.token },
    logged,
    async close() {
      await server.close();
      await store.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A call as the command line makes it. */
export function ask<I, O>(
  { address }: Pick<OpenServer, 'address'>,
  token: string,
  operation: Operation<I, O>,
  input: I,
  more: Partial<CallOptions> = {},
): Promise<O> {
  const signal = new AbortController().signal;
  return call(address, token, operation, input, { io: silentHost, signal, version, ...more });
}
