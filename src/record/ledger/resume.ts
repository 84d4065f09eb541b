/** Where an existing ledger ends: its last whole record, and how much of a torn one stands behind it. */
import { fstatSync, readSync } from 'node:fs';
import { InfrabedError } from '../../core/errors.js';
import { firstPrev, readLine } from './chain.js';

export interface LedgerEnd {
  count: number;
  lastHash: string;
  /** Length of the whole records. */
  sizeBytes: number;
  /** Length of what a crash left behind them. */
  tornBytes: number;
}

/** @throws InfrabedError IB_LEDGER_INVALID when the last whole record is damaged or of another trial. */
export function findEnd(descriptor: number, file: string, trial: string): LedgerEnd {
  const total = fstatSync(descriptor).size;
  const tail = readTail(descriptor, total);
  const lastNewline = tail.lastIndexOf(0x0a);
  if (lastNewline === -1) return { count: 0, lastHash: firstPrev, sizeBytes: 0, tornBytes: total };
  const start = tail.lastIndexOf(0x0a, lastNewline - 1) + 1;
  const line = readLine(Buffer.from(tail.subarray(start, lastNewline)));
  if (!line.ok) {
    throw new InfrabedError('IB_LEDGER_INVALID', `The ledger ${file} cannot be continued: ${line.problem}.`, {
      hint: 'Keep it as it is and look at it with "infrabed ledger verify".',
    });
  }
  if (line.record.trial !== trial) {
    throw new InfrabedError(
      'IB_LEDGER_INVALID',
      `The ledger ${file} is of ${line.record.trial}, not of ${trial}.`,
    );
  }
  const tornBytes = tail.length - lastNewline - 1;
  return { count: line.record.seq + 1, lastHash: line.record.hash, sizeBytes: total - tornBytes, tornBytes };
}

/** The end of the file, from at least the newline before its last whole line. */
function readTail(descriptor: number, total: number): Buffer {
  for (let length = Math.min(total, 65_536); ; length = Math.min(total, length * 4)) {
    const tail = readExactly(descriptor, length, total - length);
    const lastNewline = tail.lastIndexOf(0x0a);
    const wholeLine = lastNewline > 0 && tail.lastIndexOf(0x0a, lastNewline - 1) !== -1;
    if (wholeLine || length === total) return tail;
  }
}

function readExactly(descriptor: number, length: number, position: number): Buffer {
  const buffer = Buffer.alloc(length);
  let done = 0;
  while (done < length) {
    const got = readSync(descriptor, buffer, done, length - done, position + done);
    if (got === 0) break;
    done += got;
  }
  return buffer.subarray(0, done);
}
