/** What a trial is given, what it holds while it runs, and what it leaves. */
import type { Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { SwitchedJournal } from '../../core/journal.js';
import type { Settings } from '../../core/settings.js';
import type { BundleWriter } from '../../record/bundle/writer.js';
import type { DriftFile, Manifest, PhaseName } from '../../record/bundle/schema.js';
import type { SiteKey } from '../../record/ledger/site-key.js';
import type { LedgerWriter } from '../../record/ledger/writer.js';
import type { Store } from '../../record/store/store.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';
import type { OwnedCluster } from '../../testbed/cluster/create.js';
import type { Backend } from '../../testbed/driver/driver.js';
import type { NodeFacts } from '../../testbed/facts/facts.js';
import type { Lease } from '../../testbed/lease/lease.js';
import type { CleanProof } from '../../testbed/node/clean-proof.js';
import type { DriftChange } from '../drift/drift.js';
import type { CheckerMap, Gate } from '../gate/checker.js';
import type { RebootResult } from '../gate/reboot.js';
import type { ToolGuard } from '../gate/tool-guard.js';
import type { WindowWatch } from '../gate/window.js';
import type { TaskPackage } from '../task/schema.js';
import type { UnitSnapshot } from './close-nodes.js';
import type { PhaseRunner } from './phase-runner.js';
import type { Workloads } from './workload.js';

/** What every trial of this controller shares. */
export interface TrialEnvironment {
  stateDir: string;
  store: Store;
  /** Id of this controller in the store. */
  controller: string;
  backend: Backend;
  checkers: CheckerMap;
  clock: Clock;
  io: IoHost;
  siteKey: SiteKey;
  /** Of infrabed. */
  version: string;
  /** Who is asking: owner of a lease that a trial takes for itself. */
  owner: string;
  /** The same with the role, for a lease that a person reserved. */
  actor: Actor;
  settings: Settings;
  /** What this process holds at the moment, one noun phrase each: named when a person leaves at once. */
  held: Set<string>;
}

export interface TrialRequest {
  task: TaskPackage;
  admitted: boolean;
  agent: string;
  attempt: number;
  network: 'none' | 'host';
  /** Leave the cluster running afterwards, for a person to look at. */
  keep: boolean;
  /** Fault-free control: bootstrap runs with INFRABED_FAULT=none, and no drift is subtracted. */
  control: boolean;
  /** A person's lease whose nodes are to be used, instead of one of the trial's own. */
  lease?: string;
  /** Further read-only paths for the agent's program. */
  agentPaths: readonly string[];
  signal: AbortSignal;
  /** Called when the agent's window is about to open: for admission's search for traces. */
  beforeAgent?: (cluster: Cluster) => Promise<void>;
}

export interface TrialResult {
  trial: string;
  /** Folder of the bundle; whole only when `manifest` is there. */
  bundle: string;
  manifest: Manifest | undefined;
  ending: Manifest['ending'];
  error: unknown;
  timings: Partial<Record<PhaseName, number>>;
  /** Changes seen at any gate: what a control trial is recorded for. */
  changes: readonly DriftChange[];
}

/** What goes on beside the gates from before the fault until after the last of them. */
export interface Background {
  window: WindowWatch;
  workloads: Workloads;
  /** Epoch milliseconds. */
  openedAt: number;
}

/** A trial under way. Fields that a phase fills are optional until it has. */
export interface Trial {
  readonly id: string;
  readonly nonce: string;
  /** What made its nodes; whoever goes on with the trial may make new ones with another. */
  readonly backendName: string;
  readonly startedAt: number;
  readonly environment: TrialEnvironment;
  /** Its signal is that of the request, and aborts too when the lease is over. */
  readonly request: TrialRequest;
  readonly leaseOver: AbortController;
  readonly phases: PhaseRunner;
  readonly bundle: BundleWriter;
  readonly ledger: LedgerWriter;
  /** Leads to the ledger until that is sealed; cleaning comes after and is in the store. */
  readonly journal: SwitchedJournal;
  /** Names of the nodes that the agent can reach. */
  readonly agentNodes: readonly string[];
  lease?: Lease;
  /** Store names of the nodes in the order of the task's: all of the trial's own lease, or the first of a person's. */
  nodes: readonly string[];
  /** Set before anything of the cluster is made. */
  clusterBegun?: boolean;
  owned?: OwnedCluster;
  /** By store name, once the cluster is gone. */
  proofs?: ReadonlyMap<string, CleanProof>;
  background?: Background;
  baseline: Map<string, NodeFacts>;
  units: Map<string, UnitSnapshot>;
  /** Compares the tools of nodes that have no pristine programs; from the opening of the window on. */
  guard?: ToolGuard;
  /** Set where a controller that died had cycled all nodes of the reboot gate already: they are not cycled again. */
  rebooted?: readonly RebootResult[];
  drift: DriftFile;
  gateSeconds: Partial<Record<Gate | 'window', number>>;
  timedOut: boolean;
  agentExit: Manifest['agentExit'];
  coverage: string[];
  /** How gathering ended, once it has. */
  outcome?: { ending: Manifest['ending']; error: unknown };
  /** bundle.json to the byte, once its hash is on record. */
  manifestText?: string;
  /** Ended in reverse order at the close of the trial, whatever happened. */
  cleanups: { what: string; end: () => Promise<void> }[];
}

/** The cluster of a trial that has one by now. */
export function clusterOf(trial: Trial): Cluster {
  if (trial.owned === undefined) throw new Error('the trial has no cluster yet');
  return trial.owned.cluster;
}

/** How the trial's agent is called in lists and in the bundle. */
export function labelOf(request: TrialRequest): string {
  return request.control ? 'control' : request.agent;
}
