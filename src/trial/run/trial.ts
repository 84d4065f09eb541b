/** What a trial is given, what it holds while it runs, and what it leaves. */
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { SwitchedJournal } from '../../core/journal.js';
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
import type { DriftChange } from '../drift/drift.js';
import type { CheckerMap, Gate } from '../gate/checker.js';
import type { ToolGuard } from '../gate/tool-guard.js';
import type { TaskPackage } from '../task/schema.js';
import type { UnitSnapshot } from './close-nodes.js';
import type { PhaseRunner } from './phase-runner.js';

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
  /** Who is asking: owner of the lease. */
  owner: string;
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

/** A trial under way. Fields that a phase fills are optional until it has. */
export interface Trial {
  readonly id: string;
  readonly nonce: string;
  readonly startedAt: number;
  readonly environment: TrialEnvironment;
  readonly request: TrialRequest;
  readonly phases: PhaseRunner;
  readonly bundle: BundleWriter;
  readonly ledger: LedgerWriter;
  /** Leads to the ledger until that is sealed; cleaning comes after and is in the store. */
  readonly journal: SwitchedJournal;
  /** Names of the nodes that the agent can reach. */
  readonly agentNodes: readonly string[];
  lease?: Lease;
  owned?: OwnedCluster;
  baseline: Map<string, NodeFacts>;
  units: Map<string, UnitSnapshot>;
  /** Compares the tools of nodes that have no pristine programs; from the opening of the window on. */
  guard?: ToolGuard;
  drift: DriftFile;
  gateSeconds: Partial<Record<Gate | 'window', number>>;
  timedOut: boolean;
  agentExit: Manifest['agentExit'];
  coverage: string[];
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
