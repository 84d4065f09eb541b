/** Times as they travel: ISO 8601. Inside, times are epoch milliseconds. */
import { z } from 'zod';

/** With its zone: a time without one would mean another moment on another machine. */
export const instant = z.iso.datetime({ offset: true });

/** Epoch milliseconds of an `instant`. */
export function epochMs(text: string): number {
  return Date.parse(text);
}

/** The `instant` in UTC of epoch milliseconds. */
export function isoUtc(atMs: number): string {
  return new Date(atMs).toISOString();
}

export function isoOrNull(atMs: number | null): string | null {
  return atMs === null ? null : isoUtc(atMs);
}
