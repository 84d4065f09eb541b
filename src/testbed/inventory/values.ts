/** How single values of an inventory are written: names and ranges, sizes, speeds, MAC and BMC addresses. */
import { isIP } from 'node:net';

/** Of sites and nodes: a DNS label, since host names are made of it. */
export const namePattern = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

const mostNodes = 10_000;

/** `n[01-03]` as n01, n02, n03; a name as itself; undefined for what is no name and no range. */
export function expandNames(text: string): string[] | undefined {
  const range = /^([^[\]]*)\[(\d+)-(\d+)\]([^[\]]*)$/.exec(text);
  if (range === null) return namePattern.test(text) ? [text] : undefined;
  const [, before = '', first = '', last = '', after = ''] = range;
  const count = Number(last) - Number(first) + 1;
  if (count < 1 || count > mostNodes || first.length !== last.length) return undefined;
  const names = Array.from({ length: count }, (_, index) => {
    const number = String(Number(first) + index).padStart(first.length, '0');
    return `${before}${number}${after}`;
  });
  return names.every((name) => namePattern.test(name)) ? names : undefined;
}

/** What a `name:` says: one name, a range, or a list of either. undefined where a part of it is neither. */
export function namesOf(value: unknown): string[] | undefined {
  const parts: unknown[] = Array.isArray(value) ? value : [value];
  const names = parts.map((part) => (typeof part === 'string' ? expandNames(part) : undefined));
  if (names.length === 0 || names.includes(undefined)) return undefined;
  return names.flatMap((list) => list ?? []);
}

const units: Readonly<Record<string, number>> = {
  B: 1,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/** `480GB`, `1.2 TB`, `128GiB` or a number of bytes, in bytes. Decimal and binary units are told apart. */
export function parseSize(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value > 0 ? value : undefined;
  if (typeof value !== 'string') return undefined;
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?) ?([A-Za-z]+)$/.exec(value) ?? [];
  const bytes = Math.round(Number(number) * (units[unit] ?? 0));
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}

/** `10Gb/s`, `100Mb/s` in megabits a second, as Linux tells the speed of a link. */
export function parseSpeed(value: unknown): number | undefined {
  if (typeof value !== 'string') return undefined;
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?) ?([MG])b\/s$/.exec(value) ?? [];
  const speed = Number(number) * (unit === 'G' ? 1000 : 1);
  return Number.isInteger(speed) && speed > 0 ? speed : undefined;
}

/** Any usual way to write a MAC address as `aa:bb:cc:dd:ee:ff`; undefined for a group or empty address too. */
export function parseMac(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  const written =
    /^(?:[\da-f]{2}([:-])(?:[\da-f]{2}\1){4}[\da-f]{2}|(?:[\da-f]{4}\.){2}[\da-f]{4}|[\da-f]{12})$/i;
  if (!written.test(value)) return undefined;
  const digits = value.toLowerCase().replaceAll(/[^\da-f]/g, '');
  // The lowest bit of the first byte marks a group (IEEE 802-2014, 8.2.2): no card has such an address.
  if ((Number.parseInt(digits.slice(0, 2), 16) & 1) === 1 || /^0+$/.test(digits)) return undefined;
  return digits.replaceAll(/..(?!$)/g, '$&:');
}

/** An IPv4 or IPv6 address or a host name, written in one way. `10.0.0.300` is none of them. */
export function parseAddress(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  if (isIP(value) === 4) return value;
  // The URL parser writes an IPv6 address in its one short form (RFC 5952).
  if (isIP(value) === 6 && !value.includes('%')) return new URL(`http://[${value}]`).hostname.slice(1, -1);
  const name = value.toLowerCase();
  const labels = name.split('.');
  const isName = name.length <= 253 && labels.every((label) => namePattern.test(label));
  return isName && !/^\d+$/.test(labels.at(-1) ?? '') ? name : undefined;
}

/** A serial number or WWN as disks report it: compared without regard to case, blanks and the kind of its name. */
export function normaliseDiskId(value: string): string {
  return value
    .trim()
    .toLowerCase()
    .replace(/^(?:naa\.|eui\.|0x|wwn-0x)/, '');
}
