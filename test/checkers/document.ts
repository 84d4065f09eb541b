/** docs/checkers.md from the checkers themselves; the test rewrites it with UPDATE_DOCS=1. */
import { z } from 'zod';
import type { Checker } from '../../src/trial/gate/checker.js';

interface Property {
  type?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Property[];
  items?: Property;
}

/** What stands above the generated part. */
const head = `# Checkers

A check names its checker by \`uses\` and its parameters by \`with\`. Each checker has two parts: \`gather\` looks at
the cluster and returns evidence, which is kept in the bundle; \`judge\` is a pure function of that evidence, so that a
trial can be judged again without its cluster. On container nodes \`gather\` runs programs of the pristine image inside
the node, so that a replaced \`systemctl\`, shell or loader changes nothing that it sees; such programs still see the
node's own \`/etc\`, \`/var\`, \`/run\`, \`/home\`, \`/root\`, \`/srv\`, \`/opt\` and \`/tmp\`. Files are read as they are on the
node, wherever they lie.

A check that could not look is attributed: a node that is alive but cannot be asked fails it, only a proven fault of the
testbed is an error (docs/writing-tasks.md).

This file is written from the checkers (\`UPDATE_DOCS=1 node --import=tsx test/checkers/checkers.test.ts\`).
`;

export function checkersDocument(checkers: Iterable<Checker>): string {
  return [head, ...[...checkers].map(section)].join('\n');
}

function section({ name, summary, with: schema }: Checker): string {
  const json = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as {
    properties?: Record<string, Property>;
    required?: string[];
  };
  const rows = Object.entries(json.properties ?? {}).map(([key, property]) => {
    const required = json.required?.includes(key) === true;
    const fallback = property.default === undefined ? '' : `\`${JSON.stringify(property.default)}\``;
    return `| \`${key}\` | ${cell(typeOf(property))} | ${required ? 'required' : fallback} | ${cell(property.description ?? '')} |`;
  });
  const table = ['| key | type | default | meaning |', '| --- | --- | --- | --- |', ...rows].join('\n');
  return `## ${name}\n\n${summary}\n\n${rows.length > 0 ? `${table}\n` : 'No parameters.\n'}`;
}

function typeOf(property: Property): string {
  if (property.enum !== undefined) return property.enum.map((one) => JSON.stringify(one)).join(' or ');
  if (property.anyOf !== undefined) return [...new Set(property.anyOf.map(typeOf))].join(' or ');
  if (property.type === 'array') return `list of ${typeOf(property.items ?? {})}`;
  if (property.type === 'object') return 'table';
  return property.type ?? 'any';
}

const cell = (text: string): string => text.replaceAll('|', '\\|').replace(/\s+/g, ' ');
