/** The small interfaces a backend implements, joined per node. Each has a fake held to the same suite. */
import type { Duplex } from 'node:stream';
import type { IoHost } from '../../core/io.js';
import type { Journal } from '../../core/journal.js';
import type { CommandResult, NodeCommand } from '../ssh/command.js';

export type { CommandResult, NodeCommand };

/** What the power supply says. Unknown is not off. */
export type PowerState = 'on' | 'off' | 'unknown';

/** Desired state, idempotent, verified by reading back. @throws InfrabedError IB_POWER when the read-back disagrees. */
export interface Power {
  state(signal?: AbortSignal): Promise<PowerState>;
  on(signal?: AbortSignal): Promise<void>;
  /** Hard: nothing on the node gets to run any more. */
  off(signal?: AbortSignal): Promise<void>;
  /** Asks the operating system to shut down; ends when the node is off or rejects with IB_TIMEOUT. */
  softOff(signal?: AbortSignal): Promise<void>;
  /** Off, then on. On a node that is off it becomes `on`. */
  cycle(signal?: AbortSignal): Promise<void>;
  /** Hard reset without the off in between. On a node that is off it becomes `on`. */
  reset(signal?: AbortSignal): Promise<void>;
}

/** The node's console, kept by the controller from before the first power-on. */
export interface Console {
  /** At most `maxBytes` of the end of the log. */
  tail(maxBytes: number): Promise<string>;
  /** Where the log lies on the controller, for the bundle. */
  readonly path: string;
}

export interface Network {
  /**
   * A byte stream to a TCP port of the node, as seen from the cluster's own network.
   * Errors after the connection arrive as the stream's `error`.
   */
  dial(port: number, signal?: AbortSignal): Promise<Duplex>;
}

/** What a node is like over a path that its root cannot reach or forge. */
export interface Testimony {
  power: PowerState;
  /** The node's init is running. null where the backend cannot tell. */
  initRunning: boolean | null;
  bootId: string | null;
  /** Proof that the backend itself broke (supervisor gone, network gone): a sentence, or null. */
  infrastructureFault: string | null;
  consoleTail: string;
}

/**
 * Where `Witness.exec` shows the node's own root folder, read-only. Paths that the pristine image replaces
 * (/usr, /bin, /sbin, /lib*, and the loader's and interpreters' settings in /etc) are the node's own only below it.
 */
export const witnessNodeRoot = '/.node';

/** The path outside the agent's reach: who is to blame, programs that can be trusted, files as they are. */
export interface Witness {
  testify(signal?: AbortSignal): Promise<Testimony>;
  /**
   * Runs a program of the pristine image (its loader, libraries and shells too) inside the node's
   * namespaces, seeing the node's own /etc, /var, /run, /home, /root, /srv, /opt, /tmp, processes and network.
   * @throws InfrabedError IB_NODE_OFF when the node has no running init.
   */
  exec(command: NodeCommand): Promise<CommandResult>;
  /** The same with the node's own programs, for set-up: outside SSH, leaving no login behind. */
  execOwn(command: NodeCommand): Promise<CommandResult>;
}

/** From where a node is told to boot next; `none`: as its firmware is set up. */
export interface BootOverride {
  device: 'none' | 'pxe' | 'disk' | 'cdrom' | 'bios';
  /** For every boot from now on; false: for the next one only. */
  persistent: boolean;
  /** The firmware is to boot by EFI. */
  efi: boolean;
}

export interface BmcUser {
  /** 1 to 63 (IPMI 2.0, section 22.26). */
  id: number;
  /** Empty for a slot that has none. */
  name: string;
  /** Privilege on the LAN channel as ipmitool names it: ADMINISTRATOR, OPERATOR, USER, CALLBACK, "NO ACCESS". */
  privilege: string;
  /** May log in over LAN. null where the BMC does not tell. */
  enabled: boolean | null;
}

export interface SelEntry {
  /** Record number. */
  id: number;
  /** ISO 8601, or null for an entry without a valid time. */
  time: string | null;
  sensor: string;
  event: string;
  /** The record as the BMC holds it, 16 bytes in hex: what tells one entry from another. */
  raw: string;
}

export interface SelInfo {
  entries: number;
  freeBytes: number;
  /** Events were lost because the log was full. */
  overflow: boolean;
}

export interface WatchdogState {
  running: boolean;
  /** What happens when it runs out. */
  action: 'none' | 'reset' | 'power-off' | 'power-cycle';
  use: string;
  initialSec: number;
  /** null where the BMC does not tell. */
  remainingSec: number | null;
}

/**
 * A node's BMC over LAN, with the controller's own account. One session at a time and one queue a BMC; an act is never
 * sent twice unless reading back proves that it did not happen.
 * @throws InfrabedError IB_BMC_UNREACHABLE (nothing answers), IB_BMC_AUTH (never repeated: accounts lock), IB_BMC.
 */
export interface Bmc {
  /** In the cluster's own network, port 623. */
  readonly address: string;
  /** A BMC that does not answer gives `unknown`. */
  powerState(signal?: AbortSignal): Promise<PowerState>;
  bootOverride(signal?: AbortSignal): Promise<BootOverride>;
  /** Sets it in one raw request and reads it back; keeps it beyond the BMC's 60 s where the BMC lets one. */
  setBootOverride(wanted: BootOverride, signal?: AbortSignal): Promise<void>;
  users(signal?: AbortSignal): Promise<BmcUser[]>;
  selInfo(signal?: AbortSignal): Promise<SelInfo>;
  selEntries(signal?: AbortSignal): Promise<SelEntry[]>;
  watchdog(signal?: AbortSignal): Promise<WatchdogState>;
  /** Any other ipmitool command that changes nothing, or that may be repeated. Returns its standard output. */
  read(args: readonly string[], signal?: AbortSignal): Promise<string>;
  /** An ipmitool command that acts: sent once, whatever becomes of the reply. */
  act(args: readonly string[], signal?: AbortSignal): Promise<string>;
}

/** An account at a BMC, for others than the controller. */
export interface BmcLogin {
  address: string;
  username: string;
  /** On the controller, mode 0600; the password is its first line. */
  passwordFile: string;
}

/** All that can be done to one node of a cluster. */
export interface NodeDriver {
  readonly name: string;
  readonly address: string;
  /** `ssh-ed25519 AAAA...`, put into the image by the controller, so known before the first contact. */
  readonly hostKey: string;
  readonly power: Power;
  readonly console: Console;
  readonly network: Network;
  /** Absent where the backend has no such path (bare metal). */
  readonly witness: Witness | undefined;
  /** Absent where the node has no BMC. */
  readonly bmc: Bmc | undefined;
  /** The site administrator's account at that BMC, which a task may hand to the agent. Absent where there is none to give. */
  readonly bmcLogin?: BmcLogin;
  /** Where a BMC of ours writes down what it was asked to do to the node's power, by whomever: JSON lines, out of the node's reach. */
  readonly bmcRequests?: string;
}

/**
 * A layer of an image: the name of a file in playbooks/images, or a script that makes a further cached layer. The script
 * is run by bash as root in a chroot of the layers below, with its folder mounted read-only beside it (its working
 * folder); the content of that folder is the key of the cache.
 */
export type LayerRef = string | { name: string; script: string };

/** What a node needs beyond a system that boots. Backends whose nodes are containers have no use for it. */
export interface NodeHardware {
  memoryMiB?: number;
  cpus?: number;
  /** Sizes of empty data disks, in this order beside the system's own. */
  disksMiB?: readonly number[];
  /** I/O operations a second that a data disk is held to, by its serial number (`data0`); the node is not told. */
  diskIopsSec?: Readonly<Record<string, number>>;
  /** Boots by firmware and boot loader from its own disk, so that its kernel and initramfs count. */
  bootsFromDisk?: boolean;
}

export interface ClusterSpec {
  id: string;
  /** Fencing token of the lease: every act on the nodes carries it, and is refused once another one has them. */
  generation: number;
  nodes: readonly string[];
  /** By node name; a node that is not in it gets the backend's usual. */
  hardware?: Readonly<Record<string, NodeHardware>>;
  /** Layers from the bottom: `os` first. */
  layers: readonly LayerRef[];
  /** Public keys (`ssh-ed25519 AAAA... comment`) that root on every node accepts. */
  authorizedKeys: readonly string[];
}

/** A backend's cluster. */
export interface DriverCluster {
  readonly id: string;
  readonly nodes: readonly NodeDriver[];
  /** The generation of the lease that this handle acts for; refused with IB_LEASE_CONFLICT once another has the cluster. */
  readonly generation: number;
  /** Hash of the package manifest of the image that the nodes run. */
  readonly imageHash: string;
  /** argv that runs a program inside the cluster's network, for controller-side tools such as Ansible. */
  networkCommand(argv: readonly string[]): readonly string[];
  /** Everything off and gone, read back. */
  destroy(): Promise<void>;
}

/** What a sweep found and did, one sentence each. */
export interface SweepReport {
  removed: string[];
  /** What could not be removed, and why. */
  failed: string[];
}

/** What was read back of one node after its cluster was taken down: the proof behind a clean record. */
export interface CleanEvidence {
  node: string;
  /** How it was cleaned, e.g. `container-destroyed`. */
  method: string;
  /** True if nothing of the node was found: every `found` below is null. */
  isClean: boolean;
  /** Each part that was looked for, and what was found of it (null: nothing). */
  parts: { what: string; found: string | null }[];
  /** Of the image that the node ran, where the backend still knows it. */
  imageHash: string | null;
  /** The generation that had the node last, where the backend still knows it. */
  generation: number | null;
  /** The SSH host key that the node had, which no later one may have. */
  hostKey: string | null;
  /** The last boot that was seen before the node was switched off. */
  lastBootId: string | null;
}

/** Whether the backend could make a node now. */
export type ProbeResult = { ok: true } | { ok: false; code: string; message: string };

export interface Backend {
  readonly name: string;
  /** What its nodes are, which a task may ask for (`environment.type`, `bmc`). */
  readonly offers: { nodes: 'container' | 'vm' | 'metal'; bmc: boolean };
  /** How long its nodes may take from power-on to SSH. Absent: 120 000. */
  readonly readyTimeoutMs?: number;
  /** How long one login to a node that runs may take before the node is said not to answer. Absent: 20 000. */
  readonly loginTimeoutMs?: number;
  /** Makes (or finds in the cache) the image of these layers; progress goes to `io`. Returns its hash. */
  prepareImage(layers: readonly LayerRef[], io: IoHost, signal?: AbortSignal): Promise<string>;
  /** Fresh nodes, powered on. Ends when they were started, not when they answer. */
  create(spec: ClusterSpec, journal: Journal, io: IoHost, signal?: AbortSignal): Promise<DriverCluster>;
  /**
   * The handle on a cluster that this or another process made, with the generation that has it now.
   * @throws InfrabedError IB_CLUSTER_UNKNOWN.
   */
  open(clusterId: string, journal: Journal): Promise<DriverCluster>;
  /**
   * Gives the cluster to a generation: whoever had it before can do nothing to it any more, and nothing that they began
   * is still going on when this ends. The nodes run on. Where there is no such cluster, an older generation cannot make
   * it either. Doing it again changes nothing.
   * @throws InfrabedError IB_LEASE_CONFLICT when a newer generation has it, IB_TIMEOUT when what was begun does not end.
   */
  fence(clusterId: string, generation: number): Promise<void>;
  /** Looks for everything that a cluster's nodes could have left; for after `destroy` or `sweep`. Changes nothing. */
  proveClean(clusterId: string, nodes: readonly string[]): Promise<CleanEvidence[]>;
  /** Tries what making a node takes, and leaves nothing. Never throws but for the signal. */
  probe(signal?: AbortSignal): Promise<ProbeResult>;
  /**
   * Removes every remnant of clusters not in `keep`. Touches nothing that infrabed did not make. A function is asked
   * after the clusters were listed, so that one made meanwhile is never taken for a remnant.
   */
  sweep(keep: ReadonlySet<string> | (() => Promise<ReadonlySet<string>>)): Promise<SweepReport>;
}
