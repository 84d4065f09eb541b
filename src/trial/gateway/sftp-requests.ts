/** Numbers and fields of SFTP version 3 (draft-ietf-secsh-filexfer-02) and of OpenSSH's extensions to it. */
import type { Reader } from './messages.js';

/** Requests that are looked at. */
export const request = {
  OPEN: 3,
  CLOSE: 4,
  READ: 5,
  WRITE: 6,
  SETSTAT: 9,
  FSETSTAT: 10,
  OPENDIR: 11,
  REMOVE: 13,
  MKDIR: 14,
  RMDIR: 15,
  RENAME: 18,
  SYMLINK: 20,
  EXTENDED: 200,
} as const;
export const response = { STATUS: 101, HANDLE: 102, DATA: 103 } as const;

export const openFlags = { read: 1, write: 2, append: 4, create: 8, truncate: 16, exclusive: 32 } as const;

export const statusNames = [
  'ok',
  'end of file',
  'no such file',
  'permission denied',
  'failure',
  'bad message',
];

/** One request that changes or lists something, other than open, close, read and write. */
export interface Change {
  /** Of the ledger record. */
  kind: string;
  path: string;
  more: Record<string, unknown>;
  /** Handle of the open file whose content it replaces. */
  overwrites?: string;
}

/** What a request does; undefined when it only looks. Fields are read in the order in which they stand. */
export function changeOf(
  type: number,
  reader: Reader,
  pathOf: (handle: string) => string | undefined,
): Change | undefined {
  const byHandle = (): string => pathOf(reader.bytes().toString('latin1')) ?? '(a handle that is not open)';
  switch (type) {
    case request.SETSTAT:
      return { kind: 'sftp.setstat', path: reader.text(), more: attributes(reader) };
    case request.FSETSTAT:
      return { kind: 'sftp.setstat', path: byHandle(), more: attributes(reader) };
    case request.OPENDIR:
      return { kind: 'sftp.list', path: reader.text(), more: {} };
    case request.REMOVE:
      return { kind: 'sftp.remove', path: reader.text(), more: {} };
    case request.MKDIR:
      return { kind: 'sftp.mkdir', path: reader.text(), more: attributes(reader) };
    case request.RMDIR:
      return { kind: 'sftp.rmdir', path: reader.text(), more: {} };
    case request.RENAME:
      return { kind: 'sftp.rename', path: reader.text(), more: { to: reader.text() } };
    case request.SYMLINK: {
      // OpenSSH sends the target first, against the draft (its PROTOCOL file, section 4.1).
      const target = reader.text();
      return { kind: 'sftp.symlink', path: reader.text(), more: { target } };
    }
    default:
      return extensionOf(reader.text(), reader, byHandle, pathOf);
  }
}

function extensionOf(
  name: string,
  reader: Reader,
  byHandle: () => string,
  pathOf: (handle: string) => string | undefined,
): Change | undefined {
  switch (name) {
    case 'posix-rename@openssh.com':
      return { kind: 'sftp.rename', path: reader.text(), more: { to: reader.text() } };
    case 'hardlink@openssh.com':
      return { kind: 'sftp.hardlink', path: reader.text(), more: { to: reader.text() } };
    case 'lsetstat@openssh.com':
      return { kind: 'sftp.setstat', path: reader.text(), more: attributes(reader) };
    case 'copy-data': {
      const path = byHandle();
      reader.u64();
      reader.u64();
      const target = reader.bytes().toString('latin1');
      return { kind: 'sftp.copy', path, more: { to: pathOf(target) ?? null }, overwrites: target };
    }
    default:
      return undefined;
  }
}

/** ATTRS: which of size, owner, mode and times are set. */
function attributes(reader: Reader): Record<string, unknown> {
  const flags = reader.u32();
  const out: Record<string, unknown> = {};
  if (flags & 1) out['sizeBytes'] = Number(reader.u64());
  if (flags & 2) {
    out['uid'] = reader.u32();
    out['gid'] = reader.u32();
  }
  if (flags & 4) out['mode'] = (reader.u32() & 0o7777).toString(8).padStart(4, '0');
  if (flags & 8) {
    out['accessedAt'] = reader.u32() * 1000;
    out['modifiedAt'] = reader.u32() * 1000;
  }
  return out;
}
