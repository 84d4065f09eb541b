/** The backend's handle on one cluster, and how a cluster is brought up and taken down. */
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { failpoint } from '../../../core/failpoint.js';
import type { Journal } from '../../../core/journal.js';
import type { DriverCluster, NodeDriver } from '../driver.js';
import { bmcOf, bmcRequestsPath, containerBmcJoint, siteLogin, startBmcs } from './bmc.js';
import { clusterFolder, type ClusterState, type NodeState } from './cluster-state.js';
import { dialThrough } from './dial.js';
import { act, holdingOf, markedArgv } from './fence.js';
import { cgroupLayout, clusterNames, hierarchies, type CgroupLayout } from './host.js';
import { inNetwork } from './network.js';
import { fileTail, nodePlace, type NodePlace } from './node.js';
import { ContainerPower } from './power.js';
import { ownSupervisor, systemdSupervisor, type Supervisor } from './supervisor.js';
import { uidRegistry } from './uid-range.js';
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

  /** Starts the BMCs of a new cluster; whoever uses one first waits until it answers. */
  startBmcs(modulePath: string): Promise<void> {
    const { stateFolder, layout } = this.context;
    const supervisor = supervisorOf(this.state);
    return startBmcs(
      this.places,
      (place) => containerBmcJoint(place, supervisor, stateFolder),
      layout,
      modulePath,
    );
  }

  networkCommand(argv: readonly string[]): readonly string[] {
    return markedArgv(holdingOf(this.context.stateFolder, this.state), inNetwork(this.netnsPath, argv));
  }

  async destroy(): Promise<void> {
    failpoint('container.destroy.before-check');
    this.journal.record({
      kind: 'cluster.destroy',
      actor: 'controller',
      node: null,
      payload: { state: 'begin' },
    });
    await this.journal.flush();
    failpoint('container.destroy.intent');
    // First: a BMC could switch a node on behind us.
    await act(holdingOf(this.context.stateFolder, this.state), 'bmc-stop', {
      folder: clusterFolder(this.context.stateFolder, this.id),
    });
    const outcomes = await Promise.allSettled(this.nodes.map((node) => node.power.off()));
    const fenced = outcomes.find(
      (one) => one.status === 'rejected' && isInfrabedError(one.reason, 'IB_LEASE_CONFLICT'),
    );
    if (fenced?.status === 'rejected') throw fenced.reason;
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
    failpoint('container.destroy.verified');
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
      network: {
        dial: (port, signal) => dialThrough(this.netnsPath, node.address, port, signal, place.holding),
      },
      witness: containerWitness(place, power, supervisor, clock),
      bmc: bmcOf(place, this.journal, clock),
      bmcLogin: siteLogin(place),
      bmcRequests: bmcRequestsPath(place),
    };
  }
}

/** Removes what is left of a cluster whose nodes are off. @throws InfrabedError IB_POWER, IB_LEASE_CONFLICT. */
export async function removeRemnants(state: ClusterState, context: ClusterContext): Promise<void> {
  const holding = holdingOf(context.stateFolder, state);
  const result = await act(holding, 'remove', remnantsOf(context, state.tag, state.id));
  throwIfLeft(result, state.id);
}

/** Where a cluster has something on the host: what make_cluster.py removes. */
export function remnantsOf(context: ClusterContext, tag: string, id: string): Record<string, unknown> {
  const names = clusterNames(tag, id);
  return {
    clusterGroups: hierarchies(context.layout).map((root) => join(root, names.group)),
    netns: names.netns,
    folder: clusterFolder(context.stateFolder, id),
    ranges: uidRegistry.folder,
  };
}

const leftSchema = z.object({ left: z.array(z.string()) });

export function throwIfLeft(result: unknown, id: string): void {
  const { left } = leftSchema.parse(result);
  if (left.length === 0) return;
  throw new InfrabedError('IB_POWER', `Cluster ${id} could not be removed: ${left.join(' ')}`, {
    hint: 'They hang in the kernel, usually on a disk or a network file system: see "ps -eo pid,stat,wchan,args".',
  });
}

export const clusterContext = (stateFolder: string, clock: Clock): ClusterContext => ({
  stateFolder,
  clock,
  layout: cgroupLayout(),
});
