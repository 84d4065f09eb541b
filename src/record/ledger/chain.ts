/**
 * How a record becomes a line and how the line is held to it. The last member of a line is always its hash, over
 * the exact bytes before it: so not even a blank or a repeated key can be slipped in.
 */
import { hash as digest } from 'node:crypto';
import { canonicalJson } from '../../core/ids.js';
import { ledgerRecordSchema, type LedgerRecord } from './record.js';

/** What the first record names as the one before. */
export const firstPrev = '0'.repeat(64);

/** `,"hash":"` + 64 digits + `"}` */
const tailLength = 9 + 64 + 2;

/** The line of a record, without its newline, and its hash. */
export function toLine(record: Omit<LedgerRecord, 'hash'>): { line: string; hash: string } {
  const body = canonicalJson(record);
  const hash = digest('sha256', body, 'hex');
  return { line: `${body.slice(0, -1)},"hash":"${hash}"}`, hash };
}

/** What one line turned out to be. `computed` is the hash that its content really has. */
export type ReadLine =
  | { ok: true; record: LedgerRecord }
  | { ok: false; problem: string; seq: number | null; computed: string | null; record: LedgerRecord | null };

/** Reads one line (no newline) and holds its content against its own hash. Changes the buffer while it does. */
export function readLine(bytes: Buffer): ReadLine {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    return { ok: false, problem: 'altered: this line is not JSON', seq: null, computed: null, record: null };
  }
  const parsed = ledgerRecordSchema.safeParse(value);
  if (!parsed.success) {
    const seq = (value as { seq?: unknown } | null)?.seq;
    const where = parsed.error.issues[0]?.path.join('.') ?? '';
    const problem = `altered: this line is no ledger record${where === '' ? '' : ` (${where})`}`;
    return { ok: false, problem, seq: typeof seq === 'number' ? seq : null, computed: null, record: null };
  }
  const computed = hashOfContent(bytes);
  if (computed === parsed.data.hash) return { ok: true, record: parsed.data };
  const problem = 'altered: the content of this record does not have the hash that it carries';
  return { ok: false, problem, seq: parsed.data.seq, computed, record: parsed.data };
}

/** The hash over everything but the hash member, or null when the line does not end with one. */
function hashOfContent(bytes: Buffer): string | null {
  const start = bytes.length - tailLength;
  if (start < 1 || bytes.toString('latin1', start, start + 9) !== ',"hash":"') return null;
  if (bytes.toString('latin1', bytes.length - 2) !== '"}') return null;
  bytes[start] = 0x7d; // The comma before the hash becomes the brace that closes the content.
  return digest('sha256', bytes.subarray(0, start + 1), 'hex');
}
