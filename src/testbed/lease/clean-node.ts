/**
 * Cleaning a node as a job: what is left on it goes, a fresh one is booted from the bare image under a lease taken for
 * that alone, read back, removed, and looked for. Only this clears a fault.
 */
import type { Kysely } from 'kysely';
import { z } from 'zod';
import { controllerActor, type Actor } from '../../core/actor.js';
import { throwIfAborted, type Clock } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import { newId } from '../../core/ids.js';
import type { IoHost } from '../../core/io.js';
import { nullJournal } from '../../core/journal.js';
import type { Settings } from '../../core/settings.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { createCluster } from '../cluster/create.js';
import type { Backend } from '../driver/driver.js';
import type { CleanProof } from '../node/clean-proof.js';
import { parseFault, type NodeFault } from '../node/fault.js';
import { recordFailure } from '../node/health.js';
import { assertOperator } from '../node/operate.js';
import type { NodeState } from '../node/states.js';
import { isPerson, nodeRow, parseState, transition, type Fence } from '../node/transition.js';
import { withClusterLock } from './cluster-lock.js';
import { clearAway } from './kept-cluster.js';
import { assertActive, endRow, forgetRemoved, newLeaseId, nextGeneration, type LeaseRow } from './rows.js';
import { readBooted, verifiedProof, type BootedNode } from './verify-clean.js';

export interface CleanGround {
  store: Store;
  backend: Backend;
  stateDir: string;
  /** Id of the controller process. */
  controller: string;
  settings: Settings;
  clock: Clock;
  io: IoHost;
  signal?: AbortSignal;
}

/** What came of a clean that went well: `maintenance` where a person holds the node. */
export interface Cleaned {
  node: string;
  state: NodeState;
  proof: CleanProof;
}

/** Steps of the job, as the fault of a failed clean names them. */
type Step = 'sweep' | 'boot' | 'read-back' | 'remove' | 'prove';

const bareImage = ['os'];
/** Past this another controller may take the clean over by force. */
const longestMs = 30 * 60 * 1000;
const member = 'node0';

interface Job {
  ground: CleanGround;
  node: string;
  actor: Actor;
  lease: Fence & { id: string };
  clusterId: string;
  step: Step;
}

/**
 * Cleans a node that no lease has. When it fails, the node is off and quarantined with the fault `clean-failed`, whose
 * `step` says where and whose `isOff` says whether its being gone was proved; broken off by the signal, with
 * `clean-interrupted`. A person's hold stays.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_NODE_UNKNOWN, IB_NODE_STATE when a lease has it or a person holds it,
 *   IB_HOST_UNFIT for a node of another backend, IB_IMAGE_BUILD (the node is left as it was), IB_NODE_FAILED when the
 *   clean failed, IB_CANCELLED.
 */
export async function cleanNode(
  ground: CleanGround,
  node: string,
  actor: Actor = controllerActor,
): Promise<Cleaned> {
  if (isPerson(actor)) assertOperator(actor, 'The cleaning of a node');
  await assertCleanable(ground.store.db, ground.backend, node);
  // Before the node is touched: an image that cannot be built is no fault of the node's.
  await ground.backend.prepareImage(bareImage, ground.io, ground.signal);
  const job = await begin(ground, node, actor);
  try {
    const proof = await clean(job);
    return await finish(job, proof);
  } catch (error) {
    await abandon(job, error);
    throw error;
  }
}

/**
 * Takes an enrolled node into service: cleans it for the first time.
 * @throws InfrabedError IB_NODE_STATE when it is not `enrolled` or no longer in its inventory, and as cleanNode.
 */
export async function enrollNode(ground: CleanGround, node: string, actor: Actor): Promise<Cleaned> {
  assertOperator(actor, 'The enrolment of a node');
  const { state, retired } = await nodeRow(ground.store.db, node);
  if (retired === 1) {
    throw new InfrabedError('IB_NODE_STATE', `${node} is no longer in its inventory.`, {
      hint: 'Put it into the inventory file again and run "infrabed site add FILE".',
    });
  }
  if (state !== 'enrolled') {
    throw new InfrabedError(
      'IB_NODE_STATE',
      `${node} is ${state}: only a node that is enrolled is taken into service.`,
      {
        hint: `Run "infrabed node clean ${node}" to have it cleaned.`,
      },
    );
  }
  return cleanNode(ground, node, actor);
}

async function assertCleanable(db: Kysely<Database>, backend: Backend, node: string): Promise<void> {
  const row = await nodeRow(db, node);
  if (row.backend !== backend.name) {
    throw new InfrabedError(
      'IB_HOST_UNFIT',
      `${node} is a node of the backend ${row.backend}, and this controller works with ${backend.name} nodes.`,
    );
  }
  const state = parseState(row.state);
  const who = row.lease === null ? '' : ` under the lease ${row.lease}`;
  if (row.lease === null && state !== 'maintenance') return;
  throw new InfrabedError('IB_NODE_STATE', `${node} is ${state}${who} and cannot be cleaned now.`, {
    hint:
      state === 'maintenance'
        ? `End the hold first: "infrabed node maintenance off ${node}".`
        : 'It is cleaned when its lease ends.',
  });
}

/**
 * A lease of its own, without a booking (the node is not lent to anybody), gives the clean its generation. From here on
 * the node carries a fault that only a finished clean clears: whoever ends this lease after a crash quarantines it.
 */
async function begin(ground: CleanGround, node: string, actor: Actor): Promise<Job> {
  const { store, stateDir, clock, controller, backend } = ground;
  const clusterId = newId('c', clock.now());
  const write = async (db: Kysely<Database>): Promise<LeaseRow> => {
    const { site, state, fault } = await nodeRow(db, node);
    await assertCleanable(db, backend, node);
    const now = clock.now();
    const row: LeaseRow = {
      id: await newLeaseId(db, now),
      owner: actor.name,
      purpose: `clean ${node}`,
      site,
      wanted: JSON.stringify({ names: [node] }),
      own: 1,
      priority: 0,
      generation: await nextGeneration(db),
      starts_at: now,
      ends_at: now + longestMs,
      ended_at: null,
      end_reason: null,
      state: 'active',
      controller,
      created_at: now,
    };
    await db.insertInto('leases').values(row).execute();
    const set = { lease: row.id, fault: fault ?? JSON.stringify(interrupted(now)) };
    if (state !== 'cleaning') await transition(db, node, 'cleaning', { lease: row, actor, clock });
    await db.updateTable('nodes').set(set).where('name', '=', node).execute();
    const detail = { lease: row.id, generation: row.generation };
    await recordChange(db, clock, { actor, kind: 'node.clean-begun', subject: node, detail });
    await db
      .insertInto('clusters')
      .values({
        id: clusterId,
        lease: row.id,
        backend: backend.name,
        layers: JSON.stringify(bareImage),
        nodes: JSON.stringify([{ name: member, node, roles: [] }]),
        kept: 0,
        created_at: now,
      })
      .execute();
    return row;
  };
  const { id, generation } = await withClusterLock(stateDir, () => store.db.transaction().execute(write));
  failpoint('clean.begun');
  return {
    ground,
    node,
    actor,
    lease: { id, generation },
    clusterId,
    step: 'sweep',
  };
}

function interrupted(at: number): NodeFault {
  return { code: 'clean-interrupted', message: 'Its cleaning was begun and did not come to its end.', at };
}

async function clean(job: Job): Promise<CleanProof> {
  const { ground, clusterId } = job;
  const { backend, signal } = ground;
  await removeOld(job);
  const booted = await boot(job);
  job.step = 'prove';
  const [evidence] = await backend.proveClean(clusterId, [member]);
  if (evidence === undefined)
    throw new InfrabedError('IB_NODE_FAILED', 'The backend says nothing about the node.');
  const proof = verifiedProof(booted, evidence);
  throwIfAborted(signal);
  failpoint('clean.proved');
  return proof;
}

const membersSchema = z.array(z.object({ node: z.string() }));

/** Clusters of this node whose lease has ended, and what of the backend belongs to no cluster at all. */
async function removeOld({ ground, node }: Job): Promise<void> {
  const { store, backend, stateDir } = ground;
  const old = await store.db
    .selectFrom('clusters')
    .innerJoin('leases', 'leases.id', 'clusters.lease')
    .select(['clusters.id', 'clusters.nodes'])
    .where('leases.state', '=', 'ended')
    .execute();
  for (const { id, nodes } of old) {
    if (!membersSchema.parse(JSON.parse(nodes)).some((one) => one.node === node)) continue;
    await clearAway(ground, id);
    await store.db.deleteFrom('clusters').where('id', '=', id).execute();
  }
  const report = await withClusterLock(stateDir, () =>
    backend.sweep(async () => {
      const rows = await store.db.selectFrom('clusters').select('id').execute();
      return new Set(rows.map(({ id }) => id));
    }),
  );
  if (report.failed.length > 0) throw new InfrabedError('IB_NODE_FAILED', report.failed.join(' '));
}

async function boot(job: Job): Promise<BootedNode> {
  const { ground, lease, clusterId } = job;
  const { backend, stateDir, clock, io, signal } = ground;
  job.step = 'boot';
  const owned = await createCluster({
    backend,
    id: clusterId,
    generation: lease.generation,
    nodes: [{ name: member, roles: [] }],
    layers: bareImage,
    stateDir,
    journal: nullJournal,
    io,
    clock,
    ...(signal === undefined ? {} : { signal }),
  });
  failpoint('clean.booted');
  job.step = 'read-back';
  let booted: BootedNode;
  try {
    booted = await readBooted(owned, member, signal);
  } catch (error) {
    await owned.cluster.close();
    throw error;
  }
  job.step = 'remove';
  await owned.destroy();
  failpoint('clean.removed');
  return booted;
}

async function finish({ ground, node, actor, lease, clusterId }: Job, proof: CleanProof): Promise<Cleaned> {
  const { store, clock } = ground;
  const state = await store.db.transaction().execute(async (db) => {
    const row = await assertActive(db, lease);
    await forgetRemoved(db, lease, [clusterId]);
    const reached = await transition(db, node, 'available', { lease, clean: proof, actor, clock });
    await endRow(db, row, 'released', clock);
    return reached;
  });
  failpoint('clean.finished');
  return { node, state, proof };
}

/** Off, proved where it can be, and quarantined. A clean that another controller has taken over is that one's. */
async function abandon(job: Job, error: unknown): Promise<void> {
  const { ground, node, actor, lease, clusterId, step } = job;
  const { store, clock, settings } = ground;
  try {
    await assertActive(store.db, lease);
  } catch (lost) {
    if (isInfrabedError(lost, 'IB_LEASE_CONFLICT')) return;
    throw lost;
  }
  const left = await takeOff(job);
  const isCancelled = isInfrabedError(error, 'IB_CANCELLED');
  const message = [messageOf(error), ...(left === undefined ? [] : [left])].join(' ');
  const fault: NodeFault = isCancelled
    ? { ...interrupted(clock.now()), step, isOff: left === undefined }
    : { code: 'clean-failed', message, step, isOff: left === undefined };
  await store.db.transaction().execute(async (db) => {
    const row = await assertActive(db, lease);
    await forgetRemoved(db, lease, [clusterId]);
    await transition(db, node, 'quarantined', { lease, fault, actor, clock });
    if (!isCancelled) await recordFailure(db, node, { code: 'clean-failed', message }, settings, clock);
    await endRow(db, row, 'quarantined', clock);
  });
  ground.io.notify({ type: 'warning', message: `${node} is quarantined: ${message}` });
}

/** What of the node is not proved to be gone, as a sentence. */
async function takeOff({ ground, clusterId }: Job): Promise<string | undefined> {
  try {
    await clearAway(ground, clusterId);
    const evidence = await ground.backend.proveClean(clusterId, [member]);
    const found = evidence.flatMap(({ parts }) => parts).filter((part) => part.found !== null);
    if (found.length === 0 && evidence.length > 0) return undefined;
    return `Left of it: ${found.map(({ what }) => what).join(', ')}.`;
  } catch (error) {
    return `It could not be taken off: ${messageOf(error)}`;
  }
}

/** Faults that nobody has to look at first: the machine cleans by itself, once, since a failure has another code. */
const selfCleaned: ReadonlySet<string> = new Set(['leftovers', 'clean-interrupted']);

/**
 * Cleans what waits for it: nodes whose hold was ended, those left in the middle of a clean, and those quarantined
 * because a release or a clean was broken off. Returns what came of each.
 */
export async function cleanDue(ground: CleanGround): Promise<{ node: string; error: unknown }[]> {
  const { store, backend, signal } = ground;
  const rows = await store.db
    .selectFrom('nodes')
    .select(['name', 'state', 'fault'])
    .where('backend', '=', backend.name)
    .where('retired', '=', 0)
    .where('lease', 'is', null)
    .where('state', 'in', ['cleaning', 'quarantined'])
    .orderBy('name')
    .execute();
  const outcomes = [];
  for (const { name, state, fault } of rows) {
    throwIfAborted(signal);
    if (state === 'quarantined' && !selfCleaned.has(parseFault(fault)?.code ?? '')) continue;
    try {
      await cleanNode(ground, name);
      outcomes.push({ node: name, error: undefined });
    } catch (error) {
      outcomes.push({ node: name, error });
    }
  }
  return outcomes;
}
