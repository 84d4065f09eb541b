/** The handle on leased nodes: what trials, checkers and provisioning work with, whatever the backend. */
import type { Duplex } from 'node:stream';
import type {
  Bmc,
  BmcLogin,
  CommandResult,
  Console,
  NodeCommand,
  Power,
  Testimony,
} from '../driver/driver.js';

export interface ClusterNode {
  readonly name: string;
  readonly address: string;
  readonly hostKey: string;
  readonly roles: readonly string[];
}

/**
 * The state of a path as a walker sees it that follows no link. `sha256` covers the first 256 MiB of a file. Where a
 * link stands in the way, the state is the link's and `at` says which component it is.
 */
export type FileState =
  | { type: 'absent' }
  | {
      type: 'file';
      mode: string;
      owner: string;
      group: string;
      sizeBytes: number;
      sha256: string;
      content: string;
      truncated: boolean;
    }
  | {
      type: 'directory' | 'symlink' | 'other';
      mode: string;
      owner: string;
      group: string;
      target?: string;
      at?: string;
    };

/** How a node stands, for attribution: see Testimony. */
export type NodeStanding =
  | { standing: 'reachable' }
  | {
      standing: 'unreachable';
      blame: 'node' | 'infrastructure' | 'unknown';
      why: string;
      testimony?: Testimony;
    };

export interface Cluster {
  readonly id: string;
  readonly imageHash: string;
  readonly nodes: readonly ClusterNode[];
  /** @throws InfrabedError IB_NODE_UNKNOWN, naming the nodes there are. */
  node(name: string): ClusterNode;
  /**
   * Runs a command as root with programs that can be trusted: pristine ones inside the node where the backend
   * can, else the node's own over SSH. What this returns about the node is evidence.
   * @throws InfrabedError IB_NODE_UNREACHABLE or IB_NODE_OFF when it could not be run.
   */
  exec(node: string, command: NodeCommand): Promise<CommandResult>;
  /** Runs a command over a pooled SSH connection with the node's own programs (behaviour as a client sees it). */
  ssh(node: string, command: NodeCommand): Promise<CommandResult>;
  /** Set-up and clean-up by the controller: no login, no shell history; falls back to SSH. */
  setUp(node: string, command: NodeCommand): Promise<CommandResult>;
  /** Reads a path without following links; content capped at `maxBytes` (default 1 MiB), UTF-8. */
  read(node: string, path: string, maxBytes?: number): Promise<FileState>;
  /** Over a fresh SSH session. @throws InfrabedError IB_NODE_UNREACHABLE. */
  bootId(node: string, signal?: AbortSignal): Promise<string>;
  /** Tries a fresh SSH session and, if it fails, finds out over the path outside who is to blame. */
  standing(node: string, signal?: AbortSignal): Promise<NodeStanding>;
  /** Ends when every named node answers a fresh SSH session. @throws InfrabedError IB_TIMEOUT naming those that do not. */
  waitForSsh(nodes: readonly string[], timeoutMs: number, signal?: AbortSignal): Promise<void>;
  /** Power of a node. Pooled connections are dropped before anything that ends them. */
  power(node: string): Power;
  console(node: string): Console;
  /** @throws InfrabedError IB_BMC_NONE for a node without one. */
  bmc(node: string): Bmc;
  /** The site administrator's account at the node's BMC. @throws InfrabedError IB_BMC_NONE where there is none to give. */
  bmcLogin(node: string): BmcLogin;
  dial(node: string, port: number, signal?: AbortSignal): Promise<Duplex>;
  networkCommand(argv: readonly string[]): readonly string[];
  /** Ends the controller's own logins; later commands log in anew. */
  hangUp(): void;
  /** Closes connections for good; the nodes stay. */
  close(): Promise<void>;
}
