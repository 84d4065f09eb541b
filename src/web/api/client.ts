/** The client: an operation asked of a server over a Unix socket or TLS, with its progress, its answer, its error. */
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { Client, type Dispatcher } from 'undici';
import { z } from 'zod';
import {
  errnoOf,
  errorCatalogue,
  InfrabedError,
  isInfrabedError,
  messageOf,
  type ErrorCode,
} from '../../core/errors.js';
import type { IoEvent, IoHost } from '../../core/io.js';
import { parseInput } from './carry-out.js';
import type { Operation } from './operation.js';
import { ndjsonType, outgoing, versionHeader } from './wire.js';

/** Where a server listens. */
export type ServerAddress =
  { kind: 'unix'; socketPath: string } | { kind: 'tls'; origin: string; caFile: string | undefined };

export interface CallOptions {
  /** Gets the progress of slow operations, and a warning about another version. */
  io: IoHost;
  signal: AbortSignal;
  /** Of this client; a server of another one is told about. */
  version: string;
}

/** Longer than the store waits for a lock. */
const answerTimeoutMs = 120_000;
/** A slow operation sends at least an empty line every 15 s (server.ts). */
const silenceTimeoutMs = 90_000;
const connectTimeoutMs = 10_000;
const maxAnswerBytes = 64 * 1024 * 1024;

/**
 * `unix:/run/infrabed/api.sock` or `https://host:port`.
 * @throws InfrabedError IB_USAGE for anything else: a token never goes over plain HTTP.
 */
export function parseServer(text: string, caFile?: string): ServerAddress {
  if (text.startsWith('unix:/')) return { kind: 'unix', socketPath: text.slice('unix:'.length) };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isBare = url?.pathname === '/' && url.search === '' && url.hash === '' && url.username === '';
  if (url?.protocol === 'https:' && isBare && url.password === '') {
    return { kind: 'tls', origin: url.origin, caFile: caFile || undefined };
  }
  throw new InfrabedError('IB_USAGE', 'INFRABED_SERVER names no server.', {
    hint: 'Write unix:/run/infrabed/api.sock or https://host:port, and nothing behind it.',
  });
}

/**
 * Asks `server` to do `operation`.
 * @throws InfrabedError the operation's own, by the same code; IB_SERVER when the server is not there or not understood;
 *   the signal's reason when it aborts, which ends the work on the server too.
 */
export async function call<I, O>(
  server: ServerAddress,
  token: string,
  operation: Operation<I, O>,
  input: I,
  options: CallOptions,
): Promise<O> {
  const { path, body } = outgoing(operation, parseInput(operation, input));
  const client = await connect(server);
  try {
    const response = await client.request({
      method: operation.method,
      path,
      headers: {
        authorization: `Bearer ${token}`,
        accept: operation.slow === true ? `${ndjsonType}, application/json` : 'application/json',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
      signal: options.signal,
    });
    const differs = tellVersion(response, options);
    const answer = await readAnswer(response, options.io);
    const parsed = operation.output.safeParse(answer);
    if (parsed.success) return parsed.data;
    throw new InfrabedError(
      'IB_SERVER',
      `The server's answer to ${operation.name} is not what this version knows.`,
      {
        ...(differs ? { hint: 'Use the version of infrabed that the server runs.' } : {}),
        cause: parsed.error,
      },
    );
  } catch (error) {
    throw explain(error, server, operation, options.signal);
  } finally {
    // Not close(): an answer that was given up half-way would be waited for.
    await client.destroy();
  }
}

async function connect(server: ServerAddress): Promise<Client> {
  const limits = {
    headersTimeout: answerTimeoutMs,
    bodyTimeout: silenceTimeoutMs,
    maxResponseSize: maxAnswerBytes,
    connectTimeout: connectTimeoutMs,
  };
  if (server.kind === 'unix')
    return new Client('http://localhost', { ...limits, socketPath: server.socketPath });
  const { caFile } = server;
  if (caFile === undefined) return new Client(server.origin, limits);
  const ca = await readFile(caFile, 'utf8').catch((cause: unknown) => {
    throw new InfrabedError(
      'IB_SERVER',
      `The certificates of INFRABED_CA cannot be read: ${messageOf(cause)}.`,
      {
        cause,
      },
    );
  });
  return new Client(server.origin, { ...limits, connect: { ca, timeout: connectTimeoutMs } });
}

function tellVersion({ headers }: Dispatcher.ResponseData, { io, version }: CallOptions): boolean {
  const theirs = headers[versionHeader];
  if (theirs === undefined || theirs === version) return false;
  io.notify({
    type: 'warning',
    message: `The server runs infrabed ${String(theirs)}, this is ${version}; they may not understand each other.`,
  });
  return true;
}

const errorSchema = z.object({
  error: z.object({
    code: z.string(),
    message: z.string(),
    hint: z.string().nullish(),
    details: z.record(z.string(), z.unknown()).default({}),
  }),
});
const eventSchema: z.ZodType<IoEvent> = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('phase'),
    scope: z.string(),
    phase: z.string(),
    state: z.enum(['begin', 'end', 'failed']),
    detail: z.string().exactOptional(),
  }),
  z.object({
    type: z.literal('progress'),
    scope: z.string(),
    message: z.string(),
    done: z.number().exactOptional(),
    total: z.number().exactOptional(),
  }),
  z.object({ type: z.enum(['info', 'warning']), message: z.string() }),
]);
const lineSchema = z.union([
  errorSchema,
  z.object({ event: eventSchema }),
  z.object({ result: z.unknown() }),
]);

async function readAnswer(response: Dispatcher.ResponseData, io: IoHost): Promise<unknown> {
  const type = String(response.headers['content-type'] ?? '');
  if (type.startsWith(ndjsonType)) return readLines(response, io);
  if (!type.startsWith('application/json')) {
    await response.body.dump();
    throw new InfrabedError(
      'IB_SERVER',
      `The server answered with ${type || 'nothing'}, not as infrabed does.`,
      {
        hint: 'Does INFRABED_SERVER name an infrabed server?',
      },
    );
  }
  const answer = await response.body.json();
  if (response.statusCode >= 400) throw remoteError(errorSchema.parse(answer));
  return answer;
}

async function readLines(response: Dispatcher.ResponseData, io: IoHost): Promise<unknown> {
  // readline loses an error of the stream when it is read by `for await` alone, so it is kept here.
  let broken: Error | undefined;
  response.body.once('error', (error: Error) => {
    broken = error;
  });
  for await (const text of createInterface({ input: response.body, crlfDelay: Infinity })) {
    if (text === '') continue;
    const line = lineSchema.parse(JSON.parse(text));
    if ('event' in line) io.notify(line.event);
    else if ('error' in line) throw remoteError(line);
    else return line.result;
  }
  throw broken ?? new Error('The answer ended before its result.');
}

/** The error as the server threw it. */
function remoteError({ error }: z.output<typeof errorSchema>): InfrabedError {
  const { code, message, hint, details } = error;
  const known = Object.hasOwn(errorCatalogue, code);
  return new InfrabedError(
    known ? (code as ErrorCode) : 'IB_SERVER',
    known ? message : `${code}: ${message}`,
    {
      ...(hint ? { hint } : {}),
      details,
    },
  );
}

/** What stands between us and the server, said so that a person knows what to do; by the code of node or undici. */
const obstacles: readonly (readonly [RegExp, string, string])[] = [
  [
    /^(ENOENT|ECONNREFUSED)$/,
    'no server listens there',
    'Start it ("infrabed serve"), or set INFRABED_SERVER right.',
  ],
  [
    /^EACCES$/,
    'this user may not open the socket',
    'The socket has mode 0666; look at the folders above it.',
  ],
  [/^(ENOTFOUND|EAI_AGAIN)$/, 'that name is not known', 'Look at the host in INFRABED_SERVER.'],
  [
    /CERT|SELF_SIGNED|ISSUER|ALTNAME/,
    'its certificate is not trusted',
    'Name the certificate of its CA in INFRABED_CA.',
  ],
  [/^(EPROTO|ERR_SSL)/, 'it does not speak TLS', 'Look at the port in INFRABED_SERVER.'],
  [/TIMEOUT|TIMEDOUT|UNREACH/, 'it does not answer', 'Look at the network and at the server.'],
];

function explain(
  error: unknown,
  server: ServerAddress,
  { name, method }: Pick<Operation<unknown, unknown>, 'name' | 'method'>,
  signal: AbortSignal,
): InfrabedError {
  if (signal.aborted) {
    const reason: unknown = signal.reason;
    return isInfrabedError(reason)
      ? reason
      : new InfrabedError('IB_CANCELLED', 'Cancelled.', { cause: reason });
  }
  if (isInfrabedError(error)) return error;
  const where = server.kind === 'unix' ? server.socketPath : server.origin;
  const code = errnoOf(error) ?? '';
  const [, why, hint] = obstacles.find(([pattern]) => pattern.test(code)) ?? [];
  if (why !== undefined && hint !== undefined) {
    return new InfrabedError(
      'IB_SERVER',
      `The server ${where} cannot be reached: ${why} (${messageOf(error)}).`,
      {
        hint,
        cause: error,
      },
    );
  }
  return new InfrabedError(
    'IB_SERVER',
    `The server ${where} did not answer ${name} to its end: ${messageOf(error)}`,
    {
      hint:
        method === 'GET'
          ? 'Ask again; if that does not help, look at the log of the server.'
          : 'Whether it was done is not known: look before you ask again.',
      cause: error,
    },
  );
}
