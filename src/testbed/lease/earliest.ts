/** When a request could begin, as the calendar and the states of the nodes stand. */
import type { Calendar, StartQuery } from './calendar.js';
import type { Eligible } from './eligible.js';

/** What a request asks of the calendar: a node that is not ready now counts from when it should have been cleaned. */
export function startQuery(
  { usable }: Pick<Eligible, 'usable'>,
  span: { from: number; now: number; needMs: number; gapMs: number },
): StartQuery {
  const { from, now, needMs, gapMs } = span;
  const late = usable.filter((node) => !node.isReady).map((node) => node.name);
  return {
    nodes: usable.map((node) => node.name),
    from,
    needMs,
    // By the calendar a node may be free whose lease is overdue, or that is being cleaned.
    notBefore: new Map(late.map((name) => [name, now + Math.max(gapMs, 1)])),
  };
}

/** The earliest start from now on, or null when there are never so many nodes. */
export function earliestStart(
  calendar: Calendar,
  choice: Eligible,
  now: number,
  needMs: number,
  gapMs: number,
): number | null {
  return calendar.earliest(choice.count, startQuery(choice, { from: now, now, needMs, gapMs }));
}
