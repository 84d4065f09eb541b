/** A lease in the hands of this process: what it says, and the signal by which its work learns that it is over. */
import { InfrabedError } from '../../core/errors.js';
import type { Fence } from '../node/transition.js';
import type { LeaseRow } from './rows.js';

export interface Lease extends Fence {
  readonly id: string;
  /** Fencing token: greater than that of every lease, and of every taking in hand, before. */
  readonly generation: number;
  /** `local/n01`, ... */
  readonly nodes: readonly string[];
  readonly owner: string;
  readonly purpose: string;
  readonly startsAt: number;
  /** As it was when it was taken in hand: an extension moves it in the store. */
  readonly endsAt: number;
  /** True: taken by a command for itself, to be given back (releaseLease). False: a person's, to be put down (putDownLease). */
  readonly own: boolean;
  /**
   * Aborts with IB_LEASE_CONFLICT once the lease is known to be lost, and when it is given back; with IB_LEASE_ENDED
   * when its end has come.
   */
  readonly signal: AbortSignal;
}

const lostBy = new WeakMap<AbortSignal, AbortController>();

export function handle(row: LeaseRow, nodes: readonly string[]): Lease {
  const loss = new AbortController();
  lostBy.set(loss.signal, loss);
  const { id, generation, owner, purpose, starts_at: startsAt, ends_at: endsAt } = row;
  return { id, generation, nodes, owner, purpose, startsAt, endsAt, own: row.own === 1, signal: loss.signal };
}

/** Tells whoever works under this lease that it is over. Only a handle has a signal; a bare fence has nobody to tell. */
export function lose(lease: Fence, why: string | InfrabedError): void {
  const { signal } = lease as Partial<Lease>;
  if (signal === undefined) return;
  const error = typeof why === 'string' ? new InfrabedError('IB_LEASE_CONFLICT', why) : why;
  lostBy.get(signal)?.abort(error);
}
