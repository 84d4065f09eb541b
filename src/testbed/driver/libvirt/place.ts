/** One virtual machine as the other files of this room see it, and its acts. */
import { join } from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { InfrabedError } from '../../../core/errors.js';
import { clusterFolder, nodeFolder } from '../container/cluster-state.js';
import { act, holdingOf, type Holding } from '../container/fence.js';
import {
  clusterNames,
  hierarchies,
  supervisorMode,
  type CgroupLayout,
  type ClusterNames,
  type SupervisorMode,
} from '../container/host.js';
import { powerLogPath } from '../container/power-log.js';
import type { BootOverride } from '../driver.js';
import { domainPrefix, type VmClusterState, type VmNodeState } from './cluster-state.js';
import { domainXml, macAddress, type DomainDisk } from './domain-xml.js';
import type { Hypervisor } from './hypervisor.js';
import { sha256 } from '../../../core/ids.js';

export interface VmContext {
  /** The state folder's part for virtual machines: see vmFolder. */
  folder: string;
  layout: CgroupLayout;
  hypervisor: Hypervisor;
  clock: Clock;
}

export interface VmPlace {
  cluster: VmClusterState & { mode: SupervisorMode };
  node: VmNodeState;
  holding: Holding;
  /** Name on the hypervisor. */
  domain: string;
  /** Holds root.qcow2, dataN.qcow2, desired, console.log and domain.xml. */
  folder: string;
  consolePath: string;
  /** UNIX sockets: of the serial port, of the BMC's in-band interface, and of a monitor. */
  sockets: { serial: string; kcs: string; events: string };
  names: ClusterNames;
  clusterFolder: string;
  /** The network card's end on the hypervisor. */
  tap: string;
}

/** Arguments of a kernel that is started directly; the image's GRUB has the same ones. */
const kernelArguments =
  'root=/dev/vda1 rw console=ttyS0 net.ifnames=0 quiet systemd.show_status=yes mitigations=off nokaslr audit=0';
/** As the cluster's bridge. */
const tapMtuBytes = 9216;

export function vmPlace(context: VmContext, cluster: VmClusterState, node: VmNodeState): VmPlace {
  const folder = nodeFolder(context.folder, cluster.id, node.name);
  const domain = `${domainPrefix(cluster.tag, cluster.id)}.${node.name}`;
  const index = cluster.nodes.findIndex(({ name }) => name === node.name);
  return {
    // Of the BMCs' supervisor: machines need none.
    cluster: { ...cluster, mode: supervisorMode() },
    node,
    holding: holdingOf(context.folder, cluster),
    domain,
    folder,
    consolePath: join(folder, 'console.log'),
    sockets: machineSockets(context.folder, cluster.id, index),
    names: clusterNames(cluster.tag, cluster.id),
    clusterFolder: clusterFolder(context.folder, cluster.id),
    // Names of interfaces end at 15 characters.
    tap: `ibv${sha256(domain).slice(0, 12)}`,
  };
}

/** Above the nodes' folders and without their names, since the paths of such sockets are short (unix(7)). */
function machineSockets(folder: string, id: string, index: number): VmPlace['sockets'] {
  const path = join(clusterFolder(folder, id), String(index));
  return { serial: `${path}.tty`, kcs: `${path}.kcs`, events: `${path}.qmp` };
}

const longestSocketPath = 107;

/** @throws InfrabedError IB_STATE_DIR when a cluster's sockets could not be made. */
export function assertSocketsFit(folder: string, id: string, nodes: number): void {
  const { serial } = machineSockets(folder, id, nodes - 1);
  if (Buffer.byteLength(serial) <= longestSocketPath) return;
  throw new InfrabedError('IB_STATE_DIR', `The path of a machine's serial port is too long: ${serial}`, {
    hint: 'Set INFRABED_STATE_DIR to a folder with a shorter path, or give the cluster a shorter id.',
  });
}

/** The text that defines the machine for its next start, by what its BMC was told of that boot. */
function definitionOf(place: VmPlace, override?: BootOverride['device']): string {
  const { cluster, node, folder } = place;
  const index = cluster.nodes.findIndex(({ name }) => name === node.name);
  return domainXml({
    name: place.domain,
    uuid: node.uuid,
    accelerator: cluster.accelerator,
    memoryMiB: node.memoryMiB,
    cpus: node.cpus,
    disks: [
      { path: join(folder, 'root.qcow2'), format: 'qcow2', serial: 'system' },
      ...node.disksMiB.map((_, number) => dataDisk(node, folder, `data${String(number)}`)),
    ],
    ...(node.bootsFromDisk
      ? {}
      : {
          kernel: {
            image: join(cluster.disk, 'vmlinuz'),
            initrd: join(cluster.disk, 'initrd.img'),
            arguments: kernelArguments,
          },
        }),
    mac: macAddress(index),
    tap: place.tap,
    console: { log: place.consolePath, socket: place.sockets.serial },
    kcs: place.sockets.kcs,
    events: place.sockets.events,
    ...(override === undefined ? {} : { override }),
  });
}

function dataDisk({ diskIopsSec }: VmNodeState, folder: string, serial: string): DomainDisk {
  const iopsSec = diskIopsSec[serial];
  return {
    path: join(folder, `${serial}.qcow2`),
    format: 'qcow2',
    serial,
    ...(iopsSec === undefined ? {} : { iopsSec }),
  };
}

const actScript = 'src/testbed/driver/libvirt/vm-act.py';

/** One act on the cluster by a child, under its fence. @throws as container/fence.ts's act. */
export function vmAct(
  holding: Holding,
  verb: Parameters<typeof act>[1],
  request: Record<string, unknown>,
): Promise<unknown> {
  return act(holding, verb, request, actScript);
}

/** What vm_power.py is told of a machine. */
export function powerRequest(context: VmContext, place: VmPlace): Record<string, unknown> {
  return {
    uri: context.hypervisor.uri,
    node: place.node.name,
    domain: place.domain,
    folder: place.folder,
    log: powerLogPath(context.folder),
    netns: place.names.netns,
    tap: place.tap,
    mtu: tapMtuBytes,
    definitions: {
      none: definitionOf(place),
      disk: definitionOf(place, 'disk'),
      pxe: definitionOf(place, 'pxe'),
      cdrom: definitionOf(place, 'cdrom'),
      bios: definitionOf(place, 'bios'),
    },
  };
}

/** A power act on one machine. Returns whether anything was switched. */
export async function powerAct(
  context: VmContext,
  place: VmPlace,
  verb: 'on' | 'off' | 'ask-off' | 'reset',
  more: Record<string, unknown> = {},
): Promise<boolean> {
  const answer = await vmAct(place.holding, verb, {
    ...powerRequest(context, place),
    ...more,
  });
  return z.object({ acted: z.boolean() }).parse(answer).acted;
}

/** Where a cluster has something on the host: what make_vms.py removes. */
export function remnantsOf(context: VmContext, tag: string, id: string): Record<string, unknown> {
  return {
    uri: context.hypervisor.uri,
    prefix: domainPrefix(tag, id),
    clusterGroups: hierarchies(context.layout).map((root) => join(root, clusterNames(tag, id).group)),
    netns: clusterNames(tag, id).netns,
    folder: clusterFolder(context.folder, id),
  };
}
