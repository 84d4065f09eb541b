/** A site's inventory file: which nodes there are and which backend each belongs to. */
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { z } from 'zod';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { asset } from '../../core/paths.js';

const namePattern = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/;
const inventorySchema = z.strictObject({
  name: z.string().regex(namePattern),
  groups: z
    .array(
      z.strictObject({
        /** One name, or a range of numbers of equal width: `n[01-16]`. */
        nodes: z.string(),
        backend: z.string(),
      }),
    )
    .min(1),
});

/** A site as the store keeps it. */
export interface Site {
  name: string;
  nodes: readonly SiteNode[];
}

export interface SiteNode {
  /** `local/n01`: site and node. */
  name: string;
  backend: string;
}

/** The site of this machine: container nodes, from inventory/local.yaml. */
export async function embeddedSite(): Promise<Site> {
  const path = asset('inventory/local.yaml');
  return parseInventory(await readFile(path, 'utf8'), path);
}

/**
 * Parses an inventory file.
 * @param path is named in errors.
 * @throws InfrabedError IB_USAGE with what was expected and where.
 */
export function parseInventory(text: string, path: string): Site {
  const refuse = (what: string): InfrabedError =>
    new InfrabedError('IB_USAGE', `The inventory ${path} is wrong: ${what}`);
  let document: unknown;
  try {
    document = parse(text);
  } catch (error) {
    throw refuse(messageOf(error));
  }
  const parsed = inventorySchema.safeParse(document);
  if (!parsed.success) throw refuse(z.prettifyError(parsed.error));
  const site = parsed.data;
  const nodes = site.groups.flatMap((group) => {
    const names = expandNames(group.nodes);
    if (names === undefined) throw refuse(`"${group.nodes}" is neither a name nor a range like n[01-16].`);
    return names.map((name) => ({ name: `${site.name}/${name}`, backend: group.backend }));
  });
  const twice = nodes.find((node, index) => nodes.findIndex((other) => other.name === node.name) !== index);
  if (twice) throw refuse(`${twice.name} stands there twice.`);
  return { name: site.name, nodes };
}

/** `n[01-03]` as n01, n02, n03; undefined for what is no name and no range. */
function expandNames(text: string): string[] | undefined {
  const range = /^(.*)\[(\d+)-(\d+)\](.*)$/.exec(text);
  if (range === null) return namePattern.test(text) ? [text] : undefined;
  const [, before = '', first = '', last = '', after = ''] = range;
  const count = Number(last) - Number(first) + 1;
  if (count < 1 || count > 10_000 || first.length !== last.length) return undefined;
  const names = Array.from({ length: count }, (_, index) => {
    const number = String(Number(first) + index).padStart(first.length, '0');
    return `${before}${number}${after}`;
  });
  return names.every((name) => namePattern.test(name)) ? names : undefined;
}
