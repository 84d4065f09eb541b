/** The network of a cluster: a namespace with a bridge in it. Nothing of it enters the host's own namespace. */
import { z } from 'zod';
import { lastLines, run } from '../../../core/exec.js';
import { InfrabedError, errnoOf } from '../../../core/errors.js';
import { readdir } from 'node:fs/promises';

/** Jumbo frames with room for a tag or a tunnel's header. */
const bridgeMtuBytes = 9216;
export const bridgeAddress = '10.77.0.1';
export const prefixLength = 23;
export const netmask = '255.255.254.0';
const firstHost = 11;

/** 10.77.0.11 for the first node. @throws InfrabedError IB_NOT_ENOUGH_NODES beyond the 244th. */
export function nodeAddress(index: number): string {
  if (firstHost + index > 254) {
    throw new InfrabedError(
      'IB_NOT_ENOUGH_NODES',
      `A cluster has room for ${String(255 - firstHost)} nodes.`,
    );
  }
  return `10.77.0.${String(firstHost + index)}`;
}

/** The node's BMC has the same last number, in the upper half of the network. */
export const bmcAddress = (node: string): string => node.replace(/^10\.77\.0\./, '10.77.1.');

/** Locally administered; each cluster has a network of its own. */
const bridgeLinkAddress = '02:00:0a:4d:00:01';

const settings = [
  // Without forwarding nobody would send the "unreachable" that the route stands for.
  'net.ipv4.ip_forward=1',
  // A connection that is tried while the node boots is answered as soon as it can be, not at the next full second.
  'net.ipv4.neigh.br0.retrans_time_ms=50',
  'net.ipv4.neigh.br0.mcast_solicit=20',
];

/**
 * What is done in a fresh namespace (make_cluster.py does it): lines for `ip -batch`, and settings for sysctl. BMCs are
 * no nodes: their addresses belong to the bridge.
 */
export const networkPlan = (nodes: readonly { address: string }[]): Record<string, unknown> => ({
  commands: [
    'link set lo up',
    // With an address of its own: else it takes that of a port, and changes it when a node is switched on or off. The
    // other nodes would send what is for a BMC to the old one, until their neighbour entries run out.
    `link add br0 address ${bridgeLinkAddress} mtu ${String(bridgeMtuBytes)} type bridge stp_state 0 forward_delay 0`,
    // Set once more, after which the bridge no longer follows its smallest port.
    `link set br0 mtu ${String(bridgeMtuBytes)}`,
    `addr add ${bridgeAddress}/${String(prefixLength)} dev br0`,
    ...nodes.map(({ address }) => `addr add ${bmcAddress(address)}/${String(prefixLength)} dev br0`),
    'link set br0 up',
    // There is no way out: say so at once instead of letting programs wait for their time-outs.
    'route add unreachable default',
  ],
  settings,
});

const linksSchema = z.array(
  z.object({ flags: z.array(z.string()), addr_info: z.array(z.object({ local: z.string() })) }),
);

/** What is broken of the part of the network that no node can reach: a sentence, or null. */
export async function networkFault(netns: string): Promise<string | null> {
  const shown = await run('ip', ['-netns', netns, '-json', 'address', 'show', 'dev', 'br0'], {
    allowFailure: true,
  });
  if (shown.exitCode !== 0)
    return `The network ${netns} of the cluster is gone: ${lastLines(shown.stderr, 1)}`;
  const [bridge] = linksSchema.parse(JSON.parse(shown.stdout));
  const isWhole =
    bridge?.flags.includes('UP') === true && bridge.addr_info.some(({ local }) => local === bridgeAddress);
  return isWhole ? null : `The bridge of the network ${netns} is down, or has lost its address.`;
}

export async function removeNetwork(netns: string): Promise<void> {
  if ((await networkNames()).includes(netns)) await run('ip', ['netns', 'delete', netns]);
}

/** Names of all network namespaces of the host that have one. */
export async function networkNames(): Promise<string[]> {
  try {
    return await readdir('/run/netns');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

/** argv that runs a program inside the namespace. */
export function inNetwork(netnsPath: string, argv: readonly string[]): string[] {
  return ['nsenter', `--net=${netnsPath}`, ...argv];
}
