/** Operations on nodes: how they stand, what happened to them, and what an operator decides about them. */
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import { cleanNode, enrollNode } from '../../testbed/lease/clean-node.js';
import { defaultSite } from '../../testbed/lease/eligible.js';
import { enrollFirst } from '../../testbed/lease/slots.js';
import { quarantineNode, setMaintenance, type Decision } from '../../testbed/node/operate.js';
import { nodeStates } from '../../testbed/node/states.js';
import {
  listNodes,
  nodeHistory,
  showNode,
  type CleanRecord,
  type NodeView,
} from '../../testbed/node/view.js';
import { instant, isoOrNull, isoUtc } from './instant.js';
import { hostBackendNames, type HostBackend } from '../../testbed/driver/index.js';
import { operation, type AnyOperation, type Desk } from './operation.js';

const nodeShape = z.object({
  node: z.string().describe('site and name: local/n01'),
  site: z.string(),
  backend: z.string(),
  state: z.enum(nodeStates),
  since: instant.describe('when it came into its state'),
  lease: z.string().nullable().describe('the lease that has it'),
  fault: z.looseObject({ code: z.string(), message: z.string() }).nullable(),
  hold: z
    .object({ by: z.string(), why: z.string(), at: instant })
    .nullable()
    .describe('by a person; in force when the state is maintenance'),
  failures: z.number().int().describe('in a row'),
  retired: z.boolean().describe('no longer in its inventory, so never lent'),
  tags: z.array(z.string()),
});
export type NodeJson = z.output<typeof nodeShape>;

function nodeJson({ name, since, fault, hold, isRetired, ...rest }: NodeView): NodeJson {
  const { site, backend, state, lease, failures, tags } = rest;
  return {
    node: name,
    site,
    backend,
    state,
    since: isoUtc(since),
    lease,
    fault: fault === null ? null : { ...fault, ...(fault.at === undefined ? {} : { at: isoUtc(fault.at) }) },
    hold: hold === null ? null : { ...hold, at: isoUtc(hold.at) },
    failures,
    retired: isRetired,
    tags,
  };
}

const cleanShape = z.object({
  id: z.number().int(),
  method: z.string(),
  lease: z.string().nullable().describe('that was cleaned up after'),
  at: instant,
  proof: z.looseObject({}).nullable().describe('what was read back'),
});

function cleanJson({ id, method, lease, at, proof }: CleanRecord): z.output<typeof cleanShape> {
  return { id, method, lease, at: isoUtc(at), proof };
}

export const nodeList = operation({
  name: 'node.list',
  method: 'GET',
  path: '/v1/nodes',
  summary: 'The nodes there are, by name',
  role: 'user',
  input: z.strictObject({
    site: z.string().min(1).optional(),
    state: z.enum(nodeStates).optional(),
    tag: z.string().min(1).optional(),
  }),
  output: z.object({ nodes: z.array(nodeShape) }),
  async handle(desk, { site, state, tag }) {
    await enrollOwn(desk);
    const views = await listNodes(desk.store, {
      ...(site === undefined ? {} : { site }),
      ...(state === undefined ? {} : { state }),
      ...(tag === undefined ? {} : { tag }),
    });
    return { nodes: views.map(nodeJson) };
  },
});

const byName = { node: z.string().min(1).describe('local/n01, or n01 where only one site has it') };

export const nodeShow = operation({
  name: 'node.show',
  method: 'GET',
  path: '/v1/nodes/:node',
  summary: 'One node: state, fault, hold, next booking, last clean proof',
  role: 'user',
  input: z.strictObject(byName),
  output: nodeShape.extend({
    nextBooking: z.object({ lease: z.string(), start: instant, end: instant }).nullable(),
    lastClean: cleanShape.nullable(),
    probeAt: instant.nullable().describe('when its health is probed next, if it is idle until then'),
    spec: z.looseObject({}).describe("the node's entry in its inventory; secrets are references"),
  }),
  async handle(desk, { node }) {
    const found = await showNode(desk.store, await fullName(desk, node), desk.clock.now());
    const { nextBooking: next, lastClean, probeAt, spec } = found;
    return {
      ...nodeJson(found),
      nextBooking:
        next === null ? null : { lease: next.lease, start: isoUtc(next.startsAt), end: isoUtc(next.endsAt) },
      lastClean: lastClean === null ? null : cleanJson(lastClean),
      probeAt: isoOrNull(probeAt),
      spec: z.looseObject({}).parse(spec),
    };
  },
});

export const nodeHistoryEvents = operation({
  name: 'node.history',
  method: 'GET',
  path: '/v1/nodes/:node/history',
  summary: 'Everything that is on record of a node, oldest first',
  role: 'user',
  input: z.strictObject(byName),
  output: z.object({
    node: z.string(),
    events: z.array(
      z.object({
        at: instant,
        actor: z.string(),
        kind: z.string(),
        detail: z.looseObject({}),
        lease: z.object({ id: z.string(), owner: z.string(), purpose: z.string() }).nullable(),
        clean: cleanShape.nullable(),
      }),
    ),
  }),
  async handle(desk, { node }) {
    const name = await fullName(desk, node);
    const events = await nodeHistory(desk.store, name);
    return {
      node: name,
      events: events.map(({ at, clean, ...event }) => ({
        ...event,
        at: isoUtc(at),
        clean: clean === null ? null : cleanJson(clean),
      })),
    };
  },
});

const decisionShape = z.object({
  node: z.string(),
  inForce: z.boolean().describe('false: when the lease that has the node gives it back'),
});

function decisionJson({ node, isInForce }: Decision): z.output<typeof decisionShape> {
  return { node, inForce: isInForce };
}

export const nodeMaintenance = operation({
  name: 'node.maintenance',
  method: 'POST',
  path: '/v1/nodes/:node/maintenance',
  summary: "Begin or end a person's hold of a node; after its end the node is cleaned",
  role: 'operator',
  slow: true,
  input: z.strictObject({ ...byName, on: z.boolean(), why: z.string().optional() }),
  output: decisionShape,
  async handle(desk, { node, on, why }, actor) {
    const name = await fullName(desk, node);
    const decision = await setMaintenance(desk, name, { on, ...(why === undefined ? {} : { why }) }, actor);
    // A person may have changed anything on it: it is lent again once it is proven clean.
    if (!on && (await waitsForUs(desk, name))) await cleanNode(await groundOf(desk, name), name, actor);
    return decisionJson(decision);
  },
});

/** True for a node that is to be cleaned, by a backend that this controller has. */
async function waitsForUs({ store }: Desk, node: string): Promise<boolean> {
  const row = await store.db
    .selectFrom('nodes')
    .select(['backend', 'state', 'lease'])
    .where('name', '=', node)
    .executeTakeFirst();
  return row !== undefined && isOnThisMachine(row.backend) && row.state === 'cleaning' && row.lease === null;
}

const isOnThisMachine = (backend: string | undefined): backend is HostBackend =>
  hostBackendNames.some((name) => name === backend);

/** This controller, with the node's own backend; one that it does not have is left for the cleaning to refuse. */
async function groundOf(
  desk: Desk,
  node: string,
): Promise<Omit<Desk, 'controller'> & { controller: string }> {
  const row = await desk.store.db
    .selectFrom('nodes')
    .select('backend')
    .where('name', '=', node)
    .executeTakeFirst();
  const backend = isOnThisMachine(row?.backend) ? desk.backendNamed(row.backend) : desk.backend;
  return { ...desk, backend, controller: await desk.controller() };
}

export const nodeQuarantine = operation({
  name: 'node.quarantine',
  method: 'POST',
  path: '/v1/nodes/:node/quarantine',
  summary: 'Take a node out for a fault, until a clean succeeds',
  role: 'operator',
  input: z.strictObject({ ...byName, why: z.string() }),
  output: decisionShape,
  async handle(desk, { node, why }, actor) {
    return decisionJson(await quarantineNode(desk, await fullName(desk, node), why, actor));
  },
});

/** What the clean found stands in `lastClean` of the node. */
const cleanedShape = z.object({
  node: z.string(),
  state: z.enum(nodeStates).describe('available; maintenance where a person holds it'),
  proof: z.looseObject({}),
});

export const nodeClean = operation({
  name: 'node.clean',
  method: 'POST',
  path: '/v1/nodes/:node/clean',
  summary: 'Clean a node and prove it by a fresh boot; what is left on it is destroyed',
  role: 'operator',
  slow: true,
  input: z.strictObject(byName),
  output: cleanedShape,
  async handle(desk, { node }, actor) {
    const name = await fullName(desk, node);
    return cleanNode(await groundOf(desk, name), name, actor);
  },
});

export const nodeEnroll = operation({
  name: 'node.enroll',
  method: 'POST',
  path: '/v1/nodes/:node/enroll',
  summary: 'Take an enrolled node into service: clean it for the first time',
  role: 'operator',
  slow: true,
  input: z.strictObject(byName),
  output: cleanedShape,
  async handle(desk, { node }, actor) {
    const name = await fullName(desk, node);
    return enrollNode(await groundOf(desk, name), name, actor);
  },
});

export const nodeOperations: readonly AnyOperation[] = [
  nodeClean,
  nodeEnroll,
  nodeHistoryEvents,
  nodeList,
  nodeMaintenance,
  nodeQuarantine,
  nodeShow,
];

/** The nodes of this machine are there from the first look on. */
async function enrollOwn(desk: Desk): Promise<void> {
  await enrollFirst(desk, await defaultSite());
}

/** Site and name. A name that no site has is left for whoever looks it up to refuse. */
async function fullName(desk: Desk, name: string): Promise<string> {
  await enrollOwn(desk);
  if (name.includes('/')) return name;
  const nodes = await desk.store.db.selectFrom('nodes').select('name').orderBy('name').execute();
  const [first, ...others] = nodes.map((row) => row.name).filter((full) => full.split('/')[1] === name);
  if (others.length === 0) return first ?? name;
  throw new InfrabedError('IB_USAGE', `Several sites have a node "${name}".`, {
    hint: `Say which: ${[first, ...others].join(', ')}.`,
  });
}
