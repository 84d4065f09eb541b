/** Brings the nodes of the store in line with an inventory: new ones enrolled, changed ones updated, others retired. */
import type { Kysely, Selectable } from 'kysely';
import { controllerActor, type Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database, NodesTable } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { invalidSite, validateAgainst, type Site, type SiteNode } from '../inventory/inventory.js';
import { siteSchema } from '../inventory/schema.js';
import { neverMadeProof } from './clean-proof.js';
import { assertOperator, type NodeGround } from './operate.js';
import { transition } from './transition.js';

/** What adding a site does, or did, to its nodes. Names are `site/node`. */
export interface SitePlan {
  site: string;
  isNew: boolean;
  added: string[];
  /** With another entry in the inventory than before. */
  changed: string[];
  /** No longer in the file: never lent again, as long as that is so. */
  retired: string[];
  /** Retired before, and in the file again. */
  returned: string[];
  unchanged: number;
  /** Nodes that would be retired or get another backend, but are held or reserved: while there are any, it is refused. */
  inUse: { node: string; leases: string[] }[];
}

/** A site as people see it. */
export interface SiteView {
  name: string;
  description: string | null;
  /** Comes with infrabed. */
  isEmbedded: boolean;
  addedAt: number;
  /** Without the retired ones. */
  nodes: number;
  /** How many nodes are in each state, and of each backend. */
  states: Record<string, number>;
  backends: Record<string, number>;
  retired: number;
}

/** Backends whose nodes exist only while a cluster stands on them. */
const madeForEachLease: ReadonlySet<string> = new Set(['container', 'libvirt']);

type NodeRow = Selectable<NodesTable>;

/**
 * Enrols a site that the store does not know, which the first command on a machine does with the embedded one. That one
 * is brought up to date with a newer version of infrabed too; a site that a person added is left as it is. A container
 * or virtual machine is made anew for each lease, so that an enrolled one has nothing to be cleaned of and is available at once; any
 * other stays `enrolled` until it is cleaned. Call it inside a transaction: two controllers may start at once.
 */
export async function enrollSite(db: Kysely<Database>, site: Site, clock: Clock): Promise<void> {
  const stored = await db.selectFrom('sites').selectAll().where('name', '=', site.name).executeTakeFirst();
  if (stored !== undefined) {
    if (stored.inventory === JSON.stringify(site)) return;
    // 0: written before sites could be added, when there was only the embedded one.
    const isByItself = stored.added_at === 0 || parseSite(stored.inventory).embedded === true;
    if (!isByItself || site.embedded !== true) return;
  }
  // Nodes in use go on to the end of their lease, and are not lent again.
  await apply(db, site, await planSite(db, site), controllerActor, clock);
}

/**
 * Adds a site, or brings it in line with a newer inventory: all of it or nothing.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_SITE_INVALID when another site claims a disk, MAC or BMC address of it,
 *   IB_LEASE_CONFLICT naming the nodes that would go although a lease holds or has reserved them.
 */
export async function addSite(ground: NodeGround, site: Site, actor: Actor): Promise<SitePlan> {
  assertOperator(actor, 'The inventory of a site');
  return ground.store.db.transaction().execute(async (db) => {
    const problems = validateAgainst(site, await sitesOf(db));
    if (problems.length > 0) throw invalidSite(site.name, problems);
    const plan = await planSite(db, site);
    if (plan.inUse.length > 0) throw inUse(plan);
    await apply(db, site, plan, actor, ground.clock);
    return plan;
  });
}

function inUse({ site, inUse: nodes }: SitePlan): InfrabedError {
  const names = nodes.map(({ node, leases }) => `${node} (${leases.join(', ')})`).join(', ');
  return new InfrabedError(
    'IB_LEASE_CONFLICT',
    `Nodes that the inventory of ${site} no longer has, or has with another backend, are held or reserved: ${names}.`,
    {
      hint: 'Keep them in the file until those leases have ended; "infrabed lease list" shows them.',
      details: { site, inUse: nodes },
    },
  );
}

/** What adding the site would do. It changes nothing. */
export async function planSite(db: Kysely<Database>, site: Site): Promise<SitePlan> {
  const stored = await db.selectFrom('sites').select('name').where('name', '=', site.name).executeTakeFirst();
  const rows = await db
    .selectFrom('nodes')
    .selectAll()
    .where('site', '=', site.name)
    .orderBy('name')
    .execute();
  const known = new Map(rows.map((row) => [row.name, row]));
  const wanted = new Map(site.nodes.map((node) => [node.name, node]));
  const isChanged = ({ name, spec }: NodeRow): boolean => spec !== JSON.stringify(wanted.get(name));
  const kept = rows.filter((row) => wanted.has(row.name));
  const retired = rows.filter((row) => !wanted.has(row.name) && row.retired === 0);
  const rebuilt = kept.filter((row) => row.backend !== wanted.get(row.name)?.backend);
  return {
    site: site.name,
    isNew: stored === undefined,
    added: site.nodes.filter((node) => !known.has(node.name)).map((node) => node.name),
    changed: kept.filter(isChanged).map((row) => row.name),
    retired: retired.map((row) => row.name),
    returned: kept.filter((row) => row.retired === 1).map((row) => row.name),
    unchanged: kept.filter((row) => !isChanged(row) && row.retired === 0).length,
    inUse: await usersOf(db, [...retired, ...rebuilt]),
  };
}

/** Leases, running or to come, of these nodes. */
async function usersOf(db: Kysely<Database>, rows: readonly NodeRow[]): Promise<SitePlan['inUse']> {
  const bookings = await db
    .selectFrom('bookings')
    .innerJoin('leases', 'leases.id', 'bookings.lease')
    .select(['bookings.node', 'bookings.lease'])
    .where('leases.state', 'in', ['reserved', 'active'])
    .execute();
  return rows.flatMap(({ name, lease }) => {
    const booked = bookings.filter((booking) => booking.node === name).map((booking) => booking.lease);
    const leases = [...new Set([...(lease === null ? [] : [lease]), ...booked])];
    return leases.length === 0 ? [] : [{ node: name, leases }];
  });
}

async function apply(
  db: Kysely<Database>,
  site: Site,
  plan: SitePlan,
  actor: Actor,
  clock: Clock,
): Promise<void> {
  const inventory = JSON.stringify(site);
  const added_at = clock.now();
  await db
    .insertInto('sites')
    .values({ name: site.name, inventory, added_at })
    .onConflict((conflict) => conflict.column('name').doUpdateSet({ inventory, added_at }))
    .execute();
  const { added, changed, retired, returned } = plan;
  await recordChange(db, clock, {
    actor,
    kind: plan.isNew ? 'site.added' : 'site.updated',
    subject: site.name,
    detail: { added, changed, retired, returned },
  });
  const nodes = new Map(site.nodes.map((node) => [node.name, node]));
  const all = (names: readonly string[]): SiteNode[] => names.flatMap((name) => nodes.get(name) ?? []);
  for (const node of all(added)) await enroll(db, site.name, node, actor, clock);
  for (const node of all(changed)) await update(db, node, actor, clock);
  for (const name of retired) await setRetired(db, name, true, actor, clock);
  for (const name of returned) await setRetired(db, name, false, actor, clock);
}

async function enroll(
  db: Kysely<Database>,
  site: string,
  node: SiteNode,
  actor: Actor,
  clock: Clock,
): Promise<void> {
  const { name, backend } = node;
  const spec = JSON.stringify(node);
  const since = clock.now();
  await db
    .insertInto('nodes')
    .values({ name, site, backend, state: 'enrolled', fault: null, lease: null, spec, since })
    .execute();
  await recordChange(db, clock, { actor, kind: 'node.enrolled', subject: name, detail: { backend } });
  if (!madeForEachLease.has(backend)) return;
  await transition(db, name, 'cleaning', { actor, clock });
  await transition(db, name, 'available', { actor, clock, clean: neverMadeProof(backend) });
}

async function update(db: Kysely<Database>, node: SiteNode, actor: Actor, clock: Clock): Promise<void> {
  const { name, backend } = node;
  const row = await db.selectFrom('nodes').selectAll().where('name', '=', name).executeTakeFirstOrThrow();
  await db
    .updateTable('nodes')
    .set({ spec: JSON.stringify(node), backend })
    .where('name', '=', name)
    .execute();
  const detail = { before: JSON.parse(row.spec) as unknown, after: node };
  await recordChange(db, clock, { actor, kind: 'node.changed', subject: name, detail });
  // What was proven clean was another machine.
  if (row.backend === backend || (row.state !== 'available' && row.state !== 'cleaning')) return;
  const message = `The inventory moved it from the backend ${row.backend} to ${backend}.`;
  await transition(db, name, 'quarantined', { actor, clock, fault: { code: 'backend-changed', message } });
}

async function setRetired(
  db: Kysely<Database>,
  name: string,
  isRetired: boolean,
  actor: Actor,
  clock: Clock,
): Promise<void> {
  await db
    .updateTable('nodes')
    .set({ retired: isRetired ? 1 : 0 })
    .where('name', '=', name)
    .execute();
  const kind = isRetired ? 'node.retired' : 'node.returned';
  await recordChange(db, clock, { actor, kind, subject: name });
}

/** The inventories of all sites of the store, e.g. to validate another one against them. */
export function storedSites(store: Store): Promise<Site[]> {
  return sitesOf(store.db);
}

async function sitesOf(db: Kysely<Database>): Promise<Site[]> {
  const rows = await db.selectFrom('sites').select('inventory').orderBy('name').execute();
  return rows.map((row) => parseSite(row.inventory));
}

function parseSite(inventory: string): Site {
  return siteSchema.parse(JSON.parse(inventory));
}

/** All sites of the store, by name. */
export async function listSites(store: Store): Promise<SiteView[]> {
  const sites = await store.db.selectFrom('sites').selectAll().orderBy('name').execute();
  const nodes = await store.db.selectFrom('nodes').select(['site', 'state', 'backend', 'retired']).execute();
  return sites.map(({ name, inventory, added_at: addedAt }) => {
    const { description = null, embedded = false } = parseSite(inventory);
    const all = nodes.filter((node) => node.site === name);
    const present = all.filter((node) => node.retired === 0);
    return {
      name,
      description,
      isEmbedded: embedded,
      addedAt,
      nodes: present.length,
      states: countOf(present.map((node) => node.state)),
      backends: countOf(present.map((node) => node.backend)),
      retired: all.length - present.length,
    };
  });
}

function countOf(words: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}
