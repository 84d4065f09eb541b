/** Time as a dependency: epoch milliseconds now, and a sleep that obeys an AbortSignal. */
import { setTimeout as delay } from 'node:timers/promises';
import { InfrabedError, isInfrabedError } from './errors.js';

export interface Clock {
  /** Epoch milliseconds. */
  now(): number;
  /** Resolves after `durationMs`; rejects with IB_CANCELLED when the signal aborts first. */
  sleep(durationMs: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  async sleep(durationMs, signal) {
    throwIfAborted(signal);
    try {
      await delay(durationMs, undefined, signal ? { signal } : undefined);
    } catch (error) {
      throwIfAborted(signal);
      throw error;
    }
  },
};

/**
 * Throws the signal's own InfrabedError reason where it has one, IB_CANCELLED otherwise.
 */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (!signal?.aborted) return;
  if (isInfrabedError(signal.reason)) throw signal.reason;
  throw new InfrabedError('IB_CANCELLED', 'The operation was cancelled.', { cause: signal.reason });
}

/** A signal that aborts with IB_TIMEOUT after `durationMs`, or with `parent`, whichever is first. */
export function deadline(
  durationMs: number,
  what: string,
  parent?: AbortSignal,
): { signal: AbortSignal; clear(): void } {
  const controller = new AbortController();
  const timer = setTimeout(() => {
    controller.abort(new InfrabedError('IB_TIMEOUT', `${what} took longer than ${String(durationMs)} ms.`));
  }, durationMs);
  const onParent = (): void => {
    controller.abort(parent?.reason);
  };
  if (parent?.aborted) onParent();
  else parent?.addEventListener('abort', onParent, { once: true });
  return {
    signal: controller.signal,
    clear() {
      clearTimeout(timer);
      parent?.removeEventListener('abort', onParent);
    },
  };
}

/**
 * Polls `probe` until it returns something other than undefined.
 * @throws InfrabedError IB_TIMEOUT after `timeoutMs`, naming `what`.
 */
export async function waitFor<T>(
  what: string,
  probe: () => Promise<T | undefined> | T | undefined,
  options: { timeoutMs: number; intervalMs?: number; signal?: AbortSignal; clock?: Clock },
): Promise<T> {
  const clock = options.clock ?? systemClock;
  const end = clock.now() + options.timeoutMs;
  for (;;) {
    throwIfAborted(options.signal);
    const value = await probe();
    if (value !== undefined) return value;
    if (clock.now() >= end) {
      throw new InfrabedError('IB_TIMEOUT', `Waited ${String(options.timeoutMs)} ms in vain for ${what}.`);
    }
    await clock.sleep(options.intervalMs ?? 50, options.signal);
  }
}
