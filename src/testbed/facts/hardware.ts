/** What a node is made of, read by one script on it, and how that differs from what the inventory declares. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import { asset } from '../../core/paths.js';
import type { SiteNode } from '../inventory/inventory.js';
import { normaliseDiskId, parseMac } from '../inventory/values.js';
import type { FactsSource } from './facts.js';

const diskSchema = z.object({
  name: z.string(),
  serial: z.string().nullable(),
  wwn: z.string().nullable(),
  sizeBytes: z.number().nullable(),
});

const nicSchema = z.object({
  name: z.string(),
  mac: z.string().nullable(),
  /** There is a device behind it; a container's link has none. */
  isCard: z.boolean(),
  /** null while the link is down. */
  speedMbps: z.number().nullable(),
});

/** A part is null where it could not be read; `notes` says why, by the part's name. */
export const hardwareSchema = z.object({
  memoryBytes: z.number().nullable(),
  cpus: z.number().nullable(),
  disks: z.array(diskSchema).nullable(),
  nics: z.array(nicSchema).nullable(),
  bmcFirmware: z.string().nullable(),
  notes: z.record(z.string(), z.string()),
});
export type Hardware = z.output<typeof hardwareSchema>;

const script = asset('src/testbed/facts/gather-hardware.py');

/**
 * Reads the hardware of one node of a cluster.
 * @throws InfrabedError IB_NODE_UNREACHABLE or IB_NODE_OFF from the source, IB_NODE_FAILED when the script fails.
 */
export async function gatherHardware(
  source: FactsSource,
  node: string,
  options: { signal?: AbortSignal } = {},
): Promise<Hardware> {
  const result = await source.exec(node, {
    argv: ['python3', '-I', '-'],
    stdin: await readFile(script),
    timeoutMs: 60_000,
    maxOutputBytes: 4 * 1024 * 1024,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  if (result.exitCode !== 0 || result.truncated) {
    const how = result.timedOut ? 'did not end in time' : `failed: ${lastLines(result.stderr, 2)}`;
    throw new InfrabedError(
      'IB_NODE_FAILED',
      `The hardware of ${node} could not be read: the script ${how}.`,
      {
        details: { exitCode: result.exitCode, signal: result.signal, timedOut: result.timedOut },
      },
    );
  }
  return parseHardware(node, result.stdout);
}

/** Hardware from the script's output. @throws InfrabedError IB_NODE_FAILED. */
export function parseHardware(node: string, output: string): Hardware {
  try {
    return hardwareSchema.parse(JSON.parse(output));
  } catch (error) {
    throw new InfrabedError('IB_NODE_FAILED', `What ${node} says about its hardware has another shape.`, {
      cause: error,
    });
  }
}

/**
 * `differs`: another value; `missing`: declared and not there; `extra`: there and not declared; `moved`: declared for
 * another node; `unknown`: could not be read, which is never taken for a match.
 */
export type DifferenceKind = 'differs' | 'missing' | 'extra' | 'moved' | 'unknown';

export interface Difference {
  /** `memory`, `cpus`, `bmc.firmware`, `disks[SERIAL]`, `disks[SERIAL].size`, `nics[MAC]`, `nics[MAC].speed`. */
  field: string;
  kind: DifferenceKind;
  /** As text; null where the inventory declares nothing. */
  declared: string | null;
  /** As text; null where the node reports nothing. */
  reported: string | null;
  /** Why it matters: one sentence. */
  why: string;
}

/** Firmware, integrated graphics and the kernel itself keep a part of the memory: 1-2 % on servers. */
const memoryTolerance = 0.03;
/** Makers round: a disk of 480 GB has 480,103,981,056 bytes. */
const diskTolerance = 0.01;

/**
 * What a node reports against its entry in the inventory. Only what the entry declares is compared.
 * @param others further nodes of the inventories: a disk or card declared for one of them is named as moved.
 */
export function compareHardware(
  spec: SiteNode,
  reported: Hardware,
  others: readonly SiteNode[] = [],
): Difference[] {
  const elsewhere = others.filter((node) => node.name !== spec.name);
  return [
    ...compareMemory(spec, reported),
    ...compareCpus(spec, reported),
    ...compareDisks(spec, reported, elsewhere),
    ...compareNics(spec, reported, elsewhere),
    ...compareFirmware(spec, reported),
  ];
}

function unknown(field: string, declared: string, part: keyof Hardware, { notes }: Hardware): Difference {
  const note = notes[part];
  const why = `It could not be read, so that nothing is known about it${note === undefined ? '' : `: ${note}`}.`;
  return { field, kind: 'unknown', declared, reported: null, why };
}

function compareMemory({ memoryBytes: declared }: SiteNode, reported: Hardware): Difference[] {
  if (declared === undefined) return [];
  const field = 'memory';
  if (reported.memoryBytes === null) return [unknown(field, memory(declared), 'memoryBytes', reported)];
  if (isNear(declared, reported.memoryBytes, memoryTolerance)) return [];
  const why =
    reported.memoryBytes < declared
      ? 'A module may have failed, or is missing: what runs here gets less than was promised.'
      : 'The node was changed: figures of before do not compare with those to come.';
  const kind = 'differs';
  return [{ field, kind, declared: memory(declared), reported: memory(reported.memoryBytes), why }];
}

function compareCpus({ cpus: declared }: SiteNode, reported: Hardware): Difference[] {
  if (declared === undefined || declared === reported.cpus) return [];
  const field = 'cpus';
  if (reported.cpus === null) return [unknown(field, String(declared), 'cpus', reported)];
  const why =
    'A socket, core or hyper-threading is off or on: run times do not compare with those of other nodes.';
  return [{ field, kind: 'differs', declared: String(declared), reported: String(reported.cpus), why }];
}

function compareFirmware({ bmcFirmware: declared }: SiteNode, reported: Hardware): Difference[] {
  if (declared === undefined || declared === reported.bmcFirmware) return [];
  const field = 'bmc.firmware';
  if (reported.bmcFirmware === null) return [unknown(field, declared, 'bmcFirmware', reported)];
  const why = 'Power and boot commands of another firmware may behave in another way.';
  return [{ field, kind: 'differs', declared, reported: reported.bmcFirmware, why }];
}

type DeclaredDisk = NonNullable<SiteNode['disks']>[number];
type ReportedDisk = z.output<typeof diskSchema>;

function compareDisks(
  { disks: declared }: SiteNode,
  reported: Hardware,
  elsewhere: readonly SiteNode[],
): Difference[] {
  if (declared === undefined) return [];
  const found = reported.disks;
  if (found === null) return [unknown('disks', declared.map(diskName).join(', '), 'disks', reported)];
  const pairs = declared.map((disk) => ({ disk, match: found.find((one) => isSameDisk(disk, one)) }));
  const matched = new Set(pairs.map(({ match }) => match));
  const rest = found.filter((disk) => !matched.has(disk));
  const hasNameless = rest.some((disk) => disk.serial === null && disk.wwn === null);
  return [
    ...pairs.flatMap(({ disk, match }) =>
      match === undefined ? [absentDisk(disk, hasNameless)] : compareSize(disk, match),
    ),
    ...rest.map((disk) => strayDisk(disk, elsewhere)),
  ];
}

/** A disk that tells neither serial nor WWN may be the one looked for. */
function absentDisk(disk: DeclaredDisk, hasNameless: boolean): Difference {
  const field = `disks[${diskName(disk)}]`;
  const declared = `${disk.role} disk${disk.sizeBytes === undefined ? '' : ` of ${capacity(disk.sizeBytes)}`}`;
  return hasNameless
    ? {
        field,
        kind: 'unknown',
        declared,
        reported: null,
        why: 'A disk is there that tells neither serial nor WWN, and may be this one or not.',
      }
    : {
        field,
        kind: 'missing',
        declared,
        reported: null,
        why:
          disk.role === 'os'
            ? 'The node would be imaged onto another disk, or onto none.'
            : 'It failed, was pulled or swapped; what stores data here has less room than was promised.',
      };
}

function compareSize(disk: DeclaredDisk, { sizeBytes }: ReportedDisk): Difference[] {
  if (
    disk.sizeBytes === undefined ||
    (sizeBytes !== null && isNear(disk.sizeBytes, sizeBytes, diskTolerance))
  )
    return [];
  const field = `disks[${diskName(disk)}].size`;
  const declared = capacity(disk.sizeBytes);
  if (sizeBytes === null) {
    const why = 'Its size could not be read, so that nothing is known about it.';
    return [{ field, kind: 'unknown', declared, reported: null, why }];
  }
  const why = 'The disk hides a part of itself, or the inventory is wrong about it.';
  return [{ field, kind: 'differs', declared, reported: capacity(sizeBytes), why }];
}

function strayDisk(disk: ReportedDisk, elsewhere: readonly SiteNode[]): Difference {
  const id = disk.serial ?? disk.wwn;
  const home = elsewhere.find((node) => node.disks?.some((one) => isSameDisk(one, disk)));
  const size = disk.sizeBytes === null ? 'unknown size' : capacity(disk.sizeBytes);
  const reported = `${disk.name} of ${size}`;
  const field = `disks[${id ?? disk.name}]`;
  if (home !== undefined) {
    const why = `It is declared for ${home.name}: data of other people may lie on it, and that node lacks it.`;
    return { field, kind: 'moved', declared: null, reported, why };
  }
  const why =
    'It is not in the inventory: it is not cleaned between leases, and an image could be written to it.';
  return { field, kind: 'extra', declared: null, reported, why };
}

function isSameDisk(
  declared: { serial?: string | undefined; wwn?: string | undefined },
  reported: ReportedDisk,
): boolean {
  const same = (one: string | undefined, other: string | null): boolean =>
    one === undefined || (other !== null && normaliseDiskId(one) === normaliseDiskId(other));
  // Where both are declared, both have to be right.
  return same(declared.serial, reported.serial) && same(declared.wwn, reported.wwn);
}

function diskName({ serial, wwn }: DeclaredDisk): string {
  return serial ?? wwn ?? 'unnamed';
}

type DeclaredNic = NonNullable<SiteNode['nics']>[number];
type ReportedNic = z.output<typeof nicSchema>;

function compareNics(
  { nics: declared }: SiteNode,
  reported: Hardware,
  elsewhere: readonly SiteNode[],
): Difference[] {
  if (declared === undefined) return [];
  const found = reported.nics;
  if (found === null) {
    return [unknown('nics', declared.map((nic) => nic.mac).join(', '), 'nics', reported)];
  }
  const strangers = found.filter((nic) => nic.isCard && !declared.some((one) => isSameNic(one, nic)));
  return [
    ...declared.flatMap((nic) => {
      const match = found.find((one) => isSameNic(nic, one));
      return match === undefined ? [absentNic(nic, strangers)] : compareSpeed(nic, match);
    }),
    ...strangers.flatMap((nic) => movedNic(nic, elsewhere)),
  ];
}

function absentNic(nic: DeclaredNic, strangers: readonly ReportedNic[]): Difference {
  const field = `nics[${nic.mac}]`;
  const declared = `${nic.role} card`;
  const others = strangers.map(({ name, mac }) => `${name} (${mac ?? 'unknown address'})`).join(', ');
  if (strangers.some(({ mac }) => mac === null)) {
    const why = 'A card is there that does not tell its own address, and may be this one or not.';
    return { field, kind: 'unknown', declared, reported: others, why };
  }
  const instead = others === '' ? '' : ' The cards that are there instead are not in the inventory.';
  const why = `The node has no link to its ${nic.role} network, or has it by another card.${instead}`;
  return { field, kind: 'missing', declared, reported: others === '' ? null : others, why };
}

function compareSpeed(nic: DeclaredNic, { name, speedMbps }: ReportedNic): Difference[] {
  if (nic.speedMbps === undefined || nic.speedMbps === speedMbps) return [];
  const field = `nics[${nic.mac}].speed`;
  const declared = speed(nic.speedMbps);
  if (speedMbps === null) {
    const why = `The link of ${name} is down, or does not tell its speed.`;
    return [{ field, kind: 'unknown', declared, reported: null, why }];
  }
  const why = 'Port, cable or negotiation changed: what is measured over it does not compare.';
  return [{ field, kind: 'differs', declared, reported: speed(speedMbps), why }];
}

function movedNic(nic: ReportedNic, elsewhere: readonly SiteNode[]): Difference[] {
  const home = elsewhere.find((node) => node.nics?.some((one) => isSameNic(one, nic)));
  if (home === undefined) return [];
  const why = `It is declared for ${home.name}: the card was moved, or the two machines were mixed up.`;
  return [{ field: `nics[${nic.mac ?? ''}]`, kind: 'moved', declared: null, reported: nic.name, why }];
}

function isSameNic(declared: { mac: string }, reported: ReportedNic): boolean {
  return reported.mac !== null && parseMac(declared.mac) === parseMac(reported.mac);
}

function isNear(declared: number, reported: number, tolerance: number): boolean {
  return Math.abs(reported - declared) <= declared * tolerance;
}

/** Memory modules come in binary units. */
function memory(value: number): string {
  return `${String(Math.round((value / 2 ** 30) * 100) / 100)} GiB`;
}

/** Disks come in decimal ones. */
function capacity(value: number): string {
  return `${String(Math.round(value / 1e7) / 100)} GB`;
}

function speed(mbps: number): string {
  return mbps >= 1000 ? `${String(mbps / 1000)} Gb/s` : `${String(mbps)} Mb/s`;
}
