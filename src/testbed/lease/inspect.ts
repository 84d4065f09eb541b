/**
 * Compares the hardware of nodes with their inventory: read in place where a kept cluster stands, else on a bare boot
 * under a short lease taken for that alone. A node that differs is quarantined, at once or when it is given back.
 */
import type { Actor } from '../../core/actor.js';
import { throwIfAborted } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import { newId } from '../../core/ids.js';
import { nullJournal } from '../../core/journal.js';
import { createCluster, openExistingCluster } from '../cluster/create.js';
import { compareHardware, gatherHardware, type Difference, type Hardware } from '../facts/hardware.js';
import type { Site, SiteNode } from '../inventory/inventory.js';
import { siteNodeSchema } from '../inventory/schema.js';
import { storedSites } from '../node/enroll.js';
import { parseFault, type NodeFault } from '../node/fault.js';
import { setPendingFault } from '../node/health.js';
import { assertOperator } from '../node/operate.js';
import { nodeRow } from '../node/transition.js';
import { withClusterLock } from './cluster-lock.js';
import { clearAway, listClusters, removalProofs, type ClusterEntry, type Grounds } from './kept-cluster.js';
import { moveNodes, releaseLease, takeNodes, type Lease } from './lease.js';

export type InspectGround = Grounds & { signal?: AbortSignal };

/** A node that was read and compared. */
export interface Compared {
  node: string;
  outcome: 'matches' | 'differs';
  /** `in-place`: a kept cluster stands on it; `booted`: from the bare image, under a lease of its own. */
  how: 'in-place' | 'booted';
  reported: Hardware;
  differences: Difference[];
  /** State after that: `quarantined` where it differs, unless it is lent: then once it is given back. */
  state: string;
}

/** What came of looking at one node. */
export type Inspection = Compared | { node: string; outcome: 'not-inspected'; why: string; state: string };

const what = 'A comparison of hardware, which quarantines what differs,';
const faultCode = 'hardware-differs';
const bareImage = ['os'];
const member = 'node0';
/** A boot takes seconds on containers; past this another controller may take the nodes over. */
const longestMs = 15 * 60 * 1000;

/**
 * Inspects nodes one after the other, all of the store's sites (without retired ones) where none are named.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_NODE_UNKNOWN before any is looked at; IB_CANCELLED. What fails with a single
 *   node is told in its result.
 */
export async function inspectNodes(
  ground: InspectGround,
  names: readonly string[] | undefined,
  actor: Actor,
): Promise<Inspection[]> {
  const { store } = ground;
  assertOperator(actor, what);
  const rows =
    names === undefined
      ? await store.db.selectFrom('nodes').select('name').where('retired', '=', 0).orderBy('name').execute()
      : await Promise.all(names.map((name) => nodeRow(store.db, name)));
  const inspections: Inspection[] = [];
  for (const { name } of rows) {
    throwIfAborted(ground.signal);
    inspections.push(await tellFailure(ground, name, actor));
  }
  return inspections;
}

async function tellFailure(ground: InspectGround, node: string, actor: Actor): Promise<Inspection> {
  try {
    return await inspectNode(ground, node, actor);
  } catch (error) {
    if (isInfrabedError(error, 'IB_CANCELLED') || !(error instanceof InfrabedError)) throw error;
    const { state } = await nodeRow(ground.store.db, node);
    return { node, outcome: 'not-inspected', why: error.message, state };
  }
}

/**
 * Inspects one node.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_NODE_UNKNOWN, IB_NODE_STATE when it cannot be looked at now, and as takeNodes
 *   and the making of a cluster.
 */
export async function inspectNode(ground: InspectGround, node: string, actor: Actor): Promise<Compared> {
  assertOperator(actor, what);
  const { sites, site, spec } = await declarationOf(ground, node);
  const compare = (reported: Hardware): Difference[] =>
    compareHardware(
      spec,
      reported,
      sites.flatMap((one) => one.nodes),
    );
  const standing = await keptClusterOn(ground, node);
  const { reported, differences } =
    standing === undefined
      ? await readBooted(ground, node, site, actor, compare)
      : await readInPlace(ground, node, standing, actor, compare);
  const { state } = await nodeRow(ground.store.db, node);
  return {
    node,
    outcome: differences.length === 0 ? 'matches' : 'differs',
    how: standing === undefined ? 'booted' : 'in-place',
    reported,
    differences,
    state,
  };
}

function unsuitable(node: string, why: string): InfrabedError {
  return new InfrabedError('IB_NODE_STATE', `${node} cannot be compared with its inventory now: ${why}.`);
}

/** The node's entry, and those of all others. @throws InfrabedError IB_NODE_STATE. */
async function declarationOf(
  { store, backend }: InspectGround,
  node: string,
): Promise<{ sites: Site[]; site: Site; spec: SiteNode }> {
  const row = await nodeRow(store.db, node);
  if (row.retired === 1) throw unsuitable(node, 'it is no longer in its inventory');
  if (row.backend !== backend.name) {
    const why = `it is a ${row.backend} node, and this controller works with ${backend.name} nodes`;
    throw unsuitable(node, why);
  }
  const sites = await storedSites(store);
  const site = sites.find((one) => one.name === row.site);
  const spec = siteNodeSchema.safeParse(JSON.parse(row.spec)).data;
  if (site !== undefined && spec !== undefined) return { sites, site, spec };
  throw unsuitable(node, 'the store has its entry from an older version; run "infrabed site add FILE"');
}

async function keptClusterOn({ store }: InspectGround, node: string): Promise<ClusterEntry | undefined> {
  const { state, lease } = await nodeRow(store.db, node);
  if (state === 'available') return undefined;
  const clusters = await listClusters(store);
  const standing = clusters.find(
    (cluster) => cluster.kept && cluster.lease === lease && cluster.nodes.some((one) => one.node === node),
  );
  if (standing !== undefined) return standing;
  const who = lease === null ? '' : ` under the lease ${lease}, with no kept cluster on it`;
  throw unsuitable(node, `it is ${state}${who}, and only an available node is booted for that`);
}

interface Reading {
  reported: Hardware;
  differences: Difference[];
}

/** Reads only: whoever has the lease in hand keeps it, and what runs on the node is not touched. */
async function readInPlace(
  ground: InspectGround,
  node: string,
  standing: ClusterEntry,
  actor: Actor,
  compare: (reported: Hardware) => Difference[],
): Promise<Reading> {
  const { backend, stateDir, clock } = ground;
  const { id, nodes } = standing;
  const name = nodes.find((one) => one.node === node)?.name ?? node;
  const { cluster } = await openExistingCluster({
    backend,
    id,
    nodes,
    stateDir,
    journal: nullJournal,
    clock,
  });
  let reported: Hardware;
  try {
    reported = await gatherHardware(cluster, name, signalOf(ground.signal));
  } finally {
    await cluster.close();
  }
  const differences = compare(reported);
  if (differences.length > 0) await note(ground, node, differences, actor);
  return { reported, differences };
}

async function readBooted(
  ground: InspectGround,
  node: string,
  site: Site,
  actor: Actor,
  compare: (reported: Hardware) => Difference[],
): Promise<Reading> {
  const { store, backend, clock, controller, io } = ground;
  // Before the node is taken: an image that cannot be built is no fault of the node's.
  await backend.prepareImage(bareImage, io, ground.signal);
  const lease = await takeNodes(store, {
    nodes: { names: [node] },
    owner: actor.name,
    actor,
    purpose: `inspect ${node}`,
    controller,
    durationMs: longestMs,
    gapMs: ground.settings.lease.cleaning_gap_sec * 1000,
    site,
    clock,
  });
  const id = newId('c', clock.now());
  try {
    await writeDown(ground, lease, id, node);
    const reported = await bootAndRead(ground, lease, id);
    const differences = compare(reported);
    // Noted while the node is held, so that it is never available in between.
    if (differences.length > 0) await note(ground, node, differences, actor);
    await giveBack(ground, lease, id, node, actor);
    return { reported, differences };
  } catch (error) {
    await abandon(ground, lease, id, node, actor);
    throw error;
  }
}

function writeDown(
  { store, backend, stateDir, clock }: InspectGround,
  lease: Lease,
  id: string,
  node: string,
): Promise<unknown> {
  const row = {
    id,
    lease: lease.id,
    backend: backend.name,
    layers: JSON.stringify(bareImage),
    nodes: JSON.stringify([{ name: member, node, roles: [] }]),
    kept: 0,
    created_at: clock.now(),
  };
  return withClusterLock(stateDir, () => store.db.insertInto('clusters').values(row).execute());
}

async function bootAndRead(ground: InspectGround, lease: Lease, id: string): Promise<Hardware> {
  const { store, backend, stateDir, clock, io } = ground;
  const signal = AbortSignal.any([lease.signal, ...(ground.signal === undefined ? [] : [ground.signal])]);
  await moveNodes(store, lease, 'provisioning', { clock });
  failpoint('inspect.written');
  const { cluster } = await createCluster({
    backend,
    id,
    generation: lease.generation,
    nodes: [{ name: member, roles: [] }],
    layers: bareImage,
    stateDir,
    journal: nullJournal,
    io,
    clock,
    signal,
  });
  failpoint('inspect.booted');
  try {
    return await gatherHardware(cluster, member, { signal });
  } finally {
    await cluster.close();
  }
}

/** A node with a noted fault is quarantined by this, any other available again. */
async function giveBack(
  ground: InspectGround,
  lease: Lease,
  id: string,
  node: string,
  actor: Actor,
): Promise<void> {
  const { store, backend, clock } = ground;
  await clearAway(ground, id);
  const nodes = [{ name: member, node }];
  const clean = await removalProofs(backend, { id, nodes, generation: lease.generation });
  failpoint('inspect.removed');
  await releaseLease(store, lease, { clean, removed: [id], clock, actor });
}

/** The first failure is the one to tell; one of the removal is told beside it, and left to recovery. */
async function abandon(
  ground: InspectGround,
  lease: Lease,
  id: string,
  node: string,
  actor: Actor,
): Promise<void> {
  try {
    await giveBack(ground, lease, id, node, actor);
  } catch (error) {
    const message = `The lease ${lease.id} is left to "infrabed sweep": ${messageOf(error)}`;
    ground.io.notify({ type: 'warning', message });
  }
}

async function note(
  { store, clock }: InspectGround,
  node: string,
  differences: readonly Difference[],
  actor: Actor,
): Promise<void> {
  await store.db.transaction().execute(async (db) => {
    const { fault } = await nodeRow(db, node);
    const before = parseFault(fault);
    // Another fault that waits for the end of the lease is not lost.
    const kept = before === null || before.code === faultCode ? {} : { before };
    await setPendingFault(db, node, { ...hardwareFault(differences), ...kept }, clock, actor);
  });
}

function hardwareFault(differences: readonly Difference[]): NodeFault {
  const fields = differences.map(({ field, kind }) => `${field} (${kind})`).join(', ');
  return {
    code: faultCode,
    message: `It differs from its inventory: ${fields}.`,
    differences,
  };
}

function signalOf(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}
