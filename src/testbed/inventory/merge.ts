/** From an entry of the file to nodes: ranges written out, lists dealt to their nodes, the site's defaults filled in. */
import type { KeyPath } from './document.js';
import type { DefaultsFile, NodeFile, SiteNode } from './schema.js';

/** What is wrong with an entry though each of its keys is right. */
export interface EntryProblem {
  /** Below the entry. */
  path: KeyPath;
  what: string;
  fix: string;
}

/** The nodes of an entry, by names without the site. */
export function nodesOfEntry(entry: NodeFile, defaults: DefaultsFile): SiteNode[] {
  return entry.name.map((name, index) => {
    const { images, cpus, memory } = { ...defaults, ...defined(entry) };
    const power = powerOf(entry, defaults, index);
    const ofSite = isContainer(entry, defaults) ? undefined : defaults.bmc?.firmware;
    const firmware = entry.bmc?.firmware ?? ofSite;
    const tags = [...new Set([...(defaults.tags ?? []), ...(entry.tags ?? [])])];
    const disks = entry.disks?.map(({ serial, wwn, size, role }) => ({
      ...some('serial', serial?.[index]),
      ...some('wwn', wwn?.[index]),
      ...some('sizeBytes', size),
      role,
    }));
    const nics = entry.nics?.map(({ mac, role, speed }) => ({
      mac: mac[index] ?? '',
      role,
      ...some('speedMbps', speed),
    }));
    return {
      name,
      backend: backendOf(entry, defaults) ?? '',
      ...some('power', power),
      ...some('images', images),
      ...some('cpus', cpus),
      ...some('memoryBytes', memory),
      ...some('disks', disks),
      ...some('nics', nics),
      ...some('bmcFirmware', firmware),
      tags,
    };
  });
}

/** Checks that need an entry and the defaults together. */
export function entryProblems(entry: NodeFile, defaults: DefaultsFile): EntryProblem[] {
  return [...lengthProblems(entry), ...diskProblems(entry), ...powerProblems(entry, defaults)];
}

function lengthProblems(entry: NodeFile): EntryProblem[] {
  const count = entry.name.length;
  const lists: [KeyPath, readonly unknown[] | undefined][] = [
    ...(entry.disks ?? []).flatMap(({ serial, wwn }, index): [KeyPath, string[] | undefined][] => [
      [['disks', index, 'serial'], serial],
      [['disks', index, 'wwn'], wwn],
    ]),
    ...(entry.nics ?? []).map(({ mac }, index): [KeyPath, string[]] => [['nics', index, 'mac'], mac]),
    [['power', 'address'], entry.power?.address],
  ];
  return lists.flatMap(([path, list]) => {
    if (list === undefined || list.length === count) return [];
    const what = `${plural(list.length, 'value')} for ${plural(count, 'node')}`;
    const fix =
      count === 1 ? 'Write one value.' : `Write a list of ${String(count)}, in the order of the names.`;
    return [{ path, what, fix }];
  });
}

function diskProblems(entry: NodeFile): EntryProblem[] {
  return (entry.disks ?? []).flatMap(({ serial, wwn }, index) => {
    if (serial !== undefined || wwn !== undefined) return [];
    const fix =
      'Write its serial or wwn (lsblk -do NAME,SERIAL,WWN): names like sda change from boot to boot.';
    return [{ path: ['disks', index], what: 'nothing tells this disk from others', fix }];
  });
}

function powerProblems(entry: NodeFile, defaults: DefaultsFile): EntryProblem[] {
  const backend = backendOf(entry, defaults);
  if (backend === undefined) {
    return [{ path: [], what: 'the node has no backend', fix: 'Write backend: here or under defaults.' }];
  }
  const path = ['power'];
  if (backend === 'container') {
    const what = 'a container node has no power supply of its own';
    return entry.power === undefined
      ? []
      : [{ path, what, fix: 'Leave power: out; the backend switches it.' }];
  }
  const power = { ...defaults.power, ...defined(entry.power ?? {}) };
  if (backend === 'metal' && power.driver === undefined) {
    return [{ path, what: 'a metal node needs a way to switch it', fix: 'Write power: with driver: ipmi.' }];
  }
  if (power.driver !== 'ipmi') return [];
  return (['address', 'user', 'password'] as const)
    .filter((key) => !(key in power))
    .map((key) => ({ path, what: `power by ipmi needs ${key}:`, fix: `Write ${key}: ${sample[key]}.` }));
}

const sample = { address: '192.0.2.17', user: 'ADMIN', password: '{env: BMC_PASSWORD}' };

function backendOf(entry: NodeFile, defaults: DefaultsFile): string | undefined {
  return entry.backend ?? defaults.backend;
}

/** A container has neither power supply nor BMC, whatever the defaults say for the machines of its site. */
function isContainer(entry: NodeFile, defaults: DefaultsFile): boolean {
  return backendOf(entry, defaults) === 'container';
}

/** The entry's keys go before those of the site. */
function powerOf(entry: NodeFile, defaults: DefaultsFile, index: number): SiteNode['power'] {
  if (isContainer(entry, defaults)) return undefined;
  const { driver, user, password } = { ...defaults.power, ...defined(entry.power ?? {}) };
  if (driver === undefined) return undefined;
  const address = entry.power?.address?.[index];
  return { driver, ...some('address', address), ...some('user', user), ...some('password', password) };
}

/** An object with the key, or without where there is no value. */
function some<K extends string, V>(key: K, value: V | undefined): Partial<Record<K, V>> {
  return value === undefined ? {} : ({ [key]: value } as Partial<Record<K, V>>);
}

/** Without keys that say nothing, so that they do not hide a default. */
function defined<T extends object>(value: T): T {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as T;
}

function plural(count: number, word: string): string {
  return `${String(count)} ${word}${count === 1 ? '' : 's'}`;
}
