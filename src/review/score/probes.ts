/** Each look of each check gets its verdict: from the checker's judge, or from why there is no evidence. */
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import { messageOf } from '../../core/errors.js';
import type { Checker, Json } from '../../trial/gate/checker.js';
import type { CheckDefinition } from '../../trial/task/schema.js';
import type { Verdict } from './score.js';

/** One look, judged. */
export interface Probe {
  check: string;
  moment: EvidenceRecord['moment'];
  /** Number of the look, in the order in which they were made. */
  probe: number;
  /** Epoch milliseconds. */
  at: number;
  /** paused: the controller itself was rebooting the node, or was not there, so it counts neither way. */
  verdict: Verdict | 'paused';
  why: string;
  unattributed: boolean;
  evidence: unknown;
}

/** Judges one look. Whatever goes wrong here is ours, and an error, never a fail. */
export async function judgeRecord(
  record: EvidenceRecord,
  check: CheckDefinition,
  checkerOf: (uses: string) => Promise<Checker>,
): Promise<Probe> {
  const { moment, probe, at, evidence } = record;
  const base = { check: check.id, moment, probe, at, unattributed: false, evidence: evidence ?? null };
  if (record.outcome !== 'gathered') return { ...base, ...withoutEvidence(record) };
  try {
    const checker = await checkerOf(check.uses);
    const parameters = checker.with.parse(check.with);
    const seen: Json = checker.evidence.parse(evidence);
    // A task's own checker judges in a child process, so its answer may be a promise.
    const judgement = await Promise.resolve(checker.judge(seen, parameters));
    return { ...base, verdict: judgement.verdict, why: judgement.why };
  } catch (error) {
    return {
      ...base,
      verdict: 'error',
      why: `The evidence could not be judged: ${oneLine(messageOf(error))}`,
    };
  }
}

/** DESIGN section 3: who is to blame decides between fail and error. */
function withoutEvidence(record: EvidenceRecord): Pick<Probe, 'verdict' | 'why' | 'unattributed'> {
  const said = record.error === undefined ? '' : `: ${oneLine(record.error.message)}`;
  const unattributed = false;
  switch (record.outcome) {
    case 'tampered':
      return {
        verdict: 'fail',
        why: `A program that this check relies on was replaced on the node${said}`,
        unattributed,
      };
    case 'paused':
      return { verdict: 'paused', why: `Not asked${said}`, unattributed };
    case 'unreachable':
      if (record.blame === 'node') {
        return {
          verdict: 'fail',
          why: `The node could not be asked, and that is its own doing${said}`,
          unattributed,
        };
      }
      if (record.blame === 'infrastructure') {
        return {
          verdict: 'error',
          why: `The node could not be asked because the testbed failed${said}`,
          unattributed,
        };
      }
      return {
        verdict: 'error',
        why: `The node could not be asked, and whose doing that is is not known${said}`,
        unattributed: true,
      };
    default:
      return { verdict: 'error', why: `The checker itself failed${said}`, unattributed };
  }
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}
