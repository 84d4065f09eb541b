/** What SQLite complains about, said so that a person knows what to do. */
import { InfrabedError, isInfrabedError, messageOf, type ErrorCode } from '../../core/errors.js';

interface Complaint {
  code: ErrorCode;
  sentence: string;
  hint: string;
}

/** By the beginning of SQLite's own code (https://www.sqlite.org/rescode.html), first match first. */
const complaints: readonly (readonly [string, Complaint])[] = [
  [
    'SQLITE_FULL',
    {
      code: 'IB_DISK_FULL',
      sentence: 'cannot grow: the disk is full',
      hint: 'Free space in the state folder; nothing of this statement was kept.',
    },
  ],
  [
    'SQLITE_BUSY',
    {
      code: 'IB_STORE',
      sentence: 'stayed locked by another process',
      hint: 'See who holds it (fuser -v FILE) and try again when that is done.',
    },
  ],
  [
    'SQLITE_LOCKED',
    {
      code: 'IB_STORE',
      sentence: 'stayed locked by another process',
      hint: 'See who holds it (fuser -v FILE) and try again when that is done.',
    },
  ],
  [
    'SQLITE_CORRUPT',
    {
      code: 'IB_STORE',
      sentence: 'is damaged',
      hint: 'Move it away; bundles hold all of their trials, and "infrabed sweep" frees what the lost leases held.',
    },
  ],
  [
    'SQLITE_NOTADB',
    {
      code: 'IB_STORE',
      sentence: 'is not a database',
      hint: 'Move the file away, or point INFRABED_STATE_DIR at another folder.',
    },
  ],
  [
    'SQLITE_READONLY',
    {
      code: 'IB_STORE',
      sentence: 'may not be written to',
      hint: 'Check owner and mode of the state folder, or run as its owner.',
    },
  ],
  [
    'SQLITE_PERM',
    {
      code: 'IB_STORE',
      sentence: 'may not be written to',
      hint: 'Check owner and mode of the state folder, or run as its owner.',
    },
  ],
  [
    'SQLITE_AUTH',
    {
      code: 'IB_STORE',
      sentence: 'may not be written to',
      hint: 'Check owner and mode of the state folder, or run as its owner.',
    },
  ],
  [
    'SQLITE_CANTOPEN',
    {
      code: 'IB_STORE',
      sentence: 'cannot be opened',
      hint: 'Check owner and mode of the state folder, or name another in INFRABED_STATE_DIR.',
    },
  ],
  [
    'SQLITE_IOERR',
    {
      code: 'IB_STORE',
      sentence: 'cannot be read or written',
      hint: 'Look for disk errors (dmesg); network file systems do not work for the state folder.',
    },
  ],
];

/** The InfrabedError for whatever the database threw; an InfrabedError stays as it is. */
export function storeError(error: unknown, path: string): InfrabedError {
  if (isInfrabedError(error)) return error;
  const sqliteCode = (error as { code?: unknown } | null)?.code;
  const text = typeof sqliteCode === 'string' ? sqliteCode : '';
  const found = complaints.find(([prefix]) => text.startsWith(prefix))?.[1];
  const details = { path, sqliteCode: text || null };
  if (found === undefined) {
    return new InfrabedError('IB_STORE', `The store ${path} refused: ${messageOf(error)}.`, {
      cause: error,
      details,
    });
  }
  return new InfrabedError(found.code, `The store ${path} ${found.sentence} (${messageOf(error)}).`, {
    hint: found.hint,
    cause: error,
    details,
  });
}
