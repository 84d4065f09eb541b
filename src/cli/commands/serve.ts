/** `infrabed serve`: the state folder of this machine, for everybody who has a token. */
import { join } from 'node:path';
import { controllerActor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import { runtimeDir } from '../../core/paths.js';
import { operations } from '../../web/api/operations.js';
import type { AnyOperation } from '../../web/api/operation.js';
import { startServer, type ServerOptions, type TlsListener } from '../../web/api/server.js';
import { asRoot } from '../as-root.js';
import type { CliCommand, Face } from '../command.js';
import { openDesk } from '../desk.js';
import { keepSite } from '../keeper.js';
import { version } from '../version.js';

interface ServeArguments {
  socket: string;
  'tls-listen': string | undefined;
  'tls-cert': string | undefined;
  'tls-key': string | undefined;
}

export const serveCommand: CliCommand<ServeArguments> = {
  command: 'serve',
  describe: 'answer on a Unix socket, and over TLS where asked for, to everybody who has a token',
  builder: (yargs) =>
    yargs
      .option('socket', {
        type: 'string',
        default: join(runtimeDir, 'api.sock'),
        describe: 'path of the Unix socket',
      })
      .option('tls-listen', { type: 'string', describe: 'HOST:PORT to listen at over TLS as well' })
      .option('tls-cert', { type: 'string', describe: 'PEM file of the certificate and its chain' })
      .option('tls-key', { type: 'string', describe: 'PEM file of its key' })
      .example('$0 serve', 'for the users of this machine; then: infrabed user add NAME')
      .example('$0 serve --tls-listen 0.0.0.0:7443 --tls-cert site.pem --tls-key site.key', 'for others too'),
  handler: async (args, face) => {
    const tls = tlsListener(args);
    if (asRoot(face)) return;
    await serve(face, operations, { socketPath: args.socket, ...(tls === undefined ? {} : { tls }) });
  },
};

/** Opens the state folder and serves `list` until the face's signal aborts; then all ends in order. */
export async function serve(
  face: Face,
  list: readonly AnyOperation[],
  listeners: Pick<ServerOptions, 'socketPath' | 'tls'>,
): Promise<void> {
  const opened = await openDesk(face, { recovery: true, goOn: true });
  const { desk } = opened;
  try {
    await desk.controller();
    const server = await startServer({ operations: list, desk, version: version(), ...listeners });
    try {
      for (const address of server.addresses) face.print(`listening at ${address}`);
      await keepSite(await desk.trials(controllerActor, desk.io, 'container'), desk.signal);
    } finally {
      await server.close();
    }
    face.print('ended');
  } finally {
    await opened.close();
  }
}

/** @throws InfrabedError IB_USAGE when the three do not come together. */
export function tlsListener(args: Omit<ServeArguments, 'socket'>): TlsListener | undefined {
  const { 'tls-listen': listen, 'tls-cert': certFile, 'tls-key': keyFile } = args;
  if (listen === undefined && certFile === undefined && keyFile === undefined) return undefined;
  if (listen === undefined || certFile === undefined || keyFile === undefined) {
    throw new InfrabedError('IB_USAGE', '--tls-listen, --tls-cert and --tls-key come together.', {
      hint: 'There is no plain TCP: a token would cross the network for everybody to read.',
    });
  }
  const [, host, port] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(listen)?.filter((part) => part) ?? [];
  if (host === undefined || port === undefined || Number(port) > 65_535) {
    throw new InfrabedError('IB_USAGE', `--tls-listen takes HOST:PORT, not ${listen}.`, {
      hint: 'For instance 0.0.0.0:7443 or [::]:7443.',
    });
  }
  return { host, port: Number(port), certFile, keyFile };
}
