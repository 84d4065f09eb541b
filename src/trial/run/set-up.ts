/** From leased nodes to a broken cluster: provision, baseline, bootstrap. */
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, isInfrabedError } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import { redactor } from '../../core/log.js';
import { createCluster } from '../../testbed/cluster/create.js';
import type { LayerRef } from '../../testbed/driver/driver.js';
import { gatherFacts } from '../../testbed/facts/facts.js';
import { withClusterLock } from '../../testbed/lease/cluster-lock.js';
import { moveNodes } from '../../testbed/lease/lease.js';
import type { NamedNode } from '../../testbed/node/clean-proof.js';
import { recordFailure, recordSuccess } from '../../testbed/node/health.js';
import { provision } from '../../testbed/provision/provision.js';
import { readControl } from '../drift/control.js';
import { startWindow, type WindowGap } from '../gate/window.js';
import type { TaskPackage } from '../task/schema.js';
import { gateOptions } from './gates.js';
import { clusterOf, type Trial } from './trial.js';
import { startWorkloads } from './workload.js';

/** Provisioning, settling and cleaning take minutes; an image that has to be built first takes longer. */
const overheadMs = 30 * 60 * 1000;

/** How long a trial of this task takes at most: the time its nodes are reserved for. */
export function longestTrialMs(task: TaskPackage): number {
  const { agent, lifecycle } = task.definition;
  const { running, reboot } = lifecycle;
  const nodes = task.definition.environment.nodes.length;
  const cycleSec = reboot.timeout_sec + reboot.settle_sec;
  const seconds = agent.timeout_sec + running.duration_sec + nodes * reboot.times * cycleSec;
  return seconds * 1000 + overheadMs;
}

/** A trial's cluster has the trial's id without its prefix: short, since names and paths of sockets are made from it. */
export function clusterIdOf(trial: Pick<Trial, 'id'>): string {
  return trial.id.slice(2);
}

/** The nodes as the task names them and as the site does. */
export function membersOf(trial: Trial): NamedNode[] {
  return trial.request.task.definition.environment.nodes.map(({ name }, index) => ({
    name,
    node: trial.nodes[index] ?? name,
  }));
}

/** How a cluster is named to a person who leaves without waiting for its end. */
export function heldCluster(trial: Trial): string {
  const clusterId = clusterIdOf(trial);
  return `the cluster ${clusterId} of ${trial.id}, in ${join(trial.environment.stateDir, 'clusters', clusterId)}`;
}

/** The layers of the task's image: those it names, and its own set-up on top where it has one. */
export function imageLayers(task: TaskPackage): LayerRef[] {
  const setup = join(task.dir, 'environment', 'setup.sh');
  const own: LayerRef[] = existsSync(setup) ? [{ name: task.shortName, script: setup }] : [];
  return [...task.definition.environment.layers, ...own];
}

export async function provisionCluster(trial: Trial): Promise<void> {
  const { environment, request, lease } = trial;
  const { task, signal } = request;
  if (lease === undefined) throw new Error('no lease');
  const clusterId = clusterIdOf(trial);
  environment.held.add(heldCluster(trial));
  const nodes = task.definition.environment.nodes.map((node) => ({
    name: node.name,
    roles: node.roles,
    hardware: {
      ...(node.memory_mib === undefined ? {} : { memoryMiB: node.memory_mib }),
      ...(node.cpus === undefined ? {} : { cpus: node.cpus }),
      disksMiB: node.disks_mib,
      diskIopsSec: node.disk_iops_sec,
      bootsFromDisk: node.boots_from_disk,
    },
  }));
  trial.clusterBegun = true;
  const row = {
    id: clusterId,
    lease: lease.id,
    backend: environment.backend.name,
    layers: JSON.stringify(task.definition.environment.layers),
    nodes: JSON.stringify(
      membersOf(trial).map((member, index) => ({ ...member, roles: nodes[index]?.roles ?? [] })),
    ),
    kept: 0,
    created_at: environment.clock.now(),
  };
  await withClusterLock(
    environment.stateDir,
    () => environment.store.db.insertInto('clusters').values(row).execute(),
    { signal },
  );
  // After that row: what recovery finds in use has a cluster whose removal it can prove.
  const held = { clock: environment.clock, nodes: trial.nodes };
  await moveNodes(environment.store, lease, 'provisioning', held);
  trial.owned = await counted(trial, () =>
    createCluster({
      backend: environment.backend,
      id: clusterId,
      generation: lease.generation,
      nodes,
      layers: imageLayers(task),
      stateDir: environment.stateDir,
      journal: trial.journal,
      io: environment.io,
      clock: environment.clock,
      signal,
    }),
  );
  const workDir = join(environment.stateDir, 'work', trial.id, 'provision');
  await mkdir(workDir, { recursive: true, mode: 0o700 });
  try {
    await provision({
      cluster: trial.owned.cluster,
      layers: task.definition.environment.layers,
      controllerKey: trial.owned.controllerKey,
      nonce: trial.nonce,
      workDir,
      io: environment.io,
      signal,
      clock: environment.clock,
    });
  } finally {
    await rm(workDir, { recursive: true, force: true });
  }
  await removeProvisioningTraces(trial);
  await moveNodes(environment.store, lease, 'active', held);
}

/** What only the nodes themselves can have brought about, before any task or agent was on them. */
const nodeFaults: ReadonlySet<string> = new Set([
  'IB_NODE_FAILED',
  'IB_NODE_UNREACHABLE',
  'IB_POWER',
  'IB_TIMEOUT',
]);

/** Nodes that could not be made count a failure each, and those that could start anew: so many in a row take one out. */
async function counted<T>(trial: Trial, make: () => Promise<T>): Promise<T> {
  const { store, settings, clock } = trial.environment;
  try {
    const made = await make();
    for (const node of trial.nodes) await recordSuccess(store.db, node, clock);
    return made;
  } catch (error) {
    if (trial.request.signal.aborted || !isInfrabedError(error) || !nodeFaults.has(error.code)) throw error;
    const failure = { code: 'provision-failed', message: error.message };
    for (const node of trial.nodes) await recordFailure(store.db, node, failure, settings, clock);
    throw error;
  }
}

/** Ansible leaves its working folder in the home of the user it logs in as. */
async function removeProvisioningTraces(trial: Trial): Promise<void> {
  const cluster = clusterOf(trial);
  await Promise.all(
    cluster.nodes.map(async ({ name }) => {
      const result = await cluster.setUp(name, { argv: ['rm', '-rf', '/root/.ansible'] });
      if (result.exitCode === 0) return;
      throw new InfrabedError(
        'IB_PROVISION',
        `/root/.ansible on ${name} could not be removed: ${result.stderr}`,
      );
    }),
  );
}

export async function recordBaseline(trial: Trial): Promise<void> {
  const cluster = clusterOf(trial);
  await Promise.all(
    trial.agentNodes.map(async (node) => {
      const facts = await gatherFacts(cluster, node, { signal: trial.request.signal });
      trial.baseline.set(node, facts);
      await trial.bundle.facts('baseline', node, facts);
    }),
  );
  if (trial.request.control) return;
  const { task } = trial.request;
  const control = await readControl(trial.environment.stateDir, {
    taskHash: task.hash,
    imageHash: cluster.imageHash,
  });
  trial.drift.control = [...(control?.changes ?? [])];
  trial.drift.controlRecorded = control !== undefined;
}

/** Watches and workloads first, then the fault. */
export async function bootstrap(trial: Trial): Promise<void> {
  const cluster = clusterOf(trial);
  const { task } = trial.request;
  await startBackground(trial, trial.environment.clock.now());
  const path = join(task.dir, 'environment', 'bootstrap.sh');
  if (existsSync(path)) {
    const script = await readFile(path, 'utf8');
    await Promise.all(cluster.nodes.map(({ name }) => bootstrapNode(trial, name, script)));
  }
}

/** Workloads and window watches, from now until the end of the trial; with `after`, those of a dead controller go on. */
export async function startBackground(trial: Trial, openedAt: number, after?: WindowGap): Promise<void> {
  const { clock } = trial.environment;
  const workloads = await startWorkloads({
    cluster: clusterOf(trial),
    task: trial.request.task,
    env: { NONCE: trial.nonce, NODES_JSON: nodesJson(trial) },
    journal: trial.journal,
  });
  trial.cleanups.push({ what: 'workloads', end: () => workloads.stop() });
  const window = startWindow({ ...gateOptions(trial, 'window'), ...(after === undefined ? {} : { after }) });
  trial.background = { window, workloads, openedAt };
  trial.cleanups.push({
    what: 'window watch',
    end: async () => {
      await window.stop();
      trial.gateSeconds.window = (clock.now() - openedAt) / 1000;
    },
  });
}

function nodesJson(trial: Trial): string {
  return JSON.stringify(clusterOf(trial).nodes.map(({ name, address, roles }) => ({ name, address, roles })));
}

/** For nodes whose BMC the task works with: the site administrator's account. Ends when that BMC answers. */
async function bmcEnvironment(trial: Trial, node: string): Promise<Record<string, string>> {
  const definition = trial.request.task.definition.environment.nodes.find(({ name }) => name === node);
  if (definition?.bmc !== true) return {};
  const cluster = clusterOf(trial);
  await cluster.bmc(node).read(['mc', 'info'], trial.request.signal);
  const { address, username, passwordFile } = cluster.bmcLogin(node);
  const password = (await readFile(passwordFile, 'utf8')).split('\n', 1)[0] ?? '';
  redactor.add(password);
  return { IB_BMC_ADDRESS: address, IB_BMC_USER: username, IB_BMC_PASSWORD: password };
}

async function bootstrapNode(trial: Trial, node: string, script: string): Promise<void> {
  const result = await clusterOf(trial).setUp(node, {
    argv: ['/bin/bash', '-s'],
    stdin: script,
    env: {
      NODE: node,
      ROLES: clusterOf(trial).node(node).roles.join(' '),
      NONCE: trial.nonce,
      NODES_JSON: nodesJson(trial),
      INFRABED_FAULT: trial.request.control ? 'none' : 'inject',
      ...(await bmcEnvironment(trial, node)),
    },
    timeoutMs: 300_000,
    signal: trial.request.signal,
  });
  if (result.exitCode === 0) return;
  throw new InfrabedError(
    'IB_PROVISION',
    `bootstrap.sh of ${trial.request.task.definition.task.name} ended with ${String(result.exitCode ?? result.signal)} on ${node}: ${lastLines(result.stderr || result.stdout, 3)}`,
    { hint: 'This is a fault of the task: "infrabed cluster up" gives nodes to try the script on.' },
  );
}

/** The search for traces and the like see the nodes as the agent is about to. */
export async function beforeAgent(trial: Trial): Promise<void> {
  await trial.request.beforeAgent?.(clusterOf(trial));
}
