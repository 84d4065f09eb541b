/** Turns what zod says about a task.toml into problems with line, key, what was expected and a suggestion. */
import { z } from 'zod';
import { keyText, nearestOf, suggestion, type TaskProblem } from './problem.js';
import { taskSchema } from './schema.js';
import { lineOf, type KeyPath, type LineIndex } from './toml-lines.js';

interface Shape {
  properties?: Record<string, Shape>;
  items?: Shape;
  additionalProperties?: unknown;
}
const shape = z.toJSONSchema(taskSchema, { io: 'input', unrepresentable: 'any' }) as Shape;

/** Keys that the schema has at a path (empty for free tables). */
export function knownKeys(path: KeyPath): string[] {
  let at: Shape | undefined = shape;
  for (const part of path) at = typeof part === 'number' ? at?.items : at?.properties?.[part];
  return Object.keys(at?.properties ?? {});
}

export function schemaProblems(
  error: z.ZodError,
  input: unknown,
  lines: LineIndex,
  at: { file: string; prefix?: KeyPath; known?: (path: KeyPath) => readonly string[] },
): TaskProblem[] {
  const prefix = at.prefix ?? [];
  const known = at.known ?? knownKeys;
  return error.issues.flatMap((issue) => {
    const inner = issue.path.filter((part) => typeof part !== 'symbol');
    const keys = issue.code === 'unrecognized_keys' ? issue.keys.map((key) => [...inner, key]) : [inner];
    return keys.map((path) => ({
      file: at.file,
      line: lineOf(lines, [...prefix, ...path]),
      key: keyText([...prefix, ...path]),
      message: sentence(issue, path, input, known),
    }));
  });
}

function sentence(
  issue: z.core.$ZodIssue,
  path: KeyPath,
  input: unknown,
  known: (path: KeyPath) => readonly string[],
): string {
  const value = valueAt(input, path);
  const parent = path.slice(0, -1);
  if (issue.code === 'unrecognized_keys') {
    const keys = known(parent);
    const hint = suggestion(String(path.at(-1)), keys);
    return `is not a key of this table${hint || `; its keys are ${keys.join(', ')}`}`;
  }
  if (value === undefined) return `is missing${misspelt(path, input, known)}; expected ${expectation(issue)}`;
  if (issue.code === 'invalid_value') {
    const hint = typeof value === 'string' ? suggestion(value, issue.values.map(String)) : '';
    return `expected ${expectation(issue)}, got ${shown(value)}${hint}`;
  }
  if (issue.code === 'custom') return issue.message;
  return `expected ${expectation(issue)}, got ${shown(value)}`;
}

/** Where a key is missing and its table holds a similar one. */
function misspelt(path: KeyPath, input: unknown, known: (path: KeyPath) => readonly string[]): string {
  const parent = valueAt(input, path.slice(0, -1));
  if (parent === null || typeof parent !== 'object') return '';
  const names = new Set(known(path.slice(0, -1)));
  const strangers = Object.keys(parent).filter((key) => !names.has(key));
  const near = nearestOf(String(path.at(-1)), strangers);
  return near === undefined ? '' : ` (there is "${near}", which is not known)`;
}

function expectation(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      return issue.expected === 'record' || issue.expected === 'object'
        ? 'a table'
        : `a value of type ${issue.expected}`;
    case 'invalid_value':
      return `one of ${issue.values.map((value) => JSON.stringify(value)).join(', ')}`;
    case 'invalid_format':
      return issue.message;
    case 'too_small':
      return `${issue.inclusive === false ? 'more than' : 'at least'} ${String(issue.minimum)}${counted(issue.origin)}`;
    case 'too_big':
      return `at most ${String(issue.maximum)}${counted(issue.origin)}`;
    case 'invalid_union':
      return [...new Set(issue.errors.flat().map(expectation))].join(' or ') || issue.message;
    default:
      return issue.message;
  }
}

function counted(origin: string): string {
  if (origin === 'string') return ' character(s)';
  return origin === 'array' ? ' element(s)' : '';
}

function valueAt(input: unknown, path: KeyPath): unknown {
  let value = input;
  for (const part of path) {
    if (value === null || typeof value !== 'object') return undefined;
    value = (value as Record<string | number, unknown>)[part];
  }
  return value;
}

function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 80 ? `${text.slice(0, 79)}…` : text;
}
