/** The server: the list of operations on a Unix socket and, where asked for, over TLS; never over plain TCP. */
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { log as standardLog, type Logger } from '../../core/log.js';
import { buildApp, type AppOptions } from './app.js';
import type { AnyOperation, Desk } from './operation.js';
import { RunningOperations } from './running.js';
import { listenAt } from './socket-place.js';

export interface TlsListener {
  host: string;
  /** 0: one that is free. */
  port: number;
  /** PEM files. */
  certFile: string;
  keyFile: string;
}

export interface ServerOptions {
  operations: readonly AnyOperation[];
  /** What all requests share; each gets its own io host and signal. */
  desk: Omit<Desk, 'io' | 'signal'>;
  version: string;
  socketPath?: string;
  tls?: TlsListener;
  log?: Logger;
}

export interface Server {
  /** As INFRABED_SERVER names it. */
  readonly addresses: readonly string[];
  /** Takes no more, asks what runs to end, waits for it, and stops listening. The desk stays the caller's to close. */
  close(): Promise<void>;
}

/** @throws InfrabedError IB_SERVER when it cannot listen, IB_USAGE when it would listen nowhere. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const { socketPath, tls } = options;
  if (socketPath === undefined && tls === undefined) {
    throw new InfrabedError('IB_USAGE', 'A server needs a socket or an address to listen at.');
  }
  const running = new RunningOperations();
  const app: AppOptions = { ...options, log: options.log ?? standardLog, running };
  const open: FastifyInstance[] = [];
  const addresses: string[] = [];
  const close = async (): Promise<void> => {
    // First, so that what comes now is refused; it waits for all connections.
    const closed = Promise.all(open.map((one) => one.close()));
    await running.endAll(new InfrabedError('IB_CANCELLED', 'The server is ending.'));
    // All answers are through. Who is left connected has not asked yet, and may never.
    for (const one of open) one.server.closeAllConnections();
    await closed;
  };
  try {
    if (tls !== undefined) {
      const secure = buildApp(app, await credentials(tls));
      open.push(secure);
      addresses.push(await listenSecurely(secure, tls));
    }
    if (socketPath !== undefined) {
      const local = buildApp(app);
      open.push(local);
      await listenAt(socketPath, () => local.listen({ path: socketPath }));
      addresses.unshift(`unix:${socketPath}`);
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { addresses, close };
}

async function credentials({ certFile, keyFile }: TlsListener): Promise<{ cert: string; key: string }> {
  const read = async (file: string): Promise<string> =>
    readFile(file, 'utf8').catch((cause: unknown) => {
      throw new InfrabedError('IB_SERVER', `The TLS file ${file} cannot be read: ${messageOf(cause)}.`, {
        cause,
      });
    });
  return { cert: await read(certFile), key: await read(keyFile) };
}

async function listenSecurely(app: FastifyInstance, { host, port }: TlsListener): Promise<string> {
  try {
    await app.listen({ host, port });
  } catch (cause) {
    throw new InfrabedError(
      'IB_SERVER',
      `The server cannot listen at ${host}:${String(port)}: ${messageOf(cause)}.`,
      {
        hint: 'Is the port in use, or the address not of this machine?',
        cause,
      },
    );
  }
  const address = app.server.address() as AddressInfo;
  return `https://${host.includes(':') ? `[${host}]` : host}:${String(address.port)}`;
}
