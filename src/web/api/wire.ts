/**
 * How an operation travels over HTTP: what goes into its path, its query and its body, and how text of a query becomes
 * the value that the operation's schema wants. Client and server share it.
 */
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import type { AnyOperation } from './operation.js';

export const ndjsonType = 'application/x-ndjson';
export const versionHeader = 'infrabed-version';

/** Names of the parameters of a path: `/v1/leases/:id/extend` has `id`. */
export function pathParameters(path: string): string[] {
  return [...path.matchAll(/:([A-Za-z_]+)/g)].map((match) => match[1] ?? '');
}

export interface Outgoing {
  /** Path and query. */
  path: string;
  /** JSON, or undefined where the method carries none. */
  body: string | undefined;
}

/** @throws InfrabedError IB_USAGE when a parameter of the path is missing, or a query would have to carry null. */
export function outgoing(
  operation: Pick<AnyOperation, 'name' | 'method' | 'path'>,
  input: unknown,
): Outgoing {
  const rest: Record<string, unknown> = { ...(input as Record<string, unknown>) };
  const path = operation.path.replace(/:([A-Za-z_]+)/g, (_whole, name: string) => {
    const value = rest[name];
    Reflect.deleteProperty(rest, name);
    if (typeof value === 'string' && value !== '' && value !== '.' && value !== '..') {
      return encodeURIComponent(value);
    }
    throw new InfrabedError('IB_USAGE', `${operation.name} needs its ${name}.`);
  });
  if (operation.method === 'POST') return { path, body: JSON.stringify(rest) };
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(rest)) {
    if (value === undefined) continue;
    if (value === null)
      throw new InfrabedError('IB_USAGE', `The ${key} of ${operation.name} cannot be null.`);
    for (const item of Array.isArray(value) ? (value as unknown[]) : [value])
      query.append(key, queryText(item));
  }
  const text = query.toString();
  return { path: text === '' ? path : `${path}?${text}`, body: undefined };
}

function queryText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** A JSON schema as far as we look into it. */
export interface JsonSchema {
  type?: string | string[];
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  required?: string[];
  [keyword: string]: unknown;
}

/** The JSON schema (2020-12) of what an operation takes or gives. */
export function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  const document = { ...z.toJSONSchema(schema, { io, target: 'draft-2020-12' }) };
  // Said once for the whole description.
  delete document.$schema;
  return document as JsonSchema;
}

/** The values of a query, which is all text, as the input's schema wants them. What does not fit is left to zod. */
export function fromQuery(schema: JsonSchema, query: URLSearchParams): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const key of new Set(query.keys())) {
    const wanted = schema.properties?.[key];
    const texts = query.getAll(key);
    if (kinds(wanted).has('array')) values[key] = texts.map((text) => fromText(itemsOf(wanted), text));
    // Said twice where one is wanted: the list shows zod that something is wrong.
    else values[key] = texts.length === 1 ? fromText(wanted, texts[0] ?? '') : texts;
  }
  return values;
}

function fromText(wanted: JsonSchema | undefined, text: string): unknown {
  if (wanted === undefined || kinds(wanted).has('string')) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Every JSON type that a value of this schema may have. */
function kinds(schema: JsonSchema | undefined): ReadonlySet<string> {
  const found = new Set<string>();
  for (const one of [schema, ...(schema?.anyOf ?? [])]) {
    for (const type of [one?.type ?? []].flat()) found.add(type);
  }
  if (schema?.['enum'] !== undefined || schema?.['const'] !== undefined) {
    for (const value of [schema['const'], schema['enum']].flat()) found.add(typeof value);
  }
  return found;
}

function itemsOf(schema: JsonSchema | undefined): JsonSchema | undefined {
  return [schema, ...(schema?.anyOf ?? [])].find((one) => one?.items !== undefined)?.items;
}
