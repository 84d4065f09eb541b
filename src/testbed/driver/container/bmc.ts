/** The BMCs of the nodes of this machine: what their supervisor is told, and the way to one of them. */
import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import type { Journal } from '../../../core/journal.js';
import { asset } from '../../../core/paths.js';
import {
  bmcFiles,
  bmcPort,
  controllerAccount,
  generatePasswords,
  siteAccount,
  supervisorConfig,
  whenReady,
  type BmcPlan,
  type MachineLines,
  type PowerProgram,
} from '../bmc/index.js';
import type { Bmc, BmcLogin } from '../driver.js';
import { createBmc } from '../ipmi/index.js';
import { act, markedArgv, type Holding } from './fence.js';
import { nodeGroups, slice, type CgroupLayout, type ClusterNames, type SupervisorMode } from './host.js';
import { bmcAddress, inNetwork, netmask } from './network.js';
import type { NodePlace } from './node.js';
import { powerOffSignal, powerRequest } from './power.js';
import { cleanEnvironment, type Supervisor } from './supervisor.js';

/** Beside the nodes in the cluster's group or in the names of its units. No node can be called so. */
export const bmcGroup = '_bmc';

/** A node of this machine, container or not, as far as its BMC is concerned. */
export interface BmcPlace {
  cluster: { id: string; mode: SupervisorMode };
  node: { name: string; address: string };
  holding: Holding;
  names: ClusterNames;
  folder: string;
  clusterFolder: string;
}

/** What joins a node to its BMC: a program that works its power, and the file that this finds its request in. */
export interface BmcJoint {
  program: PowerProgram;
  request: Record<string, unknown>;
  /** Of a virtual machine. */
  lines?: MachineLines;
}

export const bmcFolder = (place: BmcPlace): string => join(place.folder, 'bmc');

/** Written by bmcd (power_queue.py). */
export const bmcRequestsPath = (place: BmcPlace): string => join(bmcFolder(place), 'requests.jsonl');

function planOf(place: BmcPlace, { lines }: BmcJoint): BmcPlan {
  const { name, address } = place.node;
  const plan = { name, folder: bmcFolder(place), address: bmcAddress(address), netmask, port: bmcPort };
  return { ...plan, ...(lines ? { lines } : {}) };
}

/** Starts the BMCs of a new cluster, under its fence; does not wait until they answer. */
export async function startBmcs<Place extends BmcPlace>(
  places: readonly Place[],
  jointOf: (place: Place) => BmcJoint,
  layout: CgroupLayout,
  modulePath: string,
  /** Who carries acts out for this kind of node. */
  by: (holding: Holding, verb: 'bmc-start', request: Record<string, unknown>) => Promise<unknown> = act,
): Promise<void> {
  const [first] = places;
  if (first === undefined) return;
  const configPath = join(first.clusterFolder, 'bmc.json');
  const bmcs = places.map((place) => {
    const joint = jointOf(place);
    return { plan: planOf(place, joint), power: joint.program, request: joint.request };
  });
  await by(first.holding, 'bmc-start', {
    folder: first.clusterFolder,
    bmcs: bmcs.map(({ plan, request }) => ({
      folder: plan.folder,
      files: [
        ...bmcFiles(plan, modulePath, generatePasswords()),
        { name: powerFileName, content: JSON.stringify(request) },
      ],
    })),
    config: { path: configPath, content: supervisorConfig(bmcs, modulePath, first.names.netnsPath) },
    launch: launch(first, layout, configPath),
  });
}

/** In the BMC's folder: what the power program is told beside the word of the moment. */
export const powerFileName = 'power.json';

export function containerBmcJoint(place: NodePlace, supervisor: Supervisor, stateFolder: string): BmcJoint {
  return { program: powerProgram(place), request: powerFile(place, supervisor, stateFolder) };
}

function powerProgram(place: NodePlace): PowerProgram {
  const script = asset('src/testbed/driver/container/bmc-power.py');
  return {
    argv: ['/usr/bin/python3', '-I', '-S', script, join(bmcFolder(place), powerFileName)],
    onFile: { path: join(place.groups.unified, 'cgroup.events'), text: 'populated 1' },
  };
}

/** What bmc-power.py hands to the same children that the controller acts by; only the generation is not in it. */
function powerFile(place: NodePlace, supervisor: Supervisor, stateFolder: string): Record<string, unknown> {
  const { clusterId: cluster, fence, mark } = place.holding;
  return {
    ...powerRequest(place, stateFolder, supervisor),
    cluster,
    fence,
    mark,
    via: 'bmc',
    signal: powerOffSignal,
    isFirst: true,
  };
}

/** How the supervisor is started: in the cluster's control group, or as a unit of the host's systemd. */
function launch(place: BmcPlace, layout: CgroupLayout, configPath: string): Record<string, unknown> {
  const groups = nodeGroups(layout, place.cluster.mode, place.names, bmcGroup);
  const log = join(place.clusterFolder, 'bmcd.log');
  const script = (name: string): string => asset(join('src/testbed/driver/bmc', name));
  const daemon = ['/usr/bin/python3', '-I', '-S', script('bmcd.py'), configPath];
  const common = {
    node: 'the BMCs',
    group: groups.unified,
    groups: groups.all,
    root: groups.root,
    console: log,
    env: cleanEnvironment,
  };
  if (place.cluster.mode === 'own') {
    const argv = ['/bin/sh', script('bmc-supervisor.sh'), script('bmcd.py'), configPath];
    return { ...common, unit: null, argv };
  }
  const unit = `${place.names.unitPrefix}${bmcGroup}.service`;
  const properties = [
    'Restart=always',
    'RestartSec=1',
    'StartLimitIntervalSec=0',
    'StandardInput=null',
    `StandardOutput=append:${log}`,
    `StandardError=append:${log}`,
  ];
  const options = [
    '--quiet',
    `--unit=${unit}`,
    `--slice=${slice}`,
    `--description=infrabed BMCs of cluster ${place.cluster.id}`,
    ...properties.map((property) => `--property=${property}`),
    ...Object.entries(cleanEnvironment).map(([name, value]) => `--setenv=${name}=${value}`),
  ];
  return { ...common, unit, argv: ['systemd-run', ...options, '--', ...daemon] };
}

/** The node's BMC, by the controller's own account. The first to use it waits until it has started. */
export function bmcOf(place: BmcPlace, journal: Journal, clock: Clock): Bmc {
  const folder = bmcFolder(place);
  const bmc = createBmc({
    name: place.node.name,
    address: bmcAddress(place.node.address),
    port: bmcPort,
    username: controllerAccount,
    passwordFile: join(folder, 'password'),
    reach: (argv) => markedArgv(place.holding, inNetwork(place.names.netnsPath, argv)),
    journal,
    clock,
    cacheFile: join(folder, 'cipher-suite'),
  });
  return whenReady(bmc, folder, clock);
}

/** The site administrator's account, which a task may hand to the agent. */
export function siteLogin(place: BmcPlace): BmcLogin {
  return {
    address: bmcAddress(place.node.address),
    username: siteAccount,
    passwordFile: join(bmcFolder(place), 'admin-password'),
  };
}
