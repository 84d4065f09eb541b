/** The operations that a server has in hand: each ends when its caller has gone, all when the server ends. */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { InfrabedError } from '../../core/errors.js';

export class RunningOperations {
  private readonly aborts = new Set<AbortController>();
  private readonly ends = new Set<Promise<unknown>>();
  private reason: InfrabedError | undefined;

  /** Runs `work` with a signal that aborts when the connection of `response` closes before the answer is through. */
  async run<T>(response: ServerResponse, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const abort = new AbortController();
    if (this.reason !== undefined) abort.abort(this.reason);
    const gone = (): void => {
      if (!response.writableFinished) abort.abort(new InfrabedError('IB_CANCELLED', 'The caller has gone.'));
    };
    response.once('close', gone);
    this.aborts.add(abort);
    const ended = work(abort.signal);
    // An operation is over when it has wound down and its answer is through, whichever is later.
    const through = response.closed ? Promise.resolve() : once(response, 'close');
    this.remember(Promise.allSettled([ended, through]));
    try {
      return await ended;
    } finally {
      this.aborts.delete(abort);
    }
  }

  /** Asks all to end, from now on also those that come, and waits until they have. */
  async endAll(reason: InfrabedError): Promise<void> {
    this.reason = reason;
    for (const abort of this.aborts) abort.abort(reason);
    while (this.ends.size > 0) await Promise.all(this.ends);
  }

  private remember(end: Promise<unknown>): void {
    const kept: Promise<unknown> = end.then(() => this.ends.delete(kept));
    this.ends.add(kept);
  }
}
