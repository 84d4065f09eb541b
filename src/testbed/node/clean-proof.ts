/**
 * Why a node may be lent again: the shape of the stored proof, by the way it was cleaned. Whoever ends a lease hands
 * `releaseLease` the `destroyedProofs` of what the backend's `proveClean` read back; where nothing was ever made on a
 * node, its `untouchedProof` serves.
 */
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import type { CleanEvidence } from '../driver/driver.js';

export const cleanMethods = [
  'never-made',
  'container-destroyed',
  'vm-destroyed',
  'verified-boot',
  'untouched',
] as const;
export type CleanMethod = (typeof cleanMethods)[number];

const sentence = z.string().min(1);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const bootId = z.string().regex(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);

const knownImage = z.strictObject({
  hash,
  /** `node`: read on the node itself; `backend`: what the backend put under it and kept read-only. */
  known: z.enum(['node', 'backend']),
});
const noImage = z.strictObject({ hash: z.null(), known: z.literal('none-ran') });
const knownBoot = z.strictObject({ value: bootId });
const noBoot = z.strictObject({ value: z.null(), why: sentence });
const generation = z.number().int().positive();

/** Where data of a lease could lie, as it was found. */
const dataArea = z.strictObject({ path: z.string().min(1), state: z.enum(['absent', 'empty']) });

/** null where a node has no BMC. Users and override as they were read; they have to be those of the inventory. */
const bmc = z
  .strictObject({
    users: z.array(z.string()),
    bootOverride: z.string().nullable(),
    asInInventory: z.literal(true),
  })
  .nullable();

const rest = {
  dataAreas: z.array(dataArea).min(1),
  bmc,
  /** What was looked at, one sentence each. */
  readBack: z.array(sentence).min(1),
};

const destroyed = {
  image: z.union([knownImage, noImage]),
  hostKeyGeneration: generation,
  bootId: z.union([knownBoot, noBoot]),
  ...rest,
  dataAreas: z.array(dataArea.extend({ state: z.literal('absent') })).min(1),
};

export const cleanProofSchema = z.discriminatedUnion('method', [
  /** Enrolled, of a kind that exists only while a cluster stands on it, and none ever did. */
  z.strictObject({
    method: z.literal('never-made'),
    image: noImage,
    hostKeyGeneration: z.null(),
    bootId: noBoot,
    ...rest,
    dataAreas: z.array(dataArea),
  }),
  /** All that the node was made of is gone, and was looked for. */
  z.strictObject({ method: z.literal('container-destroyed'), ...destroyed }),
  z.strictObject({ method: z.literal('vm-destroyed'), ...destroyed }),
  /** Booted anew from the bare image after that, and asked. The only one that clears a fault. */
  z.strictObject({
    method: z.literal('verified-boot'),
    image: knownImage,
    hostKeyGeneration: generation,
    bootId: knownBoot,
    ...rest,
  }),
  /** Its lease ended with nothing ever made on it: the proof from before the lease still holds. */
  z.strictObject({
    method: z.literal('untouched'),
    /** Clean record of before the lease. */
    previous: z.number().int().positive(),
    readBack: z.array(sentence).min(1),
  }),
]);

/** A proof by which `transition` makes a node available. */
export type CleanProof = z.output<typeof cleanProofSchema>;

/** The proof that the store keeps with a clean record, or undefined for one of an older version in another shape. */
export function storedProof(method: string, proof: string): CleanProof | undefined {
  const document = JSON.parse(proof) as unknown;
  if (typeof document !== 'object' || document === null) return undefined;
  const parsed = cleanProofSchema.safeParse({ ...document, method });
  return parsed.success ? parsed.data : undefined;
}

/** For a container or virtual machine that was just enrolled: no cluster was ever made of it. */
export function neverMadeProof(backend: string): CleanProof {
  return {
    method: 'never-made',
    image: { hash: null, known: 'none-ran' },
    hostKeyGeneration: null,
    bootId: { value: null, why: 'It never ran.' },
    dataAreas: [],
    bmc: null,
    readBack: [
      `The store knows no earlier use of it; a ${backend} node exists only while a cluster stands on it.`,
    ],
  };
}

/** For a node whose lease ends with nothing made on it; `previous` is its clean record (`nodes.clean_record`). */
export function untouchedProof(previous: number): CleanProof {
  return {
    method: 'untouched',
    previous,
    readBack: ['Under this lease the node was never provisioned, and no cluster stands on it.'],
  };
}

/**
 * For a container or virtual machine whose cluster was removed.
 * @param generation of the lease: counts where the backend does not know any more which one made the node.
 * @throws InfrabedError IB_NODE_FAILED naming what is left of it.
 */
export function destroyedProof(evidence: CleanEvidence, generation: number): CleanProof {
  const left = evidence.parts.flatMap(({ what, found }) => (found === null ? [] : [`${what} (${found})`]));
  if (!evidence.isClean || left.length > 0) {
    throw new InfrabedError('IB_NODE_FAILED', `${evidence.node} is not gone: ${left.join(', ')}.`, {
      hint: 'Run "infrabed sweep".',
    });
  }
  const { imageHash, lastBootId } = evidence;
  return {
    method: evidence.method === 'vm-destroyed' ? 'vm-destroyed' : 'container-destroyed',
    image: imageHash === null ? { hash: null, known: 'none-ran' } : { hash: imageHash, known: 'backend' },
    hostKeyGeneration: evidence.generation ?? generation,
    bootId:
      lastBootId === null ? { value: null, why: 'The backend saw no boot of it.' } : { value: lastBootId },
    dataAreas: evidence.parts.map(({ what }) => ({ path: what, state: 'absent' })),
    bmc: null,
    readBack: [
      `${evidence.method}: ${String(evidence.parts.length)} parts were looked for, and none was found.`,
    ],
  };
}

/** A node as a cluster names it (`node0`) and as its site does (`local/n01`). */
export interface NamedNode {
  name: string;
  node: string;
}

/**
 * Proofs for all nodes of a removed cluster by their site's names, as `releaseLease` takes them.
 * @throws InfrabedError IB_NODE_FAILED when a node is not gone, or was not asked about.
 */
export function destroyedProofs(
  evidence: readonly CleanEvidence[],
  nodes: readonly NamedNode[],
  generation: number,
): Map<string, CleanProof> {
  return new Map(
    nodes.map(({ name, node }) => {
      const found = evidence.find((one) => one.node === name);
      if (found !== undefined) return [node, destroyedProof(found, generation)];
      throw new InfrabedError('IB_NODE_FAILED', `The backend says nothing about ${name} (${node}).`);
    }),
  );
}
