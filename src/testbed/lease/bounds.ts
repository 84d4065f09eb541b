/** What a reservation may ask for at all: durations and starts, checked against the settings. */
import type { Settings } from '../../core/settings.js';
import { invalid } from './eligible.js';
import { hours, iso } from './ground.js';

/** @throws InfrabedError IB_LEASE_INVALID. */
export function checkDuration(durationMs: number): void {
  if (Number.isSafeInteger(durationMs) && durationMs > 0) return;
  throw invalid(
    `A lease of ${String(durationMs)} ms cannot be: it has to last longer than nothing.`,
    'Name a duration like 90m, 4h or 2d.',
  );
}

/** @throws InfrabedError IB_LEASE_INVALID when it is longer than the settings allow. */
export function checkLength(durationMs: number, settings: Settings): void {
  checkDuration(durationMs);
  const longestMs = settings.lease.longest_sec * 1000;
  if (durationMs <= longestMs) return;
  throw invalid(
    `A lease of ${hours(durationMs)} is too long: the longest is ${hours(longestMs)}.`,
    'Ask for less, or let an operator raise lease.longest_sec in settings.yaml.',
  );
}

/** @throws InfrabedError IB_LEASE_INVALID for a start in the past, or beyond the horizon. */
export function checkStart(startsAt: number, now: number, settings: Settings): void {
  if (!Number.isSafeInteger(startsAt))
    throw invalid(`${String(startsAt)} is no time.`, 'Give epoch milliseconds.');
  if (startsAt < now) {
    throw invalid(
      `The start ${iso(startsAt)} is in the past (it is ${iso(now)}).`,
      'Name a time to come, or none to begin at once.',
    );
  }
  const horizon = now + settings.lease.horizon_sec * 1000;
  if (startsAt <= horizon) return;
  throw invalid(
    `The start ${iso(startsAt)} is too far ahead: reservations begin before ${iso(horizon)}.`,
    'Name an earlier time, or let an operator raise lease.horizon_sec in settings.yaml.',
  );
}
