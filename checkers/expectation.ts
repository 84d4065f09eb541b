/** Small pieces that the judges share: expectations about texts and the sentences that go with them. */
import { z } from 'zod';
import type { Judgement } from '../src/trial/gate/checker.js';

/** One string or a list of them, as a list. */
export const oneOrMore = z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]);

/** A regular expression as text (multi-line: ^ and $ match at line ends). */
export const pattern = z
  .string()
  .min(1)
  .superRefine((text, context) => {
    try {
      new RegExp(text, 'm');
    } catch (error) {
      context.addIssue({ code: 'custom', message: `is no regular expression: ${String(error)}` });
    }
  });

export function asList(value: string | readonly string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return typeof value === 'string' ? [value] : value;
}

export const pass = (why: string): Judgement => ({ verdict: 'pass', why });
export const fail = (why: string): Judgement => ({ verdict: 'fail', why });

/** A text cut for a sentence: one line, at most `length` characters. */
export function brief(text: string, length = 120): string {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}
