/** Identifiers that sort by time of creation, and content hashes. */
import { createHash, randomBytes } from 'node:crypto';

/**
 * A new id: `prefix-YYYYMMDD-HHMMSS-xxxx` in UTC, with four random hex digits.
 * Short enough for socket paths, readable enough to say aloud.
 */
export function newId(prefix: string, nowMs: number): string {
  const stamp = new Date(nowMs).toISOString().replace(/[-:]/g, '').slice(0, 15).replace('T', '-');
  return `${prefix}-${stamp}-${randomBytes(2).toString('hex')}`;
}

/** Lower-case hex SHA-256. */
export function sha256(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

/** JSON with object keys sorted, so that equal values hash equally. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : inner,
  );
}
