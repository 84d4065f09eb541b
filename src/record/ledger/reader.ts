/** Reads the records of a ledger, for reports; whether they may be believed is the business of verify. */
import { messageOf, InfrabedError } from '../../core/errors.js';
import { linesOf } from './lines.js';
import { ledgerRecordSchema, type LedgerRecord } from './record.js';

/**
 * The records in the order of the file. A last line without an end is left out.
 * @throws InfrabedError IB_BUNDLE_INVALID with file, line and what was expected.
 */
export async function* readLedger(file: string): AsyncGenerator<LedgerRecord> {
  let number = 0;
  for await (const lines of linesOf(file)) {
    for (const line of lines) {
      number += 1;
      if (line.complete) yield toRecord(file, number, line.bytes.toString('utf8'));
    }
  }
}

function toRecord(file: string, number: number, text: string): LedgerRecord {
  try {
    return ledgerRecordSchema.parse(JSON.parse(text));
  } catch (error) {
    throw new InfrabedError('IB_BUNDLE_INVALID', `${file}:${String(number)}: not a ledger record.`, {
      hint: 'See what is wrong with "infrabed ledger verify".',
      details: { reason: messageOf(error) },
    });
  }
}
