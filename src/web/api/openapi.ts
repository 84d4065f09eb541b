/** The OpenAPI 3.1 description (https://spec.openapis.org/oas/v3.1.0) of a list of operations. */
import type { AnyOperation } from './operation.js';
import { jsonSchema, ndjsonType, pathParameters, type JsonSchema } from './wire.js';

type Part = Record<string, unknown>;

/** Pure: the same list gives the same document. */
export function openApiDocument(operations: readonly AnyOperation[], version: string): Part {
  const paths: Record<string, Part> = {
    '/v1/health': { get: openOperation('health', 'Does the server answer?', ref('schemas', 'Health')) },
    '/v1/openapi.json': { get: openOperation('openapi', 'This description', { type: 'object' }) },
  };
  for (const operation of operations) {
    const path = operation.path.replace(/:([A-Za-z_]+)/g, '{$1}');
    (paths[path] ??= {})[operation.method.toLowerCase()] = describe(operation);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'infrabed',
      version,
      description:
        'A testbed controller. The command line asks the same of this server when INFRABED_SERVER is set.',
    },
    jsonSchemaDialect: 'https://json-schema.org/draft/2020-12/schema',
    security: [{ token: [] }],
    tags: [...new Set(operations.map(noun))].sort().map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'A token of "infrabed user add".' },
      },
      responses: {
        Error: {
          description: 'What was wrong; the codes stand in docs/errors.md.',
          content: { 'application/json': { schema: ref('schemas', 'Error') } },
        },
      },
      schemas: componentSchemas,
    },
  };
}

const componentSchemas: Readonly<Record<string, JsonSchema>> = {
  Error: {
    type: 'object',
    required: ['error'],
    properties: {
      error: {
        type: 'object',
        required: ['code', 'message', 'hint', 'details'],
        properties: {
          code: { type: 'string', pattern: '^IB_[A-Z_]+$' },
          message: { type: 'string' },
          hint: { type: ['string', 'null'] },
          details: { type: 'object' },
        },
      },
    },
  },
  Health: {
    type: 'object',
    required: ['status', 'version'],
    properties: { status: { type: 'string', const: 'ok' }, version: { type: 'string' } },
  },
  Event: {
    type: 'object',
    description: 'Progress: a phase, a count, an information or a warning.',
    required: ['type'],
    properties: { type: { type: 'string', enum: ['phase', 'progress', 'info', 'warning'] } },
  },
};

function describe(operation: AnyOperation): Part {
  const input = jsonSchema(operation.input, 'input');
  const { parameters, body } = inputParts(operation, input);
  const output = jsonSchema(operation.output, 'output');
  return {
    operationId: operation.name,
    summary: operation.summary,
    tags: [noun(operation)],
    ...(operation.role === 'operator' ? { description: 'For operators.' } : {}),
    'x-role': operation.role,
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: body } } } }),
    responses: {
      '200': { description: 'Done.', content: answers(operation, output) },
      default: ref('responses', 'Error'),
    },
  };
}

/** Slow operations tell their progress line by line where the caller accepts that. */
function answers({ slow }: AnyOperation, output: JsonSchema): Part {
  const json = { 'application/json': { schema: output } };
  if (slow !== true) return json;
  const lines: Part = {
    description:
      'One JSON value a line; empty lines only say that it goes on. The last is a result or an error.',
    oneOf: [
      { type: 'object', required: ['event'], properties: { event: ref('schemas', 'Event') } },
      { type: 'object', required: ['result'], properties: { result: output } },
      ref('schemas', 'Error'),
    ],
  };
  return { ...json, [ndjsonType]: { schema: lines } };
}

/** The input taken apart as wire.ts sends it. */
function inputParts(
  operation: AnyOperation,
  input: JsonSchema,
): { parameters: Part[]; body: JsonSchema | undefined } {
  const inPath = pathParameters(operation.path);
  const properties = input.properties ?? {};
  const parameters: Part[] = inPath.map((name) => ({
    name,
    in: 'path',
    required: true,
    schema: properties[name] ?? { type: 'string' },
  }));
  if (operation.method === 'POST') return { parameters, body: without(input, inPath) };
  for (const [name, schema] of Object.entries(properties)) {
    if (inPath.includes(name)) continue;
    const required = input.required?.includes(name) ?? false;
    parameters.push({ name, in: 'query', required, schema });
  }
  return { parameters, body: undefined };
}

/** An object's schema without some of its properties. */
function without(schema: JsonSchema, names: readonly string[]): JsonSchema {
  const left: JsonSchema = { ...schema };
  if (schema.properties !== undefined) {
    left.properties = Object.fromEntries(
      Object.entries(schema.properties).filter(([name]) => !names.includes(name)),
    );
  }
  const required = schema.required?.filter((name) => !names.includes(name)) ?? [];
  if (required.length > 0) left.required = required;
  else delete left.required;
  return left;
}

function openOperation(operationId: string, summary: string, schema: Part): Part {
  return {
    operationId,
    summary,
    security: [],
    responses: { '200': { description: 'Done.', content: { 'application/json': { schema } } } },
  };
}

function noun({ name }: AnyOperation): string {
  return name.split('.')[0] ?? name;
}

function ref(kind: 'schemas' | 'responses', name: string): { $ref: string } {
  return { $ref: `#/components/${kind}/${name}` };
}
