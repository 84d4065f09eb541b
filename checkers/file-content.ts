/** What a file on the node holds, and its mode and owner. */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, brief, fail, oneOrMore, pass, pattern } from './expectation.js';

const assertions = [
  'equals',
  'contains',
  'not_contains',
  'matches',
  'not_matches',
  'mode',
  'owner',
  'group',
] as const;

const parameters = z
  .strictObject({
    path: z.string().startsWith('/').describe('Absolute path on the node; links are not followed.'),
    equals: z.string().optional().describe('The whole content, white space at its end left out.'),
    contains: oneOrMore.optional().describe('Text, or list of texts, that it must hold.'),
    not_contains: oneOrMore.optional().describe('Text, or list of texts, that it must not hold.'),
    matches: pattern.optional().describe('Regular expression that it must match (multi-line).'),
    not_matches: pattern.optional().describe('Regular expression that it must not match (multi-line).'),
    mode: z
      .string()
      .regex(/^0?[0-7]{3,4}$/)
      .optional()
      .describe('Permission bits in octal: "0640".'),
    owner: z.string().optional().describe('Name of its owner.'),
    group: z.string().optional().describe('Name of its group.'),
  })
  .refine((table) => assertions.some((key) => table[key] !== undefined), {
    error: `needs at least one of ${assertions.join(', ')}`,
  });
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  type: z.enum(['absent', 'file', 'directory', 'symlink', 'other']),
  mode: z.string().nullable(),
  owner: z.string().nullable(),
  group: z.string().nullable(),
  sizeBytes: z.number().nullable(),
  sha256: z.string().nullable(),
  content: z.string().nullable(),
  truncated: z.boolean(),
});
type Evidence = z.output<typeof evidence>;

const nothing = { mode: null, owner: null, group: null, sizeBytes: null, sha256: null, content: null };

async function gather({ cluster, node }: CheckContext, { path }: Parameters): Promise<Evidence> {
  const state = await cluster.read(node, path, 256 * 1024);
  if (state.type === 'absent') return { type: 'absent', ...nothing, truncated: false };
  const { type, mode, owner, group } = state;
  if (state.type !== 'file') return { ...nothing, type, mode, owner, group, truncated: false };
  const { sizeBytes, sha256, content, truncated } = state;
  return { type, mode, owner, group, sizeBytes, sha256, content, truncated };
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  if (seen.type === 'absent') return fail(`${wanted.path} is not there`);
  if (seen.type !== 'file' || seen.content === null)
    return fail(`${wanted.path} is a ${seen.type}, not a file`);
  const fault = contentFault(seen.content, seen.truncated, wanted) ?? attributeFault(seen, wanted);
  return fault === undefined ? pass(`${wanted.path} is as expected`) : fail(`${wanted.path} ${fault}`);
}

function contentFault(content: string, truncated: boolean, wanted: Parameters): string | undefined {
  if (wanted.equals !== undefined && content.trimEnd() !== wanted.equals.trimEnd())
    return `holds "${brief(content)}", not "${brief(wanted.equals)}"`;
  for (const text of asList(wanted.contains))
    if (!content.includes(text)) return `does not hold "${brief(text)}"`;
  for (const text of asList(wanted.not_contains)) if (content.includes(text)) return `holds "${brief(text)}"`;
  if (wanted.matches !== undefined && !new RegExp(wanted.matches, 'm').test(content))
    return `does not match /${wanted.matches}/`;
  const unwanted =
    wanted.not_matches === undefined ? null : new RegExp(wanted.not_matches, 'm').exec(content);
  if (unwanted !== null) return `matches /${String(wanted.not_matches)}/ with "${brief(unwanted[0])}"`;
  if (truncated && (wanted.not_contains !== undefined || wanted.not_matches !== undefined))
    return 'is larger than is read, so that nothing can be said about all of it';
  return undefined;
}

function attributeFault(seen: Evidence, wanted: Parameters): string | undefined {
  const octal = (mode: string | null): number => Number.parseInt(mode ?? '', 8) & 0o7777;
  if (wanted.mode !== undefined && octal(seen.mode) !== octal(wanted.mode))
    return `has mode ${String(seen.mode)}, not ${wanted.mode}`;
  if (wanted.owner !== undefined && seen.owner !== wanted.owner)
    return `belongs to ${String(seen.owner)}, not ${wanted.owner}`;
  if (wanted.group !== undefined && seen.group !== wanted.group)
    return `has group ${String(seen.group)}, not ${wanted.group}`;
  return undefined;
}

export const fileContent = defineChecker<Parameters, Evidence>({
  name: 'file-content',
  summary: 'What a file holds, its mode and its owner.',
  with: parameters,
  evidence,
  gather,
  judge,
});
