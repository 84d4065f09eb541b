/** Holds a ledger against itself and against its seal, and names everything that is wrong with it. */
import { readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import { canonicalJson } from '../../core/ids.js';
import { Audit, type LedgerProblem } from './audit.js';
import { linesOf } from './lines.js';
import { sealSchema, type Seal } from './record.js';
import { signatureHolds } from './site-key.js';
import { sealName } from './writer.js';

export type { LedgerProblem } from './audit.js';

export interface Verification {
  /** True when nothing at all is wrong. */
  ok: boolean;
  trial: string | null;
  /** Records that were read. */
  count: number;
  head: string;
  sealed: boolean;
  /** The key of the seal, base64, or null without a seal. */
  publicKey: string | null;
  /** The first thousand. */
  problems: LedgerProblem[];
  problemCount: number;
}

export interface VerifyOptions {
  /** Raw Ed25519 public key in base64 that must have signed. Without it, only damage is found, not a forged seal. */
  publicKey?: string;
  /** The trial that it must be of; by default the one that the seal or the first record names. */
  trial?: string;
}

/**
 * Verifies ledger.jsonl and ledger.seal.json of a bundle, streaming.
 * @throws InfrabedError IB_BUNDLE_INVALID when there is no ledger to look at.
 */
export async function verifyLedger(bundleDir: string, options: VerifyOptions = {}): Promise<Verification> {
  const seal = await readSeal(bundleDir);
  const sealed = 'seal' in seal ? seal.seal : undefined;
  const audit = new Audit(options.trial ?? sealed?.trial);
  const file = join(bundleDir, 'ledger.jsonl');
  try {
    for await (const lines of linesOf(file)) for (const line of lines) audit.take(line);
  } catch (error) {
    const what = errnoOf(error) === 'ENOENT' ? 'has no ledger.jsonl' : `cannot be read: ${messageOf(error)}`;
    throw new InfrabedError('IB_BUNDLE_INVALID', `The bundle ${bundleDir} ${what}.`, {
      hint: 'Name the folder that a trial left ("infrabed trial list" shows them).',
      cause: error,
    });
  }
  const totals = audit.finish();
  if ('problem' in seal) audit.complain(null, null, seal.problem);
  else
    for (const problem of sealProblems(seal.seal, totals, options.publicKey))
      audit.complain(null, null, problem);
  return {
    ok: audit.problemCount === 0,
    trial: totals.trial,
    count: totals.count,
    head: totals.head,
    sealed: sealed !== undefined,
    publicKey: sealed?.publicKey ?? null,
    problems: audit.problems,
    problemCount: audit.problemCount,
  };
}

async function readSeal(bundleDir: string): Promise<{ seal: Seal } | { problem: string }> {
  let text: string;
  try {
    text = await readFile(join(bundleDir, sealName), 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') return { problem: `the seal cannot be read: ${messageOf(error)}` };
    return { problem: 'there is no seal: the trial did not come to its end, or the seal was taken away' };
  }
  try {
    const parsed = sealSchema.parse(JSON.parse(text));
    return { seal: parsed };
  } catch {
    return { problem: `the seal ${basename(dirname(join(bundleDir, sealName)))}/${sealName} is damaged` };
  }
}

function sealProblems(
  seal: Seal,
  totals: { count: number; head: string; trial: string | null },
  publicKey: string | undefined,
): string[] {
  const problems: string[] = [];
  const { signature, ...content } = seal;
  if (!signatureHolds(seal.publicKey, canonicalJson(content), signature)) {
    problems.push('the signature of the seal is wrong: the seal was altered');
  }
  if (publicKey !== undefined && publicKey !== seal.publicKey) {
    problems.push('the seal was made with another key than the one that is trusted');
  }
  if (totals.count < seal.count) {
    const cut =
      totals.count === seal.count - 1
        ? 'one record was'
        : `${String(seal.count - totals.count)} records were`;
    problems.push(
      `the seal counts ${String(seal.count)} records, there are ${String(totals.count)}: ${cut} cut out or cut off`,
    );
  } else if (totals.count > seal.count) {
    problems.push(
      `the seal counts ${String(seal.count)} records, there are ${String(totals.count)}: some were added after it`,
    );
  } else if (totals.head !== seal.head) {
    problems.push(
      'the last record is not the one that was sealed: it was altered, or the chain was written anew',
    );
  }
  if (totals.trial !== null && totals.trial !== seal.trial)
    problems.push(`the seal is of trial ${seal.trial}`);
  return problems;
}
