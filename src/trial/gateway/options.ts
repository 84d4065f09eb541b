/** What a gateway is given, and what it gives back. */
import type { Client } from 'ssh2';
import type { Clock } from '../../core/clock.js';
import type { Journal } from '../../core/journal.js';
import type { ObjectStore } from '../../record/bundle/objects.js';
import type { Gatekeeper } from './channel.js';

export interface GatewayNode {
  name: string;
  /** A new login as root on the node. Without keep-alive messages: a slow reader must not look like a dead node. */
  connect(signal: AbortSignal): Promise<Client>;
}

export interface GatewayLimits {
  /** Connections of a trial at one time. */
  connections: number;
  /** Sessions of one connection at one time; OpenSSH's MaxSessions is 10. */
  channelsPerConnection: number;
  /** Logins on one node that may be under way; below OpenSSH's MaxStartups, which drops some of more than 10. */
  startups: number;
  /** From the first byte to the proof of the key. */
  loginMs: number;
  /** Size of one terminal recording. */
  castBytes: number;
}

export const defaultLimits: GatewayLimits = {
  connections: 64,
  channelsPerConnection: 10,
  startups: 6,
  loginMs: 60_000,
  castBytes: 64 * 1024 * 1024,
};

export interface GatewayOptions {
  trial: string;
  journal: Journal;
  objects: ObjectStore;
  /** Terminal recordings, `<session>.cast`. */
  sessionsDir: string;
  /** One socket a node, `<node>.sock`. */
  socketDir: string;
  /** Who may connect to the sockets; the controller's own user where it is left out. */
  agentUid?: number;
  nodes: readonly GatewayNode[];
  /** `ssh-ed25519 AAAA...` */
  agentPublicKey: string;
  clock: Clock;
  limits?: Partial<GatewayLimits>;
  gatekeeper?: Gatekeeper;
  /** Called once, when a record cannot be written any more. Nothing is forwarded from then on. */
  onFault?: (error: unknown) => void;
}

/** What passed, for the report. */
export interface GatewaySummary {
  connections: number;
  sessions: number;
  refusals: number;
  /** Why records are missing; empty when none is. */
  faults: string[];
}

export interface Gateway {
  /** `ssh-ed25519 AAAA...`: what a known_hosts file says of every node. */
  readonly hostKeyLine: string;
  /** @throws InfrabedError IB_NODE_UNKNOWN. */
  socketPath(node: string): string;
  /** Ends the open sessions; new ones may come. */
  abortSessions(reason: string): Promise<void>;
  /** Revokes the key, ends everything and waits until all of it is on record and durable. */
  close(reason: string): Promise<GatewaySummary>;
}
