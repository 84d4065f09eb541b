/** Operations on sites: inventories taken in, listed, checked, and compared with what the machines report. */
import { z } from 'zod';
import { parseInventory, validateInventory } from '../../testbed/inventory/inventory.js';
import { defaultSite, nodesOfSite } from '../../testbed/lease/eligible.js';
import { inspectNodes } from '../../testbed/lease/inspect.js';
import { enrollFirst } from '../../testbed/lease/slots.js';
import { addSite, listSites, planSite, storedSites, type SitePlan } from '../../testbed/node/enroll.js';
import { instant, isoUtc } from './instant.js';
import { operation, type AnyOperation } from './operation.js';

/** The file goes up, not its path: a server could not read that, or would read another file. */
const fileKeys = {
  text: z.string().describe('content of the inventory file (YAML)'),
  path: z.string().default('inventory').describe('name of the file, for messages'),
};

const names = z.array(z.string());
const planShape = z.object({
  site: z.string(),
  isNew: z.boolean(),
  added: names,
  changed: names.describe('with another entry than before'),
  retired: names.describe('no longer in the file: not lent any more'),
  returned: names.describe('retired before, and in the file again'),
  unchanged: z.number().int(),
  inUse: z
    .array(z.object({ node: z.string(), leases: names }))
    .describe('would be retired or get another backend but are held or reserved: then it is refused'),
  done: z.boolean().describe('false after a dry run'),
});
export type SitePlanJson = z.output<typeof planShape>;

export const siteAdd = operation({
  name: 'site.add',
  method: 'POST',
  path: '/v1/sites',
  summary: 'Take a site in, or bring it in line with a newer inventory: all of it or nothing',
  role: 'operator',
  withoutRecovery: true,
  input: z.strictObject({
    ...fileKeys,
    dryRun: z.boolean().default(false).describe('only say what would be done'),
  }),
  output: planShape,
  async handle(desk, { text, path, dryRun }, actor) {
    const site = parseInventory(text, path);
    const plan: SitePlan = dryRun ? await planSite(desk.store.db, site) : await addSite(desk, site, actor);
    return { ...plan, done: !dryRun };
  },
});

const siteShape = z.object({
  site: z.string(),
  description: z.string().nullable(),
  embedded: z.boolean().describe('comes with infrabed'),
  addedAt: instant,
  nodes: z.number().int().describe('without retired ones'),
  states: z.record(z.string(), z.number().int()),
  backends: z.record(z.string(), z.number().int()),
  retired: z.number().int(),
});
export type SiteJson = z.output<typeof siteShape>;

export const siteList = operation({
  name: 'site.list',
  method: 'GET',
  path: '/v1/sites',
  summary: 'The sites there are, by name',
  role: 'user',
  input: z.strictObject({}),
  output: z.object({ sites: z.array(siteShape) }),
  async handle(desk) {
    await enrollFirst(desk, await defaultSite());
    const sites = await listSites(desk.store);
    return {
      sites: sites.map(({ name, isEmbedded, addedAt, ...site }) => ({
        site: name,
        ...site,
        embedded: isEmbedded,
        addedAt: isoUtc(addedAt),
      })),
    };
  },
});

export const siteValidate = operation({
  name: 'site.validate',
  method: 'POST',
  path: '/v1/sites/validate',
  summary: 'Everything that is wrong with an inventory, also against what other sites claim',
  role: 'user',
  withoutRecovery: true,
  input: z.strictObject(fileKeys),
  output: z.object({
    ok: z.boolean(),
    problems: z.array(
      z.object({
        file: z.string(),
        line: z.number().int().nullable(),
        key: z.string().describe('like nodes[2].power.address; empty for the whole file'),
        what: z.string(),
        fix: z.string(),
      }),
    ),
  }),
  async handle({ store }, { text, path }) {
    const problems = validateInventory(text, path, await storedSites(store));
    return { ok: problems.length === 0, problems };
  },
});

const inspectionShape = z.object({
  node: z.string(),
  outcome: z.enum(['matches', 'differs', 'not-inspected']),
  state: z.string().describe('of the node afterwards: quarantined where it differs'),
  why: z.string().optional().describe('it was not inspected'),
  how: z.enum(['in-place', 'booted']).optional(),
  differences: z
    .array(
      z.object({
        field: z.string(),
        kind: z.enum(['differs', 'missing', 'extra', 'moved', 'unknown']),
        declared: z.string().nullable(),
        reported: z.string().nullable(),
        why: z.string().describe('it matters'),
      }),
    )
    .default([]),
  reported: z.looseObject({}).optional().describe('what the node says of its hardware'),
});
export type InspectionJson = z.output<typeof inspectionShape>;

export const siteDiff = operation({
  name: 'site.diff',
  method: 'POST',
  path: '/v1/sites/:site/diff',
  summary: 'Compare nodes with their inventory; one that differs is quarantined',
  role: 'operator',
  slow: true,
  input: z.strictObject({
    site: z.string().min(1),
    nodes: names.optional().describe('only these: local/n01, or n01; left out: all that are not retired'),
  }),
  output: z.object({ nodes: z.array(inspectionShape) }),
  async handle(desk, { site, nodes }, actor) {
    const { db } = desk.store;
    await enrollFirst(desk, site);
    // Names the sites there are, where this is none of them.
    await nodesOfSite(db, site);
    const rows = await db
      .selectFrom('nodes')
      .select('name')
      .where('site', '=', site)
      .where('retired', '=', 0)
      .orderBy('name')
      .execute();
    const wanted = nodes?.map((name) => (name.includes('/') ? name : `${site}/${name}`));
    const ground = { ...desk, controller: await desk.controller() };
    const inspections = await inspectNodes(ground, wanted ?? rows.map((row) => row.name), actor);
    return { nodes: inspections.map((one) => ({ differences: [], ...one })) };
  },
});

export const siteOperations: readonly AnyOperation[] = [siteAdd, siteDiff, siteList, siteValidate];
