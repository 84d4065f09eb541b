/** The BMCs of container nodes: what their supervisor is told, and the way to one of them. */
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
} from '../bmc/index.js';
import type { Bmc, BmcLogin } from '../driver.js';
import { createBmc } from '../ipmi/index.js';
import { act, markedArgv } from './fence.js';
import { nodeGroups, slice, type CgroupLayout } from './host.js';
import { bmcAddress, inNetwork, netmask } from './network.js';
import type { NodePlace } from './node.js';
import { powerOffSignal, powerRequest } from './power.js';
import { cleanEnvironment, type Supervisor } from './supervisor.js';

/** Beside the nodes in the cluster's group or in the names of its units. No node can be called so. */
export const bmcGroup = '_bmc';

const bmcFolder = (place: NodePlace): string => join(place.folder, 'bmc');

/** Written by bmcd (power_queue.py). */
export const bmcRequestsPath = (place: NodePlace): string => join(bmcFolder(place), 'requests.jsonl');

function planOf(place: NodePlace): BmcPlan {
  const { name, address } = place.node;
  return { name, folder: bmcFolder(place), address: bmcAddress(address), netmask, port: bmcPort };
}

/** Starts the BMCs of a new cluster, under its fence; does not wait until they answer. */
export async function startBmcs(
  places: readonly NodePlace[],
  supervisor: Supervisor,
  context: { stateFolder: string; layout: CgroupLayout },
  modulePath: string,
): Promise<void> {
  const [first] = places;
  if (first === undefined) return;
  const configPath = join(first.clusterFolder, 'bmc.json');
  const bmcs = places.map((place) => ({ plan: planOf(place), power: powerProgram(place) }));
  await act(first.holding, 'bmc-start', {
    folder: first.clusterFolder,
    bmcs: places.map((place) => ({
      folder: bmcFolder(place),
      files: [
        ...bmcFiles(planOf(place), modulePath, generatePasswords()),
        { name: 'power.json', content: JSON.stringify(powerFile(place, supervisor, context.stateFolder)) },
      ],
    })),
    config: { path: configPath, content: supervisorConfig(bmcs, modulePath, first.names.netnsPath) },
    launch: launch(first, context.layout, configPath),
  });
}

function powerProgram(place: NodePlace): { argv: string[]; onFile: { path: string; text: string } } {
  const script = asset('src/testbed/driver/container/bmc-power.py');
  return {
    argv: ['/usr/bin/python3', '-I', '-S', script, join(bmcFolder(place), 'power.json')],
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
function launch(place: NodePlace, layout: CgroupLayout, configPath: string): Record<string, unknown> {
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
export function containerBmc(place: NodePlace, journal: Journal, clock: Clock): Bmc {
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
export function siteLogin(place: NodePlace): BmcLogin {
  return {
    address: bmcAddress(place.node.address),
    username: siteAccount,
    passwordFile: join(bmcFolder(place), 'admin-password'),
  };
}
