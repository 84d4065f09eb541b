/** What only one node in the world can have: its name, disks, cards and BMC address. Two that claim the same are named. */
import type { KeyPath } from './document.js';
import type { Site } from './schema.js';
import { namesOf, normaliseDiskId, parseAddress, parseMac } from './values.js';

export type ClaimKind = 'node name' | 'disk serial' | 'disk WWN' | 'MAC address' | 'BMC address';

export interface Claim {
  kind: ClaimKind;
  /** Written in one way. */
  value: string;
  /** Whose it is, for messages. */
  node: string;
  /** Where it stands in the file. */
  path: KeyPath;
}

/** Claims of a file as it was read, right or wrong: what has another shape claims nothing, and is told elsewhere. */
export function claimsOfFile(document: unknown): Claim[] {
  return listOf(field(document, 'nodes')).flatMap((entry, index) => claimsOfEntry(entry, ['nodes', index]));
}

function claimsOfEntry(entry: unknown, path: KeyPath): Claim[] {
  const names = namesOf(field(entry, 'name')) ?? [];
  const claims: Claim[] = names.map((value) => ({
    kind: 'node name',
    value,
    node: value,
    path: [...path, 'name'],
  }));
  const add = (
    kind: ClaimKind,
    value: unknown,
    at: KeyPath,
    read: (value: unknown) => string | undefined,
  ) => {
    const isList = Array.isArray(value);
    for (const [index, one] of (isList ? (value as unknown[]) : [value]).entries()) {
      const claimed = read(one);
      const node = names[index] ?? names[0] ?? 'another entry';
      if (claimed !== undefined)
        claims.push({ kind, value: claimed, node, path: isList ? [...at, index] : at });
    }
  };
  for (const [index, disk] of listOf(field(entry, 'disks')).entries()) {
    const at = [...path, 'disks', index];
    add('disk serial', field(disk, 'serial'), [...at, 'serial'], diskId);
    add('disk WWN', field(disk, 'wwn'), [...at, 'wwn'], diskId);
  }
  for (const [index, nic] of listOf(field(entry, 'nics')).entries()) {
    add('MAC address', field(nic, 'mac'), [...path, 'nics', index, 'mac'], parseMac);
  }
  const power = field(entry, 'power');
  add('BMC address', field(power, 'address'), [...path, 'power', 'address'], parseAddress);
  return claims;
}

/** Claims of a site that was read before. Names count within a site only, so that they are left out. */
export function claimsOfSite(site: Site): Claim[] {
  return site.nodes.flatMap((node) => {
    const claim = (kind: ClaimKind, value: string | undefined): Claim[] =>
      value === undefined ? [] : [{ kind, value, node: node.name, path: [] }];
    return [
      ...(node.disks ?? []).flatMap(({ serial, wwn }) => [
        ...claim('disk serial', diskId(serial)),
        ...claim('disk WWN', diskId(wwn)),
      ]),
      ...(node.nics ?? []).flatMap(({ mac }) => claim('MAC address', mac)),
      ...claim('BMC address', node.power?.address),
    ];
  });
}

/** Each claim that an earlier one made before it, with that one. */
export function doubleClaims(
  claims: readonly Claim[],
  earlier: readonly Claim[] = [],
): { claim: Claim; first: Claim }[] {
  const key = ({ kind, value }: Claim): string => `${kind} ${value}`;
  const seen = new Map(earlier.map((claim) => [key(claim), claim]));
  return claims.flatMap((claim) => {
    const first = seen.get(key(claim));
    if (first === undefined) seen.set(key(claim), claim);
    return first === undefined ? [] : [{ claim, first }];
  });
}

function diskId(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== '' ? normaliseDiskId(value) : undefined;
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function field(value: unknown, key: string): unknown {
  return value !== null && typeof value === 'object' ? (value as Record<string, unknown>)[key] : undefined;
}
