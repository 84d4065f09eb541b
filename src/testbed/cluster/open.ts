/** The cluster handle on top of any backend's cluster: exec, files, power, attribution. */
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import type { Journal } from '../../core/journal.js';
import type { DriverCluster, NodeDriver, Power } from '../driver/driver.js';
import { freshBootId, waitForFreshSession } from '../ssh/boot-identity.js';
import { connect } from '../ssh/connect.js';
import type { ConnectOptions } from '../ssh/connect.js';
import { fanOut } from '../ssh/fan-out.js';
import { ConnectionPool } from '../ssh/pool.js';
import type { Cluster, ClusterNode, NodeStanding } from './cluster.js';
import { journaledCommands } from './journaled.js';
import { readPath } from './read-path.js';
import { attribute } from './standing.js';
import type { Circumstances } from './standing.js';

export interface OpenClusterOptions {
  driverCluster: DriverCluster;
  /** Roles by node name; a node that is not in it has none. */
  roles?: Readonly<Record<string, readonly string[]>>;
  /** Private key that root on every node accepts. */
  controllerKey: string;
  journal: Journal;
  /** Who acts through this handle. Default `controller`. */
  actor?: string;
  clock?: Clock;
  /** For one login, from dial to ready. Default 20 000. */
  loginTimeoutMs?: number;
}

/** What the handle keeps for one node. */
interface Held {
  node: ClusterNode;
  driver: NodeDriver;
  pool: ConnectionPool;
  power: Power;
  /** Set by our own off and soft-off, cleared by anything that switches on. */
  switchedOffByUs: boolean;
}

/** The handle on a cluster whose nodes exist. Makes no connection before it is needed. */
export function openCluster(options: OpenClusterOptions): Cluster {
  const { driverCluster, journal, clock = systemClock, actor = 'controller' } = options;
  const held = new Map(driverCluster.nodes.map((driver) => [driver.name, hold(driver, options)]));
  const commands = journaledCommands(journal, actor, clock);
  const get = (name: string): Held => {
    const found = held.get(name);
    if (found) return found;
    throw new InfrabedError('IB_NODE_UNKNOWN', `The cluster ${driverCluster.id} has no node "${name}".`, {
      hint: `Its nodes are ${[...held.keys()].join(', ')}.`,
    });
  };

  const cluster: Cluster = {
    id: driverCluster.id,
    imageHash: driverCluster.imageHash,
    nodes: [...held.values()].map((one) => one.node),
    node: (name) => get(name).node,
    async exec(name, command) {
      const { witness } = get(name).driver;
      if (witness === undefined) return cluster.ssh(name, command);
      return commands.run(name, 'pristine', command, () => witness.exec(command));
    },
    async ssh(name, command) {
      const { pool } = get(name);
      return commands.run(name, 'ssh', command, () => pool.run(command));
    },
    async setUp(name, command) {
      const { witness } = get(name).driver;
      if (witness === undefined) return cluster.ssh(name, command);
      return commands.run(name, 'own', command, () => witness.execOwn(command));
    },
    read: (name, path, maxBytes) => readPath((command) => cluster.exec(name, command), name, path, maxBytes),
    async bootId(name, signal) {
      const bootId = await freshBootId(loginTo(get(name).driver, options, signal));
      journal.record({ kind: 'node.boot-id', actor, node: name, payload: { bootId } });
      return bootId;
    },
    standing: async (name, signal) => standingOf(get(name), options, signal),
    waitForSsh: async (names, timeoutMs, signal) =>
      waitForNodes(names.map(get), (driver) => loginTo(driver, options, signal), timeoutMs),
    power: (name) => get(name).power,
    console: (name) => get(name).driver.console,
    bmc(name) {
      const { bmc } = get(name).driver;
      if (bmc !== undefined) return bmc;
      throw new InfrabedError('IB_BMC_NONE', `${name} has no BMC.`, {
        hint: 'Take a backend whose nodes have one: see docs/bmc.md.',
      });
    },
    bmcLogin(name) {
      const { bmcLogin } = get(name).driver;
      if (bmcLogin !== undefined) return bmcLogin;
      throw new InfrabedError(
        'IB_BMC_NONE',
        `There is no account at the BMC of ${name} that could be handed on.`,
        {
          hint: 'Take a backend whose nodes have one: see docs/bmc.md.',
        },
      );
    },
    async dial(name, port, signal) {
      return get(name).driver.network.dial(port, signal);
    },
    networkCommand: (argv) => driverCluster.networkCommand(argv),
    hangUp() {
      for (const one of held.values()) one.pool.drop();
    },
    close() {
      for (const one of held.values()) one.pool.close();
      return Promise.resolve();
    },
  };
  return cluster;
}

function hold(driver: NodeDriver, options: OpenClusterOptions): Held {
  const { name, address, hostKey } = driver;
  const pool = new ConnectionPool({ name, open: (signal) => connect(loginTo(driver, options, signal)) });
  const one: Held = {
    node: { name, address, hostKey, roles: options.roles?.[name] ?? [] },
    driver,
    pool,
    power: driver.power,
    switchedOffByUs: false,
  };
  one.power = droppingPower(one);
  return one;
}

function loginTo(driver: NodeDriver, options: OpenClusterOptions, signal?: AbortSignal): ConnectOptions {
  return {
    name: driver.name,
    dial: (dialSignal) => driver.network.dial(22, dialSignal),
    hostKey: driver.hostKey,
    username: 'root',
    privateKey: options.controllerKey,
    timeoutMs: options.loginTimeoutMs ?? 20_000,
    ...(signal === undefined ? {} : { signal }),
  };
}

/** Power whose ending actions first drop the pooled connections: a reboot must never be seen through an old session. */
function droppingPower(one: Held): Power {
  const { power } = one.driver;
  const ending = async (staysOff: boolean, act: () => Promise<void>): Promise<void> => {
    one.pool.drop();
    // From the intent on: a node found off after an `off` that failed half-way was still switched off by us.
    one.switchedOffByUs = staysOff;
    try {
      await act();
    } finally {
      // A command that came while the node went down may have opened a connection again.
      one.pool.drop();
    }
  };
  return {
    state: (signal) => power.state(signal),
    async on(signal) {
      await power.on(signal);
      one.switchedOffByUs = false;
    },
    off: (signal) => ending(true, () => power.off(signal)),
    softOff: (signal) => ending(true, () => power.softOff(signal)),
    cycle: (signal) => ending(false, () => power.cycle(signal)),
    reset: (signal) => ending(false, () => power.reset(signal)),
  };
}

async function standingOf(
  one: Held,
  options: OpenClusterOptions,
  signal?: AbortSignal,
): Promise<NodeStanding> {
  let failure: string;
  try {
    await freshBootId(loginTo(one.driver, options, signal));
    return { standing: 'reachable' };
  } catch (error) {
    if (isInfrabedError(error, 'IB_CANCELLED')) throw error;
    failure = messageOf(error);
  }
  const standing = attribute({
    failure,
    switchedOffByUs: one.switchedOffByUs,
    ...(await circumstances(one.driver, signal)),
  });
  const { blame, why } = standing;
  const actor = options.actor ?? 'controller';
  options.journal.record({ kind: 'node.unreachable', actor, node: one.node.name, payload: { blame, why } });
  return standing;
}

async function circumstances(
  driver: NodeDriver,
  signal: AbortSignal | undefined,
): Promise<Pick<Circumstances, 'testimony' | 'power' | 'silence'>> {
  try {
    if (driver.witness) return { testimony: await driver.witness.testify(signal) };
    return { power: await driver.power.state(signal) };
  } catch (error) {
    if (isInfrabedError(error, 'IB_CANCELLED')) throw error;
    return { silence: `The path outside the node failed too: ${messageOf(error)}` };
  }
}

async function waitForNodes(
  nodes: readonly Held[],
  login: (driver: NodeDriver) => ConnectOptions,
  timeoutMs: number,
): Promise<void> {
  const byName = new Map(nodes.map((one) => [one.node.name, one]));
  const work = async (name: string): Promise<void> => {
    const one = byName.get(name);
    if (one) await waitForFreshSession(login(one.driver), timeoutMs);
  };
  // All at once: each waits with one patient connection, and none has to wait for the slowest of another group.
  const results = await fanOut([...byName.keys()], work, { concurrency: Math.max(1, byName.size) });
  const failed = results.filter((result) => !result.ok);
  const [first] = failed;
  if (first === undefined) return;
  if (isInfrabedError(first.error, 'IB_CANCELLED')) throw first.error;
  const sentences = failed.map((result) => messageOf(result.error));
  const consoles = await Promise.all(
    failed.map(async ({ node }) => [node, await consoleOf(byName.get(node)?.driver)] as const),
  );
  const [[name, text] = ['', '']] = consoles;
  throw new InfrabedError(
    'IB_TIMEOUT',
    `${failed.map((result) => result.node).join(', ')} did not answer over SSH. ${sentences.join(' ')}`,
    {
      hint: `The console of ${name} ends with: ${lastLines(text, 2)}`,
      cause: first.error,
      details: { consoles: Object.fromEntries(consoles) },
    },
  );
}

const consoleTailBytes = 4000;

async function consoleOf(driver: NodeDriver | undefined): Promise<string> {
  try {
    return (await driver?.console.tail(consoleTailBytes)) ?? '';
  } catch (error) {
    return `(the console could not be read: ${messageOf(error)})`;
  }
}
