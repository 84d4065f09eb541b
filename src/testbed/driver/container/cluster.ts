/** The backend's handle on one cluster, and how a cluster is brought up and taken down. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { InfrabedError, messageOf } from '../../../core/errors.js';
import type { Journal } from '../../../core/journal.js';
import type { DriverCluster, NodeDriver } from '../driver.js';
import { emptyGroup, removeGroup } from './cgroup.js';
import { clusterFolder, type ClusterState, type NodeState } from './cluster-state.js';
import { dialThrough } from './dial.js';
import { cgroupLayout, clusterNames, hierarchies, type CgroupLayout } from './host.js';
import { inNetwork, removeNetwork } from './network.js';
import { fileTail, nodePlace, type NodePlace } from './node.js';
import { ContainerPower } from './power.js';
import { ownSupervisor, systemdSupervisor, type Supervisor } from './supervisor.js';
import { releaseUidRange } from './uid-range.js';
import { containerWitness } from './witness.js';

export interface ClusterContext {
  stateFolder: string;
  layout: CgroupLayout;
  clock: Clock;
}

export const supervisorOf = (state: ClusterState): Supervisor =>
  state.mode === 'host-systemd' ? systemdSupervisor : ownSupervisor;

/** A cluster whose nodes drive through their own pieces; `state` is what cluster.json says. */
export class ContainerCluster implements DriverCluster {
  readonly id: string;
  readonly imageHash: string;
  readonly generation: number;
  readonly nodes: readonly NodeDriver[];
  private readonly places: readonly NodePlace[];
  private readonly netnsPath: string;

  constructor(
    private readonly state: ClusterState,
    private readonly context: ClusterContext,
    private readonly journal: Journal,
  ) {
    this.id = state.id;
    this.imageHash = state.imageHash;
    this.generation = state.generation;
    this.netnsPath = clusterNames(state.tag, state.id).netnsPath;
    this.places = state.nodes.map((node) => nodePlace(context.stateFolder, context.layout, state, node));
    this.nodes = this.places.map((place) => this.driver(place, place.node));
  }

  networkCommand(argv: readonly string[]): readonly string[] {
    return inNetwork(this.netnsPath, argv);
  }

  async destroy(): Promise<void> {
    this.journal.record({
      kind: 'cluster.destroy',
      actor: 'controller',
      node: null,
      payload: { state: 'begin' },
    });
    await this.journal.flush();
    const outcomes = await Promise.allSettled(this.nodes.map((node) => node.power.off()));
    const failed = outcomes.flatMap((outcome) =>
      outcome.status === 'rejected' ? [messageOf(outcome.reason)] : [],
    );
    if (failed.length > 0) {
      throw new InfrabedError(
        'IB_POWER',
        `Cluster ${this.id} could not be switched off: ${failed.join(' ')}`,
        {
          hint: 'Run "infrabed sweep".',
        },
      );
    }
    await removeRemnants(this.state, this.context);
    this.journal.record({
      kind: 'cluster.destroy',
      actor: 'controller',
      node: null,
      payload: { state: 'verified' },
    });
    await this.journal.flush();
  }

  private driver(place: NodePlace, node: NodeState): NodeDriver {
    const { stateFolder, clock } = this.context;
    const supervisor = supervisorOf(this.state);
    const power = new ContainerPower(place, stateFolder, supervisor, this.journal, clock);
    return {
      name: node.name,
      address: node.address,
      hostKey: node.hostKey,
      power,
      console: { path: place.consolePath, tail: (maxBytes) => fileTail(place.consolePath, maxBytes) },
      network: { dial: (port, signal) => dialThrough(this.netnsPath, node.address, port, signal) },
      witness: containerWitness(place, power, supervisor, clock),
    };
  }
}

/** Removes what is left of a cluster whose nodes are off: groups, namespace, files, uid range; in this order. */
export async function removeRemnants(state: ClusterState, context: ClusterContext): Promise<void> {
  const names = clusterNames(state.tag, state.id);
  for (const root of hierarchies(context.layout)) {
    const group = join(root, names.group);
    if (root === context.layout.unified) await emptyGroup(group);
    await removeGroup(group);
  }
  await removeNetwork(names.netns);
  const folder = clusterFolder(context.stateFolder, state.id);
  await rm(folder, { recursive: true, force: true });
  await releaseUidRange(state.uidBase, folder);
}

export const clusterContext = (stateFolder: string, clock: Clock): ClusterContext => ({
  stateFolder,
  clock,
  layout: cgroupLayout(),
});
