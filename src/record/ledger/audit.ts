/** Goes through the lines of a ledger one by one and notes what does not fit: no input or output of its own. */
import { firstPrev, readLine, type ReadLine } from './chain.js';
import type { RawLine } from './lines.js';

export interface LedgerProblem {
  /** Line of ledger.jsonl, from 1; null for what concerns the ledger as a whole. */
  line: number | null;
  seq: number | null;
  /** One sentence; `altered`, `missing`, `reordered`, `repeated`, `torn`, `foreign` or `broken` is its first word. */
  problem: string;
}

const keptProblems = 1000;

export class Audit {
  readonly problems: LedgerProblem[] = [];
  problemCount = 0;
  private line = 0;
  /** The number that the next record should have. */
  private expected = 0;
  /** Ranges of numbers that were jumped over and may yet turn up out of order: [from, to]. */
  private gaps: { from: number; to: number; line: number }[] = [];
  /** Hashes that the next record may name as the one before: what it carries, and what it really has. */
  private acceptedPrev: readonly (string | null)[] = [firstPrev];
  private head = firstPrev;

  constructor(private trial: string | undefined) {}

  take(raw: RawLine): void {
    this.line += 1;
    if (!raw.complete) {
      this.complain(this.line, null, 'torn: the last line has no end');
      return;
    }
    const read = readLine(raw.bytes);
    if (!read.ok) this.complain(this.line, read.seq, read.problem);
    const { record } = read;
    if (record === null) {
      this.skipUnreadable();
      return;
    }
    this.trial ??= record.trial;
    if (record.trial !== this.trial) {
      this.complain(
        this.line,
        record.seq,
        `foreign: this record is of trial ${record.trial}, not of ${this.trial}`,
      );
    }
    this.holdAgainstOrder(record.seq, record.prev);
    // A record out of order is not what the next one follows.
    if (record.seq !== this.expected - 1) return;
    this.head = record.hash;
    this.acceptedPrev = [record.hash, computedHash(read)];
  }

  /** A line that is no record stands in the place of one: it is not missing too. */
  private skipUnreadable(): void {
    this.expected += 1;
    this.acceptedPrev = [];
  }

  private holdAgainstOrder(seq: number, prev: string): void {
    if (seq === this.expected) {
      // No hash is known of a line that could not be read: what follows it proves nothing, and is not complained of.
      if (this.acceptedPrev.length > 0 && !this.acceptedPrev.includes(prev)) {
        this.complain(this.line, seq, 'broken: this record does not name the one before it by its hash');
      }
      this.expected = seq + 1;
      return;
    }
    if (seq > this.expected) {
      this.gaps.push({ from: this.expected, to: seq - 1, line: this.line });
      this.expected = seq + 1;
    } else if (this.fillGap(seq)) {
      this.complain(
        this.line,
        seq,
        `reordered: record ${String(seq)} stands behind record ${String(this.expected - 1)}`,
      );
    } else {
      this.complain(this.line, seq, `repeated: the number ${String(seq)} was there before`);
    }
  }

  private fillGap(seq: number): boolean {
    const index = this.gaps.findIndex((gap) => gap.from <= seq && seq <= gap.to);
    const gap = this.gaps[index];
    if (gap === undefined) return false;
    const left = [
      { ...gap, to: seq - 1 },
      { ...gap, from: seq + 1 },
    ].filter((part) => part.from <= part.to);
    this.gaps.splice(index, 1, ...left);
    return true;
  }

  /** Notes what turned out to be missing. */
  finish(): { count: number; head: string; trial: string | null } {
    for (const gap of this.gaps) {
      const which =
        gap.from === gap.to
          ? `record ${String(gap.from)}`
          : `records ${String(gap.from)} to ${String(gap.to)}`;
      const verb = gap.from === gap.to ? 'is' : 'are';
      this.complain(gap.line, gap.from, `missing: ${which} ${verb} not in the ledger`);
    }
    return { count: this.line, head: this.head, trial: this.trial ?? null };
  }

  complain(line: number | null, seq: number | null, problem: string): void {
    this.problemCount += 1;
    if (this.problems.length < keptProblems) this.problems.push({ line, seq, problem });
  }
}

function computedHash(read: ReadLine): string | null {
  return read.ok ? null : read.computed;
}
