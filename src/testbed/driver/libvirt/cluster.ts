/** The backend's handle on one cluster of virtual machines, and how it is taken down. */
import { z } from 'zod';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { failpoint } from '../../../core/failpoint.js';
import type { Journal } from '../../../core/journal.js';
import { bmcOf, bmcRequestsPath, siteLogin, startBmcs } from '../container/bmc.js';
import { clusterFolder } from '../container/cluster-state.js';
import { dialThrough } from '../container/dial.js';
import { holdingOf, markedArgv } from '../container/fence.js';
import { clusterNames } from '../container/host.js';
import { inNetwork } from '../container/network.js';
import { fileTail } from '../container/node.js';
import type { DriverCluster, NodeDriver } from '../driver.js';
import type { VmClusterState, VmNodeState } from './cluster-state.js';
import { vmBmcJoint } from './bmc-power.js';
import { machineOwner, reachHypervisor } from './hypervisor.js';
import { remnantsOf, vmAct, vmPlace, type VmContext } from './place.js';
import { VmPower } from './power.js';

/** `state` is what cluster.json says, with the generation that has the cluster now. */
export class VmCluster implements DriverCluster {
  readonly id: string;
  readonly imageHash: string;
  readonly generation: number;
  readonly nodes: readonly NodeDriver[];
  private readonly netnsPath: string;

  constructor(
    private readonly state: VmClusterState,
    private readonly context: VmContext,
    private readonly journal: Journal,
  ) {
    this.id = state.id;
    this.imageHash = state.imageHash;
    this.generation = state.generation;
    this.netnsPath = clusterNames(state.tag, state.id).netnsPath;
    this.nodes = state.nodes.map((node) => this.driver(node));
  }

  networkCommand(argv: readonly string[]): readonly string[] {
    return markedArgv(holdingOf(this.context.folder, this.state), inNetwork(this.netnsPath, argv));
  }

  async destroy(): Promise<void> {
    failpoint('vm.destroy.before-check');
    await this.write('begin');
    // First: a BMC could switch a machine on behind us.
    await vmAct(holdingOf(this.context.folder, this.state), 'bmc-stop', {
      folder: clusterFolder(this.context.folder, this.id),
    });
    const outcomes = await Promise.allSettled(this.nodes.map((node) => node.power.off()));
    const reasons = outcomes.flatMap((one): unknown[] => (one.status === 'rejected' ? [one.reason] : []));
    const fenced = reasons.find((reason) => isInfrabedError(reason, 'IB_LEASE_CONFLICT'));
    if (fenced instanceof InfrabedError) throw fenced;
    if (reasons.length > 0) {
      const why = reasons.map(messageOf).join(' ');
      throw new InfrabedError('IB_POWER', `Cluster ${this.id} could not be switched off: ${why}`, {
        hint: 'Run "infrabed sweep".',
      });
    }
    await removeRemnants(this.state, this.context);
    await this.write('verified');
    failpoint('vm.destroy.verified');
  }

  /** Does not wait until they answer: whoever uses one first does. */
  async startBmcs(modulePath: string): Promise<void> {
    const places = this.state.nodes.map((node) => vmPlace(this.context, this.state, node));
    const owner = await machineOwner(this.context.hypervisor);
    await startBmcs(
      places,
      (place) => vmBmcJoint(this.context, place, owner),
      this.context.layout,
      modulePath,
      vmAct,
    );
  }

  private async write(state: string): Promise<void> {
    this.journal.record({ kind: 'cluster.destroy', actor: 'controller', node: null, payload: { state } });
    await this.journal.flush();
  }

  private driver(node: VmNodeState): NodeDriver {
    const place = vmPlace(this.context, this.state, node);
    const { consolePath, holding } = place;
    return {
      name: node.name,
      address: node.address,
      hostKey: node.hostKey,
      power: new VmPower(this.context, place, this.journal),
      console: { path: consolePath, tail: (maxBytes) => fileTail(consolePath, maxBytes) },
      network: { dial: (port, signal) => dialThrough(this.netnsPath, node.address, port, signal, holding) },
      witness: undefined,
      bmc: bmcOf(place, this.journal, this.context.clock),
      bmcLogin: siteLogin(place),
      bmcRequests: bmcRequestsPath(place),
    };
  }
}

/** Removes what is left of a cluster whose nodes are off. @throws InfrabedError IB_POWER, IB_LEASE_CONFLICT. */
export async function removeRemnants(
  state: Pick<VmClusterState, 'tag' | 'id' | 'generation'>,
  context: VmContext,
): Promise<void> {
  await reachHypervisor(context.hypervisor);
  const holding = holdingOf(context.folder, state);
  const result = await vmAct(holding, 'remove', remnantsOf(context, state.tag, state.id));
  throwIfLeft(result, state.id);
}

export function throwIfLeft(result: unknown, id: string): void {
  const { left } = z.object({ left: z.array(z.string()) }).parse(result);
  if (left.length === 0) return;
  throw new InfrabedError('IB_POWER', `Cluster ${id} could not be removed: ${left.join(' ')}`, {
    hint: 'See what the hypervisor says: "infrabed doctor", and "virsh list --all".',
  });
}
