/** What keeps a node powered on: our own small supervisor, or a transient unit of the host's systemd. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import { asset } from '../../../core/paths.js';
import { isPopulated } from './cgroup.js';
import { slice } from './host.js';
import type { NodePlace } from './node.js';

/** Why a node is off although nobody here switched it off. */
export interface Ending {
  /** Exit status of systemd-nspawn or of our scripts; null when the supervisor vanished without a word. */
  status: number | null;
  /** A sentence if the backend itself is to blame, null if the node ended by what ran on it. */
  fault: string | null;
}

export interface Supervisor {
  /** What node_power.py starts: in the unit of that name, or by itself. */
  launch(place: NodePlace): { unit: string | null; argv: string[] };
  /** True while the supervisor is there or about to come back, as it is between two boots. */
  isPresent(place: NodePlace): Promise<boolean>;
  ending(place: NodePlace): Promise<Ending>;
}

const script = (name: string): string => asset(join('src/testbed/driver/container', name));

/** node-mounts.py and what it becomes: the same in both modes. */
function mountsArgv(place: NodePlace): string[] {
  const { cluster } = place;
  const shift = cluster.mapping === 'idmapped' ? cluster.uidBase : 0;
  return [
    '/usr/bin/python3',
    '-I',
    '-S',
    script('node-mounts.py'),
    place.folder,
    String(shift),
    cluster.lowers.join(':'),
    '/bin/sh',
  ];
}

function bootArgv(place: NodePlace): string[] {
  const { names, node, cluster } = place;
  return [place.folder, names.netnsPath, node.machine, node.name, String(cluster.uidBase)];
}

/** argv of our own supervisor. */
export function ownSupervisorArgv(place: NodePlace): string[] {
  const groups = place.groups.all.join(':');
  return [
    ...mountsArgv(place),
    script('node-supervisor.sh'),
    place.folder,
    place.holding.fence,
    groups,
    ...bootArgv(place).slice(1),
  ];
}

/** The environment of everything that runs on behalf of a node: nothing of the controller's own. */
export const cleanEnvironment = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LC_ALL: 'C.UTF-8',
};

export const ownSupervisor: Supervisor = {
  launch: (place) => ({ unit: null, argv: ownSupervisorArgv(place) }),
  isPresent: (place) => isPopulated(place.groups.unified),
  ending: async (place) => endingOf(await lastEvent(place)),
};

/** The last line of `events`, which boots and the supervisor write outside the node: `SECONDS PID WHAT [STATUS]`. */
async function lastEvent(place: NodePlace): Promise<string[]> {
  try {
    const lines = (await readFile(join(place.folder, 'events'), 'utf8')).trim().split('\n');
    return lines.at(-1)?.split(' ') ?? [];
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

/**
 * What an event says of a node that is off. Our scripts write none when they fail before the node's first instruction,
 * so whatever status an `exit` gives is the node's own, and only a `signal` (to systemd-nspawn) or silence is ours.
 */
export function endingOf(event: readonly string[]): Ending {
  const [, , what, word] = event;
  const number = Number(word);
  if (what === 'signal') {
    const fault = `systemd-nspawn was ended by signal ${String(number)}, which no node can send.`;
    return { status: null, fault };
  }
  if (what !== 'exit') {
    return { status: null, fault: 'The supervisor of the node is gone, and did not say why it ended.' };
  }
  if (number === 133) return { status: 133, fault: 'The supervisor of the node ended between two boots.' };
  return { status: number, fault: null };
}

/** argv of the transient unit: a fresh mount namespace and a fresh uptime at each boot, restarted on status 133. */
export function systemdRunArgv(place: NodePlace): string[] {
  const properties = [
    'Delegate=yes',
    'KillMode=mixed',
    'Type=exec',
    'Restart=no',
    'RestartForceExitStatus=133',
    'RestartSec=0',
    'SuccessExitStatus=133',
    'TasksMax=16384',
    'DevicePolicy=closed',
    'DeviceAllow=char-pts rw',
    'StandardInput=null',
    `StandardOutput=append:${place.consolePath}`,
    `StandardError=append:${place.consolePath}`,
    // A node may reboot as often as it likes.
    'StartLimitIntervalSec=0',
  ];
  const environment = Object.entries(cleanEnvironment).map(([name, value]) => `--setenv=${name}=${value}`);
  return [
    'systemd-run',
    '--quiet',
    `--unit=${unitName(place)}`,
    `--slice=${slice}`,
    `--description=infrabed node ${place.node.name} of cluster ${place.cluster.id}`,
    ...properties.map((property) => `--property=${property}`),
    ...environment,
    '--',
    ...mountsArgv(place),
    script('node-boot.sh'),
    ...bootArgv(place),
    '--notify-ready=no',
  ];
}

const unitName = (place: NodePlace): string => `${place.names.unitPrefix}${place.node.name}.service`;

/** Properties of the unit as systemd tells them. */
async function unitState(place: NodePlace): Promise<Map<string, string>> {
  const names = 'ActiveState,SubState,Result,ExecMainStatus,ExecMainCode,LoadState';
  const { stdout } = await run('systemctl', ['show', unitName(place), `--property=${names}`]);
  return new Map(
    stdout
      .split('\n')
      .filter(Boolean)
      .map((line): [string, string] => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
}

export const systemdSupervisor: Supervisor = {
  launch: (place) => ({ unit: unitName(place), argv: systemdRunArgv(place) }),
  async isPresent(place) {
    if (await isPopulated(place.groups.unified)) return true;
    const state = (await unitState(place)).get('ActiveState');
    return state === 'active' || state === 'activating' || state === 'reloading' || state === 'deactivating';
  },
  async ending(place) {
    const state = await unitState(place);
    if (state.get('LoadState') === 'not-found' || state.get('Result') === 'success')
      return { status: 0, fault: null };
    const status = Number(state.get('ExecMainStatus') ?? Number.NaN);
    // CLD_EXITED is 1; 2 and 3 are an end by a signal.
    if (state.get('ExecMainCode') !== '1') {
      return {
        status: null,
        fault: `systemd-nspawn was ended by signal ${String(status)}, which no node can send.`,
      };
    }
    return endingOf(['', '', 'exit', String(status)]);
  },
};
