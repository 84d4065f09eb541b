/** The tables of the store, as Kysely sees them. Times are epoch milliseconds; booleans are 0 or 1. */
import type { Generated } from 'kysely';

export interface SitesTable {
  name: string;
  /** JSON of the inventory file. */
  inventory: string;
}

export interface NodesTable {
  /** `local/n01`: site and node. */
  name: string;
  site: string;
  backend: string;
  /** enrolled | cleaning | available | leased | provisioning | active | quarantined | maintenance */
  state: string;
  /** Machine-readable fault of a quarantined node, or null. */
  fault: string | null;
  /** Lease that holds it, or null. */
  lease: string | null;
}

export interface LeasesTable {
  id: string;
  owner: string;
  purpose: string;
  /** Fencing token: strictly increasing over the whole store. */
  generation: number;
  starts_at: number;
  /** Half-open; null while it runs. */
  ends_at: number | null;
  /** active | ended */
  state: string;
  controller: string;
}

export interface ControllersTable {
  /** Instance id: pid, start time of the process and a random part. */
  id: string;
  pid: number;
  /** Field 22 of /proc/PID/stat: tells a recycled pid apart. */
  pid_start: number;
  started_at: number;
}

export interface ClustersTable {
  id: string;
  lease: string;
  backend: string;
  /** JSON list of layers. */
  layers: string;
  /** JSON list of {name, node, roles}. */
  nodes: string;
  /** 1: outlives its controller (`cluster up`, `--keep`). */
  kept: number;
  created_at: number;
}

export interface TrialsTable {
  id: string;
  task: string;
  agent: string;
  attempt: number;
  lease: string | null;
  controller: string;
  bundle: string;
  /** running | ended */
  state: string;
  outcome: string | null;
  reward: number | null;
  started_at: number;
  ended_at: number | null;
}

export interface PhasesTable {
  id: Generated<number>;
  trial: string;
  phase: string;
  /** begun | verified | failed */
  state: string;
  at: number;
  detail: string | null;
}

export interface ChecksTable {
  trial: string;
  check_id: string;
  gate: string;
  verdict: string;
  weight: number;
}

/** Proof that a node may be lent again: a node becomes available only together with such a row. */
export interface CleanRecordsTable {
  id: Generated<number>;
  node: string;
  /** Lease that was cleaned up after, or null. */
  lease: string | null;
  /** How it was cleaned, e.g. `container-destroyed`. */
  method: string;
  /** JSON of what was read back. */
  proof: string;
  at: number;
}

export interface Database {
  sites: SitesTable;
  nodes: NodesTable;
  leases: LeasesTable;
  controllers: ControllersTable;
  clusters: ClustersTable;
  trials: TrialsTable;
  phases: PhasesTable;
  checks: ChecksTable;
  clean_records: CleanRecordsTable;
}
