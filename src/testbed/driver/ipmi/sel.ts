/** The system event log: records as the BMC holds them, with what ipmitool reads from them (IPMI 2.0, section 31, 32.1). */
import { InfrabedError } from '../../../core/errors.js';
import type { SelEntry, SelInfo } from '../driver.js';
import { bytesOf, rawArgs, word16 } from './hex.js';

const recordBytes = 16;
export const selInfoArgs: readonly string[] = rawArgs([0x0a, 0x40]);

/** Get SEL Info (section 31.2). */
export function selInfoOf(stdout: string): SelInfo {
  const bytes = bytesOf(stdout, 14, 'Get SEL Info');
  return {
    entries: word16(bytes, 1),
    freeBytes: word16(bytes, 3),
    overflow: ((bytes[13] ?? 0) & 0x80) !== 0,
  };
}

/** All in one session, so that the log is read as it is at one time. `file` must not need quoting. */
export function selScript(file: string): string {
  const info = selInfoArgs.join(' ');
  return `echo before\n${info}\necho list\nsel writeraw ${file}\necho after\n${info}\n`;
}

/**
 * @throws InfrabedError IB_BMC when records are missing: the log was not read to its end.
 */
export function selEntriesOf(stdout: string, records: Uint8Array): SelEntry[] {
  const [, before = '', list = '', after = ''] = stdout.split(/^(?:before|list|after|end)\s*$/m);
  const least = Math.min(selInfoOf(before).entries, selInfoOf(after).entries);
  const count = records.length / recordBytes;
  if (!Number.isInteger(count) || count < least) {
    throw new InfrabedError(
      'IB_BMC',
      `Only ${String(Math.floor(count))} of ${String(least)} SEL entries came.`,
      {
        hint: 'Try again: another program may have had the log reserved.',
      },
    );
  }
  const texts = textsOf(list);
  return Array.from({ length: count }, (_none, index) =>
    entryOf(Buffer.from(records.subarray(index * recordBytes, (index + 1) * recordBytes)), texts),
  );
}

function entryOf(record: Buffer, texts: ReadonlyMap<number, { sensor: string; event: string }>): SelEntry {
  const id = record.readUInt16LE(0);
  const text = texts.get(id) ?? { sensor: '', event: '' };
  return { id, time: timeOf(record), ...text, raw: record.toString('hex') };
}

/** Types E0h and above have no time stamp (section 32.3); below 20000000h it counts from the BMC's start (section 37). */
function timeOf(record: Buffer): string | null {
  const type = record[2] ?? 0;
  const seconds = record.readUInt32LE(3);
  if (type >= 0xe0 || seconds < 0x20000000 || seconds === 0xffffffff) return null;
  return new Date(seconds * 1000).toISOString();
}

/** Lines of `sel list` with -c: number in hex, date, time, sensor, event, direction. */
function textsOf(list: string): Map<number, { sensor: string; event: string }> {
  const texts = new Map<number, { sensor: string; event: string }>();
  for (const line of list.split('\n')) {
    const [number = '', , , sensor, ...event] = line.split(',').map((field) => field.trim());
    if (sensor === undefined || !/^[0-9a-f]{1,4}$/.test(number)) continue;
    texts.set(Number.parseInt(number, 16), { sensor, event: event.filter((part) => part !== '').join(', ') });
  }
  return texts;
}
