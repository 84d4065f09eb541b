/** The HTTP side of the list of operations: one route each, who asks, what comes back, and one line of log a request. */
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { ServerOptions } from 'node:https';
import type { Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import { silentHost } from '../../core/io.js';
import type { Logger } from '../../core/log.js';
import type { Store } from '../../record/store/store.js';
import { assertRole, carryOut, parseInput } from './carry-out.js';
import { errorBody, httpError, type HttpError } from './error-body.js';
import { LineAnswer } from './line-answer.js';
import { openApiDocument } from './openapi.js';
import type { AnyOperation, Desk } from './operation.js';
import type { RunningOperations } from './running.js';
import { actorOfToken } from './users.js';
import { fromQuery, jsonSchema, ndjsonType, versionHeader, type JsonSchema } from './wire.js';

export interface AppOptions {
  operations: readonly AnyOperation[];
  /** Each request gets its own io host and signal. */
  desk: Omit<Desk, 'io' | 'signal'>;
  version: string;
  log: Logger;
  running: RunningOperations;
}

const bodyLimitBytes = 1024 * 1024;
/** For the head and the body of a request; an operation may take as long as it needs. */
const requestTimeoutMs = 30_000;

/** Who sent a request, known from its head on. */
type Actors = WeakMap<FastifyRequest, Actor>;

/** The app, not listening yet; with `tls`, over HTTPS. */
export function buildApp(options: AppOptions, tls?: ServerOptions): FastifyInstance {
  const app = Fastify({
    bodyLimit: bodyLimitBytes,
    requestTimeout: requestTimeoutMs,
    // Short: it is also how long the last answer may hold up the end of the server.
    keepAliveTimeout: 5000,
    exposeHeadRoutes: false,
    https: tls ?? null,
  }) as unknown as FastifyInstance;
  const actors: Actors = new WeakMap();
  app.addHook('onRequest', (_request, reply, done) => {
    // Answers may hold a token; nobody between is to keep them.
    void reply.headers({ [versionHeader]: options.version, 'cache-control': 'no-store' });
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    const { method, id } = request;
    const user = actors.get(request)?.name ?? null;
    const ms = Math.round(reply.elapsedTime);
    options.log.info(
      { request: id, user, method, path: pathOf(request), status: reply.raw.statusCode, ms },
      'request',
    );
    done();
  });
  app.setErrorHandler((error, request, reply) => {
    const { status, told } = tell(error, request, options.log);
    if (status === 401) void reply.header('www-authenticate', 'Bearer realm="infrabed"');
    void reply.code(status).send(errorBody(told));
  });
  app.setNotFoundHandler(sendNotFound);
  const document = openApiDocument(options.operations, options.version);
  app.get('/v1/health', () => ({ status: 'ok', version: options.version }));
  app.get('/v1/openapi.json', () => document);
  for (const operation of options.operations) addRoute(app, operation, actors, options);
  return app;
}

function addRoute(app: FastifyInstance, operation: AnyOperation, actors: Actors, options: AppOptions): void {
  const schema = jsonSchema(operation.input, 'input');
  app.route({
    method: operation.method,
    url: operation.path,
    // Before the body is read: nobody unknown makes the server work.
    onRequest: async (request) => {
      const actor = await authenticate(request, options.desk.store);
      actors.set(request, actor);
      assertRole(operation, actor);
    },
    handler: async (request, reply) => {
      const actor = actors.get(request);
      if (actor === undefined)
        throw new InfrabedError('IB_INTERNAL', 'A request came past its authentication.');
      const input = parseInput(operation, inputOf(request, schema));
      return options.running.run(reply.raw, (signal) => {
        if (operation.slow === true && (request.headers.accept ?? '').includes(ndjsonType)) {
          return answerByLines(operation, { request, reply, input, actor, signal }, options);
        }
        return carryOut(operation, { ...options.desk, io: silentHost, signal }, input, actor);
      });
    },
  });
}

interface Asked {
  request: FastifyRequest;
  reply: FastifyReply;
  input: unknown;
  actor: Actor;
  signal: AbortSignal;
}

async function answerByLines(
  operation: AnyOperation,
  { request, reply, input, actor, signal }: Asked,
  { desk, version, log }: AppOptions,
): Promise<void> {
  void reply.hijack();
  const answer = new LineAnswer(reply.raw, version);
  try {
    answer.end({ result: await carryOut(operation, { ...desk, io: answer, signal }, input, actor) });
  } catch (error) {
    answer.end(errorBody(tell(error, request, log).told));
  }
}

/** @throws InfrabedError by which the caller learns that it is unknown (401). */
async function authenticate(request: FastifyRequest, store: Store): Promise<Actor> {
  const [scheme, token, ...more] = (request.headers.authorization ?? '').split(' ');
  if (scheme?.toLowerCase() === 'bearer' && token !== undefined && more.length === 0) {
    const actor = await actorOfToken(store, token);
    if (actor !== undefined) return actor;
    throw new Unauthenticated('IB_NOT_ALLOWED', 'The server does not know this token.', {
      hint: 'It may have been revoked or replaced; an operator makes a new one ("infrabed user token NAME").',
    });
  }
  throw new Unauthenticated('IB_NOT_ALLOWED', 'The request has no token.', {
    hint: 'Send "authorization: Bearer ib_...".',
  });
}

class Unauthenticated extends InfrabedError {}

/** @throws InfrabedError IB_USAGE when one value was given in two places. */
function inputOf(request: FastifyRequest, schema: JsonSchema): Record<string, unknown> {
  const query = fromQuery(schema, new URL(request.url, 'http://localhost').searchParams);
  const parts = [request.params, query, bodyOf(request)] as Record<string, unknown>[];
  const input = new Map<string, unknown>();
  for (const [key, value] of parts.flatMap((part) => Object.entries(part))) {
    if (input.has(key)) throw new InfrabedError('IB_USAGE', `The request gives ${key} twice.`);
    input.set(key, value);
  }
  return Object.fromEntries(input);
}

function bodyOf({ body }: FastifyRequest): object {
  if (body === undefined || body === null) return {};
  if (typeof body === 'object' && !Array.isArray(body)) return body;
  throw new InfrabedError('IB_USAGE', 'The body of a request is a JSON object.');
}

/** What the caller is told, after the log was told more where it is a defect. */
function tell(error: unknown, request: FastifyRequest, log: Logger): HttpError {
  const answer = httpError(error, request.id);
  if (error instanceof Unauthenticated) return { ...answer, status: 401 };
  if (answer.told.code === 'IB_INTERNAL') {
    const { cause } = answer.told;
    const from = cause instanceof Error ? cause : answer.told;
    log.error({ request: request.id, path: pathOf(request), stack: from.stack }, 'error inside the server');
  }
  return answer;
}

function sendNotFound(request: FastifyRequest, reply: FastifyReply): void {
  const told = new InfrabedError('IB_SERVER', `The server knows no ${request.method} ${pathOf(request)}.`, {
    hint: 'GET /v1/openapi.json lists what it knows; another version may know more.',
  });
  void reply.code(404).send(errorBody(told));
}

/** Without the query, which is nobody's business. */
function pathOf({ url }: FastifyRequest): string {
  return url.split('?')[0] ?? '';
}
