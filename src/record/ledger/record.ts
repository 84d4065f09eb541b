/** The shape of one ledger record and of the seal. */
import { z } from 'zod';

/** One line of ledger.jsonl. `hash` is the SHA-256 of the canonical JSON of all other fields. */
export const ledgerRecordSchema = z.strictObject({
  seq: z.number().int().min(0),
  /** Epoch milliseconds. */
  at: z.number(),
  trial: z.string(),
  actor: z.string(),
  node: z.string().nullable(),
  kind: z.string(),
  payload: z.record(z.string(), z.unknown()),
  /** Hash of the record before; 64 zeros for the first. */
  prev: z.string(),
  hash: z.string(),
});
export type LedgerRecord = z.output<typeof ledgerRecordSchema>;

/** ledger.seal.json: head and count, signed by the site's Ed25519 key. */
export const sealSchema = z.strictObject({
  version: z.literal(1),
  trial: z.string(),
  count: z.number().int(),
  head: z.string(),
  sealedAt: z.number(),
  /** Raw Ed25519 public key, base64. */
  publicKey: z.string(),
  /** Over the canonical JSON of the other fields, base64. */
  signature: z.string(),
});
export type Seal = z.output<typeof sealSchema>;
