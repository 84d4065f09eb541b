/** The description of the API: whole, and true to what the operations take. */
import t from 'tap';
import { z } from 'zod';
import { errorBody, httpError } from '../../src/web/api/error-body.js';
import { InfrabedError } from '../../src/core/errors.js';
import { openApiDocument } from '../../src/web/api/openapi.js';
import { operations } from '../../src/web/api/operations.js';
import { pathParameters } from '../../src/web/api/wire.js';
import { things } from './things.js';

type Part = Record<string, unknown>;

/** What OpenAPI 3.1.0 asks of the parts that we use, unknown fields refused (spec.openapis.org/oas/v3.1.0). */
const schema = z.union([z.boolean(), z.record(z.string(), z.unknown())]);
const content = z.record(z.string().regex(/^[a-z]+\/[a-z-]+$/), z.strictObject({ schema }));
const reference = z.strictObject({ $ref: z.string().startsWith('#/components/') });
const response = z.union([
  reference,
  z.strictObject({ description: z.string(), content: content.optional() }),
]);
const security = z.array(z.record(z.string(), z.array(z.string())));
const described = z.strictObject({
  operationId: z.string(),
  summary: z.string().min(1),
  description: z.string().optional(),
  tags: z.array(z.string()).optional(),
  'x-role': z.enum(['user', 'operator']).optional(),
  security: security.optional(),
  parameters: z
    .array(
      z
        .strictObject({ name: z.string(), in: z.enum(['path', 'query']), required: z.boolean(), schema })
        .refine((one) => one.in !== 'path' || one.required, 'a parameter of the path is required'),
    )
    .optional(),
  requestBody: z.strictObject({ required: z.boolean(), content }).optional(),
  responses: z.record(z.string().regex(/^([1-5]\d\d|default)$/), response),
});
const pathItem = z.partialRecord(z.enum(['get', 'post', 'delete']), described);
const documentSchema = z.strictObject({
  openapi: z.literal('3.1.0'),
  info: z.strictObject({ title: z.string(), version: z.string(), description: z.string() }),
  jsonSchemaDialect: z.url(),
  security,
  tags: z.array(z.strictObject({ name: z.string() })),
  paths: z.record(z.string().startsWith('/'), pathItem),
  components: z.strictObject({
    securitySchemes: z.record(
      z.string(),
      z.strictObject({ type: z.literal('http'), scheme: z.literal('bearer'), description: z.string() }),
    ),
    responses: z.record(z.string(), response),
    schemas: z.record(z.string(), schema),
  }),
});

for (const [name, list] of [
  ['of this version', operations],
  ['of the tests', things],
] as const) {
  t.test(`the description of the operations ${name} is whole`, (t) => {
    const text = JSON.stringify(openApiDocument(list, '1.2.3'));
    const document = documentSchema.parse(JSON.parse(text));
    const found = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(
        ([method, { operationId }]) => `${operationId} ${method.toUpperCase()} ${path}`,
      ),
    );
    const expected = list.map((one) => `${one.name} ${one.method} ${one.path.replace(/:(\w+)/g, '{$1}')}`);
    t.same(
      found.sort(),
      ['health GET /v1/health', 'openapi GET /v1/openapi.json', ...expected].sort(),
      'every operation once, at its place',
    );
    for (const { $ref } of references(JSON.parse(text))) {
      t.ok(resolve(JSON.parse(text) as Part, $ref), `${$ref} is there`);
    }
    for (const [path, item] of Object.entries(document.paths)) {
      for (const one of Object.values(item)) {
        const named = (one.parameters ?? []).filter((each) => each.in === 'path').map((each) => each.name);
        t.same(
          named,
          [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]),
          `parameters of ${path}`,
        );
        for (const each of schemasOf(one)) t.ok(z.fromJSONSchema(each), 'its schemas are schemas');
      }
    }
    t.end();
  });
}

t.test('names, places and parameters of the operations are sound', (t) => {
  const unique = (values: string[]): void => {
    t.same(
      values.filter((one, at) => values.indexOf(one) !== at),
      [],
    );
  };
  unique(operations.map(({ name }) => name));
  unique(operations.map(({ method, path }) => `${method} ${path.replace(/:\w+/g, ':')}`));
  for (const { name, path, input, method, slow, summary } of operations) {
    t.match(name, /^[a-z]+\.[a-z-]+$/);
    t.match(path, /^\/v1\/[a-z0-9/:_-]+$/i, name);
    t.notMatch(summary, /\.$/);
    if (slow === true) t.equal(method, 'POST', `${name}: what takes long does something`);
    const properties = z.toJSONSchema(input, { io: 'input' }).properties ?? {};
    for (const parameter of pathParameters(path)) t.ok(parameter in properties, `${name} takes ${parameter}`);
    const strange = input.safeParse({ 'no such key': 1 });
    t.ok(!strange.success || !(input instanceof z.ZodObject), `${name} refuses unknown keys`);
  }
  t.end();
});

t.test('errors have the shape that the description gives, and a fitting status', (t) => {
  const document = openApiDocument(things, '1.2.3') as { components: { schemas: Record<string, Part> } };
  const shape = z.fromJSONSchema(document.components.schemas['Error'] ?? {});
  const thrown: [unknown, number, string][] = [
    [new InfrabedError('IB_USAGE', 'No.'), 400, 'IB_USAGE'],
    [new InfrabedError('IB_LEASE_UNKNOWN', 'No.', { hint: 'Look.' }), 404, 'IB_LEASE_UNKNOWN'],
    [new InfrabedError('IB_LEASE_CONFLICT', 'No.', { details: { by: 'ada' } }), 409, 'IB_LEASE_CONFLICT'],
    [new InfrabedError('IB_NODE_FAILED', 'No.'), 500, 'IB_NODE_FAILED'],
    [Object.assign(new Error('too large'), { statusCode: 413 }), 413, 'IB_USAGE'],
    [new Error('a path of the server'), 500, 'IB_INTERNAL'],
    ['no error at all', 500, 'IB_INTERNAL'],
  ];
  for (const [error, status, code] of thrown) {
    const answer = httpError(error, 'req-1');
    t.match({ ...answer, body: errorBody(answer.told) }, { status, body: { error: { code } } });
    t.ok(shape.safeParse(errorBody(answer.told)).success);
  }
  t.end();
});

function references(value: unknown): { $ref: string }[] {
  if (value === null || typeof value !== 'object') return [];
  const own = typeof (value as Part)['$ref'] === 'string' ? [value as { $ref: string }] : [];
  return [...own, ...Object.values(value).flatMap(references)];
}

function resolve(document: Part, ref: string): unknown {
  return ref
    .slice(2)
    .split('/')
    .reduce<unknown>((part, key) => (part as Part | undefined)?.[key], document);
}

/** The schemas of an operation that stand by themselves. */
function schemasOf(one: z.output<typeof described>): z.core.JSONSchema.JSONSchema[] {
  const answers = Object.values(one.responses).flatMap((each) =>
    'content' in each ? [each.content ?? {}] : [],
  );
  const bodies = [one.requestBody?.content ?? {}, ...answers].flatMap((each) => Object.values(each));
  return [...bodies, ...(one.parameters ?? [])]
    .map((each) => each.schema as z.core.JSONSchema.JSONSchema)
    .filter((each) => references(each).length === 0);
}
