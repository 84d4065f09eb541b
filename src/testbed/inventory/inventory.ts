/** Reads a site's inventory file: all that is wrong with it at once, or the nodes with their defaults filled in. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { asset } from '../../core/paths.js';
import { suggestion } from '../../core/spelling.js';
import { claimsOfFile, claimsOfSite, doubleClaims, type Claim } from './claims.js';
import { invalidSite, readDocument, type InventoryDocument, type KeyPath, type Problem } from './document.js';
import { entryProblems, nodesOfEntry } from './merge.js';
import { defaultsFileSchema, nodeFileSchema, siteFileSchema, tables, type Site } from './schema.js';

export { formatProblem, invalidSite, type Problem } from './document.js';
export type { Site, SiteNode } from './schema.js';

const embedded = new Map<string, Site>();

/** The sites of this machine. Each has the nodes of one backend; `local` is meant where none is named. */
const embeddedFiles = { container: 'inventory/local.yaml', libvirt: 'inventory/local-vm.yaml' } as const;

/**
 * The site of this machine for a backend: container nodes unless it is libvirt's. Read once: nearly every command asks
 * for it.
 */
export async function embeddedSite(backend = 'container'): Promise<Site> {
  const file = backend === 'libvirt' ? embeddedFiles.libvirt : embeddedFiles.container;
  const known = embedded.get(file);
  if (known !== undefined) return known;
  const path = asset(file);
  const site = { ...parseInventory(await readFile(path, 'utf8'), path), embedded: true };
  embedded.set(file, site);
  return site;
}

/** The embedded site of that name, if it is one. */
export async function embeddedSiteNamed(name: string): Promise<Site | undefined> {
  const all = await Promise.all(Object.keys(embeddedFiles).map((backend) => embeddedSite(backend)));
  return all.find((site) => site.name === name);
}

/**
 * Parses an inventory file.
 * @param path is named in errors.
 * @throws InfrabedError IB_SITE_INVALID with every problem, in `details.problems` and in the message.
 */
export function parseInventory(text: string, path: string): Site {
  const { site, problems } = read(text, path, []);
  if (site === undefined) throw invalidSite(path, problems);
  return site;
}

/** All that is wrong with an inventory, in the order of its lines; also against what other sites claim. */
export function validateInventory(text: string, path: string, others: readonly Site[] = []): Problem[] {
  return read(text, path, others).problems;
}

/** What a site claims that another one has already: disks, MAC and BMC addresses. A site of the same name is itself. */
export function validateAgainst(site: Site, others: readonly Site[], path = site.name): Problem[] {
  return doubleClaims(claimsOfSite(site), claimsOfOthers(site.name, others)).map(({ claim, first }) => ({
    file: path,
    line: null,
    key: claim.node,
    ...taken(claim, first),
  }));
}

function read(text: string, path: string, others: readonly Site[]): { site?: Site; problems: Problem[] } {
  const { document, problems: unreadable } = readDocument(text, path);
  if (document === null) return { problems: unreadable };
  const parsed = siteFileSchema.safeParse(document.value);
  const problems = [
    ...(parsed.error?.issues ?? []).flatMap((issue) => schemaProblems(issue, document)),
    ...claimProblems(document, others),
    ...problemsOfEntries(document),
  ].sort((one, other) => (one.line ?? 0) - (other.line ?? 0));
  if (!parsed.success || problems.length > 0) return { problems };
  const { name, description, defaults = {}, nodes } = parsed.data;
  const merged = nodes.flatMap((entry) => nodesOfEntry(entry, defaults));
  return {
    site: {
      name,
      ...(description === undefined ? {} : { description }),
      nodes: merged.map((node) => ({ ...node, name: `${name}/${node.name}` })),
    },
    problems,
  };
}

function claimProblems(document: InventoryDocument, others: readonly Site[]): Problem[] {
  const own = nameOf(document.value);
  const claims = claimsOfFile(document.value);
  return doubleClaims(claims, claimsOfOthers(own, others)).map(({ claim, first }) => {
    const { what, fix } = taken(claim, first);
    const { line } = document.problemAt(first.path, '', '');
    const where = first.path.length === 0 || line === null ? '' : ` (line ${String(line)})`;
    return document.problemAt(claim.path, `${what}${where}`, fix);
  });
}

function claimsOfOthers(own: string | undefined, others: readonly Site[]): Claim[] {
  return others.filter((site) => site.name !== own).flatMap(claimsOfSite);
}

function taken(claim: Claim, first: Claim): { what: string; fix: string } {
  if (claim.kind === 'node name') {
    return { what: `the name ${claim.value} stands there twice`, fix: 'Give each node a name of its own.' };
  }
  return {
    what: `the ${claim.kind} ${claim.value} is already that of ${first.node}`,
    fix: `Look at the machine itself for the ${claim.kind} that is right.`,
  };
}

/** Entries that are right by themselves, against the defaults; those that are wrong were named already. */
function problemsOfEntries(document: InventoryDocument): Problem[] {
  const file = z
    .object({ defaults: z.unknown(), nodes: z.array(z.unknown()) })
    .partial()
    .safeParse(document.value).data;
  const defaults = defaultsFileSchema.safeParse(file?.defaults ?? {}).data;
  if (file?.nodes === undefined || defaults === undefined) return [];
  return file.nodes.flatMap((raw, index) => {
    const entry = nodeFileSchema.safeParse(raw).data;
    if (entry === undefined) return [];
    return entryProblems(entry, defaults).map(({ path, what, fix }) =>
      document.problemAt(['nodes', index, ...path], what, fix),
    );
  });
}

function schemaProblems(issue: z.core.$ZodIssue, document: InventoryDocument): Problem[] {
  const path = issue.path.filter((part) => typeof part !== 'symbol');
  if (issue.code === 'unrecognized_keys') {
    const known = keysAt(path);
    return issue.keys.map((key) => {
      const what = `"${key}" is not a key here${suggestion(key, known)}`;
      return document.problemAt([...path, key], what, `The keys here are ${known.join(', ')}.`);
    });
  }
  const value = valueAt(document.value, path);
  if (value === undefined) {
    const last = String(path.at(-1) ?? 'the content');
    return [document.problemAt(path, `${last} is missing`, `Write ${last}: here.`)];
  }
  const { what, fix } = sentence(issue, value);
  return [document.problemAt(path, what, fix)];
}

/** Never shows the value: it may be a secret in the wrong place. */
function sentence(issue: z.core.$ZodIssue, value: unknown): { what: string; fix: string } {
  const see = 'docs/inventory.md shows an example of every key.';
  switch (issue.code) {
    case 'custom':
      return { what: issue.message, fix: (issue.params as { fix?: string } | undefined)?.fix ?? see };
    case 'invalid_value': {
      const words = issue.values.map(String);
      const near = typeof value === 'string' ? suggestion(value, words) : '';
      return { what: `this word is not known here${near}`, fix: `Write one of ${words.join(', ')}.` };
    }
    case 'invalid_type':
      return { what: `this is not ${typeNames[issue.expected] ?? issue.expected}`, fix: see };
    case 'too_small':
      return { what: `this is too small or empty`, fix: `Write at least ${String(issue.minimum)}.` };
    case 'invalid_format':
      return { what: 'this word is not written as such words are here', fix: formatFix };
    default:
      return { what: issue.message, fix: see };
  }
}

const formatFix =
  'Use letters, digits and hyphens, beginning with a letter or digit; small letters in names and roles.';
const typeNames: Readonly<Record<string, string>> = {
  object: 'a table of keys',
  array: 'a list',
  string: 'text (digits need quotes)',
  number: 'a number',
  int: 'a whole number',
};

function keysAt(path: KeyPath): string[] {
  const table = tables[path.findLast((part) => typeof part === 'string') ?? ''];
  const keys = Object.keys(table?.shape ?? {});
  // Addresses belong to one node each, so that the defaults do not know them.
  return path[0] === 'defaults' ? keys.filter((key) => key !== 'address') : keys;
}

function valueAt(document: unknown, path: KeyPath): unknown {
  let value = document;
  for (const [depth, part] of path.entries()) {
    const inner = (value as Record<string | number, unknown> | null | undefined)?.[part];
    // A single value where a list is allowed was read as a list of one.
    if (inner === undefined && part === 0 && depth === path.length - 1) return value;
    value = inner;
  }
  return value;
}

function nameOf(document: unknown): string | undefined {
  return z.object({ name: z.string() }).safeParse(document).data?.name;
}
