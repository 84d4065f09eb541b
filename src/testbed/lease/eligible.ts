/** Which nodes of a site a request may get at all, and the refusals that say how many there could ever be. */
import type { Kysely, Selectable } from 'kysely';
import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import type { Database, NodesTable } from '../../record/store/schema.js';
import { embeddedSite, embeddedSiteNamed } from '../inventory/inventory.js';
import { enrollSite } from '../node/enroll.js';
import type { Wanted } from './ground.js';

/** A node as far as the choice goes. */
export interface SiteNodeState {
  name: string;
  backend: string;
  state: string;
  lease: string | null;
  tags: readonly string[];
  /** Not retired and not in maintenance: it could be free at some time. */
  isEverFree: boolean;
  /** Could be reserved for a time to come. */
  isUsable: boolean;
  /** Could be lent at once, as far as its state goes. */
  isReady: boolean;
}

/** States from which a node comes back only by somebody's doing. */
const unusable = new Set(['quarantined', 'maintenance', 'enrolled']);

const specSchema = z.looseObject({ tags: z.array(z.string()).default([]) });

/** The spec is the same text at nearly every look. */
const tagsBySpec = new Map<string, readonly string[]>();

function tagsOf(spec: string): readonly string[] {
  const known = tagsBySpec.get(spec);
  if (known) return known;
  const { tags } = specSchema.parse(JSON.parse(spec));
  if (tagsBySpec.size > 10_000) tagsBySpec.clear();
  tagsBySpec.set(spec, tags);
  return tags;
}

/**
 * The nodes of a site, by name. The embedded site is enrolled at its first use.
 * @throws InfrabedError IB_SITE_UNKNOWN.
 */
export async function nodesOfSite(db: Kysely<Database>, site: string): Promise<SiteNodeState[]> {
  const rows = await db
    .selectFrom('nodes')
    .select(['name', 'backend', 'state', 'lease', 'spec', 'retired', 'hold'])
    .where('site', '=', site)
    .orderBy('name')
    .execute();
  if (rows.length === 0) await assertSite(db, site);
  return rows.map(stateOf);
}

function stateOf(
  row: Pick<Selectable<NodesTable>, 'name' | 'backend' | 'state' | 'lease' | 'spec' | 'retired' | 'hold'>,
): SiteNodeState {
  const { name, backend, state, lease } = row;
  // A hold that waits for the end of a lease counts as if it were in force: no new lease gets the node.
  const isHeldBack = row.retired === 1 || row.hold !== null || state === 'maintenance';
  return {
    name,
    backend,
    state: row.hold === null ? state : 'maintenance',
    lease,
    tags: tagsOf(row.spec),
    isEverFree: !isHeldBack,
    isUsable: !isHeldBack && !unusable.has(state),
    isReady: !isHeldBack && state === 'available',
  };
}

async function assertSite(db: Kysely<Database>, site: string): Promise<void> {
  const sites = (await db.selectFrom('sites').select('name').orderBy('name').execute()).map(
    (row) => row.name,
  );
  if (sites.includes(site)) return;
  throw new InfrabedError('IB_SITE_UNKNOWN', `There is no site "${site}".`, {
    hint: sites.length > 0 ? `There are: ${sites.join(', ')}.` : 'Run "infrabed site add FILE".',
  });
}

/** The site that is meant where none is named. */
export async function defaultSite(): Promise<string> {
  return (await embeddedSite()).name;
}

/** Enrols an embedded site where one is asked for. Call it inside a transaction. */
export async function enrollIfEmbedded(db: Kysely<Database>, site: string, clock: Clock): Promise<void> {
  const embedded = await embeddedSiteNamed(site);
  if (embedded !== undefined) await enrollSite(db, embedded, clock);
}

/** The nodes that a request could get, each with its state, checked against what there is. */
export interface Eligible {
  count: number;
  /** True where the request names its nodes. */
  isByName: boolean;
  /** Nodes that fit the request and could be reserved. */
  usable: SiteNodeState[];
}

/**
 * @throws InfrabedError IB_LEASE_INVALID (no count, names twice, unknown tag or backend), IB_NODE_UNKNOWN,
 *   IB_NOT_ENOUGH_NODES when there could never be so many.
 */
export function eligible(nodes: readonly SiteNodeState[], site: string, wanted: Wanted): Eligible {
  const fitting = 'names' in wanted ? named(nodes, site, wanted.names) : tagged(nodes, wanted);
  const count = 'names' in wanted ? fitting.length : wanted.count;
  const ever = fitting.filter((node) => node.isEverFree);
  const usable = fitting.filter((node) => node.isUsable);
  if (usable.length >= count) return { count, isByName: 'names' in wanted, usable };
  const states = countStates(fitting.filter((node) => !node.isUsable));
  const more = ever.length > usable.length ? `, ${String(usable.length)} of them as things stand` : '';
  throw new InfrabedError(
    'IB_NOT_ENOUGH_NODES',
    `${plural(count)} wanted, and at most ${String(ever.length)} such nodes of the site ${site} could ever be free${more}${states && ` (${states})`}.`,
    {
      hint: 'Ask for fewer nodes or fewer tags. "infrabed node list" shows what there is.',
      details: { wanted: count, everFree: ever.length, usable: usable.length },
    },
  );
}

export function plural(count: number): string {
  return count === 1 ? '1 node is' : `${String(count)} nodes are`;
}

/** `2 leased, 1 quarantined`. */
export function countStates(nodes: readonly { state: string }[]): string {
  const by = new Map<string, number>();
  for (const { state } of nodes) by.set(state, (by.get(state) ?? 0) + 1);
  return [...by].map(([state, number]) => `${String(number)} ${state}`).join(', ');
}

function named(nodes: readonly SiteNodeState[], site: string, names: readonly string[]): SiteNodeState[] {
  if (names.length === 0)
    throw invalid('No node is named.', 'Name at least one, or ask for a number of nodes.');
  const full = names.map((name) => (name.includes('/') ? name : `${site}/${name}`));
  const twice = full.find((name, index) => full.indexOf(name) !== index);
  if (twice !== undefined) throw invalid(`The node ${twice} is named twice.`, 'Name each node once.');
  return full.map((name) => {
    const node = nodes.find((one) => one.name === name);
    if (node) return node;
    throw new InfrabedError('IB_NODE_UNKNOWN', `The site ${site} has no node "${name}".`, {
      hint: `Its nodes are ${nodes.map((one) => one.name).join(', ')}.`,
    });
  });
}

function tagged(
  nodes: readonly SiteNodeState[],
  { count, tags = [], backend }: Extract<Wanted, { count: number }>,
): SiteNodeState[] {
  if (!Number.isSafeInteger(count) || count < 1)
    throw invalid(`${String(count)} is no number of nodes.`, 'Ask for at least one node.');
  const backends = new Set(nodes.map((node) => node.backend));
  if (backend !== undefined && nodes.length > 0 && !backends.has(backend)) {
    throw invalid(`No node has the backend "${backend}".`, `There are: ${[...backends].sort().join(', ')}.`);
  }
  const known = new Set(nodes.flatMap((node) => node.tags));
  const unknown = tags.find((tag) => !known.has(tag));
  if (unknown !== undefined) {
    const list = [...known].sort().join(', ');
    throw invalid(
      `No node has the tag "${unknown}".`,
      list ? `There are: ${list}.` : 'No node of it has any tag.',
    );
  }
  return nodes.filter(
    (node) =>
      (backend === undefined || node.backend === backend) && tags.every((tag) => node.tags.includes(tag)),
  );
}

export function invalid(sentence: string, hint: string): InfrabedError {
  return new InfrabedError('IB_LEASE_INVALID', sentence, { hint });
}
