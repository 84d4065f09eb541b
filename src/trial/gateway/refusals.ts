/** Refusals on record: the first of a kind at once, those that follow as counts, so that a flood is a few lines. */
import type { Clock } from '../../core/clock.js';
import type { Journal } from '../../core/journal.js';

/** What was refused. */
export type RefusalReason =
  | 'unknown-key'
  | 'unknown-user'
  | 'unsupported-authentication'
  | 'too-many-connections'
  | 'too-many-channels'
  | 'port-forwarding'
  | 'socket-forwarding'
  | 'agent-forwarding'
  | 'x11-forwarding'
  | 'channel-type'
  | 'second-command'
  | 'gatekeeper'
  | 'not-recorded'
  | 'protocol-error'
  | 'closed';

interface Tally {
  /** Refused since the last record. */
  count: number;
  recordedAt: number;
}

const intervalMs = 5000;

export class Refusals {
  total = 0;
  private readonly tallies = new Map<string, Tally>();
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly journal: Journal,
    private readonly clock: Clock,
    private readonly onError: (error: unknown) => void,
  ) {}

  /** `detail` goes on record with the first of a series. */
  note(node: string, reason: RefusalReason, detail: Record<string, unknown> = {}): void {
    this.total += 1;
    const key = `${node} ${reason}`;
    const tally = this.tallies.get(key);
    const now = this.clock.now();
    if (tally !== undefined && now - tally.recordedAt < intervalMs) {
      tally.count += 1;
      this.timer ??= setTimeout(() => this.flush(), intervalMs).unref();
      return;
    }
    const count = 1 + (tally?.count ?? 0);
    this.tallies.set(key, { count: 0, recordedAt: now });
    this.write(node, { reason, count, ...detail });
  }

  /** Writes the counts that are still open. */
  flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    for (const [key, tally] of this.tallies) {
      if (tally.count === 0) continue;
      const [node = '', reason = ''] = key.split(' ');
      const { count } = tally;
      tally.count = 0;
      tally.recordedAt = this.clock.now();
      this.write(node, { reason, count });
    }
  }

  private write(node: string, payload: Record<string, unknown>): void {
    try {
      this.journal.record({ kind: 'gateway.refused', actor: 'agent', node, payload });
    } catch (error) {
      this.onError(error);
    }
  }
}
