/** The tables of the store, as Kysely sees them. Times are epoch milliseconds; booleans are 0 or 1. */
import type { Generated } from 'kysely';

export interface SitesTable {
  name: string;
  /** JSON of the parsed inventory file; secrets are references. */
  inventory: string;
  added_at: Generated<number>;
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
  /** JSON of the node's inventory entry (SiteNode). */
  spec: Generated<string>;
  /** Failures in a row: provisioning, cleaning, health probes. */
  failures: Generated<number>;
  /** 1: no longer in its inventory, so never lent. */
  retired: Generated<number>;
  /** JSON of a person's hold: {by, why, at}; only with `maintenance`. */
  hold: Generated<string | null>;
  /** When it came into its state. */
  since: Generated<number>;
  /** When its health is to be probed next, or null. */
  probe_at: Generated<number | null>;
  /** Its newest clean record: a node becomes `available` only together with a new one. */
  clean_record: Generated<number | null>;
  /** Mark `calendar` at the last change of its bookings; the database counts it. */
  calendar_revision: Generated<number>;
}

export interface LeasesTable {
  id: string;
  owner: string;
  purpose: string;
  site: string;
  /** JSON: {count, tags, backend} or {names}. */
  wanted: string;
  /** 1: taken by a command for itself, and given back when that ends; 0: a person's reservation. */
  own: number;
  priority: number;
  /** Fencing token: unique over the whole store; a new one each time a controller takes the lease in hand. */
  generation: number;
  /** Half-open interval [starts_at, ends_at). */
  starts_at: number;
  ends_at: number;
  /** When it really ended, or null. */
  ended_at: number | null;
  /** released | cancelled | expired | displaced | quarantined, or null. */
  end_reason: string | null;
  /** reserved | active | ended */
  state: string;
  /** The controller in whose hands it is, or null. */
  controller: string | null;
  created_at: number;
}

/** One node of one lease. The database refuses two whose [starts_at, busy_until) overlap. */
export interface BookingsTable {
  lease: string;
  node: string;
  starts_at: number;
  ends_at: number;
  /** End of the cleaning gap. */
  busy_until: number;
  /** 1: asked for by name, or the lease has begun; 0: may be bound to another node. */
  pinned: number;
}

export interface ControllersTable {
  /** Instance id: pid, start time of the process and a random part. */
  id: string;
  pid: number;
  /** Field 22 of /proc/PID/stat: tells a recycled pid apart. */
  pid_start: number;
  started_at: number;
  /** Boot id of the host it runs on: only there does its pid mean anything. */
  host: Generated<string>;
  heartbeat_at: Generated<number>;
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
  owner: Generated<string>;
  /** JSON of what was asked for, so that another controller can go on. */
  request: Generated<string | null>;
  /** JSON of what was reached at the end of the last phase. */
  progress: Generated<string | null>;
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

export interface UsersTable {
  name: string;
  /** user | operator */
  role: string;
  /** SHA-256 of the token: 32 random bytes, so that a slow hash would add nothing. */
  token_hash: string;
  created_at: number;
  revoked_at: number | null;
}

/** Every change of a node, lease, site or user, with who made it. */
export interface ChangesTable {
  id: Generated<number>;
  at: number;
  /** Name of the actor. */
  actor: string;
  /** Dotted: `node.quarantined`, `lease.extended`. */
  kind: string;
  /** Name or id of what was changed. */
  subject: string;
  /** JSON. */
  detail: string;
}

/** What has to be told to the hook and the webhook, until it was. */
export interface NoticesTable {
  id: string;
  kind: string;
  subject: string;
  /** JSON. */
  payload: string;
  created_at: number;
  /** JSON list of the channels that have it: hook, webhook. */
  told: string;
  attempts: number;
  next_try_at: number;
  delivered_at: number | null;
  error: string | null;
}

/** Numbers that only grow: `calendar` (revisions of bookings), `clock` (latest time seen). */
export interface MarksTable {
  key: string;
  value: number;
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
  bookings: BookingsTable;
  users: UsersTable;
  changes: ChangesTable;
  notices: NoticesTable;
  marks: MarksTable;
}
