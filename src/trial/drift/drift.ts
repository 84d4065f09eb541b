/** The difference between two recordings of facts, as a list of changes a person can read. */

/** One thing that is otherwise than before. */
export interface DriftChange {
  node: string;
  /** Kind of fact: `file`, `package`, `unit`, `user`, `group`, `authorized-key`, `sudoers`, `cron`, `timer`, `mount`, `socket`, `firewall`, `sysctl`, `route`, `link`. */
  kind: string;
  /** What it is about: a path, a unit name, `tcp/0.0.0.0:22`. Globs of allow-lists match `kind:subject`. */
  subject: string;
  change: 'added' | 'removed' | 'changed';
  before: string | null;
  after: string | null;
}
