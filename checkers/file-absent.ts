/** Paths that must not be there (any more): markers, backups, temporary files. */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, fail, pass } from './expectation.js';
import { runPython } from './node-script.js';

const absolute = z.string().startsWith('/', 'must be an absolute path');
const parameters = z.strictObject({
  path: z
    .union([absolute, z.array(absolute).min(1)])
    .describe(
      'Absolute path, or list of them; `*`, `?` and `[...]` are patterns, and `**` any depth of folders.',
    ),
  except: z
    .array(absolute)
    .default([])
    .describe('Paths (or patterns) that may be there all the same, such as files that the image brought.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  /** What is there, links not followed. At most 100. */
  found: z.array(z.strictObject({ path: z.string(), type: z.string() })),
  total: z.number(),
});
type Evidence = z.output<typeof evidence>;

function gather(context: CheckContext, { path, except }: Parameters): Promise<Evidence> {
  return runPython(context, 'find-paths.py', { patterns: asList(path), except, limit: 100 }, evidence);
}

function judge(seen: Evidence, { path }: Parameters): Judgement {
  const [first] = seen.found;
  if (first === undefined) return pass(`nothing at ${asList(path).join(', ')}`);
  const more = seen.total > 1 ? ` and ${String(seen.total - 1)} more` : '';
  return fail(`${first.path} is still there (${first.type})${more}`);
}

export const fileAbsent = defineChecker<Parameters, Evidence>({
  name: 'file-absent',
  summary: 'Nothing lies at a path or matches a pattern of paths.',
  with: parameters,
  evidence,
  gather,
  judge,
});
