/**
 * Where drivers report what they do to a node. A trial binds it to its ledger.
 * Writing comes first: an action whose intent could not be written is not done.
 */

export interface JournalEntry {
  /** Dotted kind, e.g. `power.cycle`, `node.exec`, `image.lay`. */
  kind: string;
  /** Who acts: `controller`, `agent`, `workload`, `person:NAME`. */
  actor: string;
  /** Name of the node, or null for the whole cluster. */
  node: string | null;
  /** JSON-able fields. Secrets are redacted by whoever binds the journal. */
  payload: Record<string, unknown>;
}

export interface Journal {
  /** Returns once the record is accepted in order; `flush` makes it durable. */
  record(entry: JournalEntry): void;
  flush(): Promise<void>;
}

export const nullJournal: Journal = { record: () => undefined, flush: () => Promise.resolve() };

/** A journal whose target can change, e.g. once a ledger is sealed and nothing may follow in it. */
export class SwitchedJournal implements Journal {
  private target: Journal = nullJournal;

  switchTo(target: Journal): void {
    this.target = target;
  }

  record(entry: JournalEntry): void {
    this.target.record(entry);
  }

  flush(): Promise<void> {
    return this.target.flush();
  }
}
