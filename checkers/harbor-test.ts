/** Runs a foreign package's tests/test.sh as Harbor does and takes the reward file that it writes. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { brief, fail, pass } from './expectation.js';
import { parseJson, requireSuccess, scriptText } from './node-script.js';

const parameters = z.strictObject({
  threshold: z.number().min(0).max(1).default(1).describe('Reward from which on the check passes.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  exitCode: z.number(),
  /** What reward.txt or reward.json holds (its `reward`, else the mean of its numbers); null without either. */
  reward: z.number().nullable(),
  rewardFile: z.string().nullable(),
  /** The end of what the test printed. */
  output: z.string(),
});
type Evidence = z.output<typeof evidence>;

const printed = z.object({
  exitCode: z.number(),
  rewardText: z.string().nullable(),
  rewardJson: z.string().nullable(),
  output: z.string(),
});

async function gather(context: CheckContext): Promise<Evidence> {
  const files = await packedTests(join(context.taskDir, 'tests'));
  const result = await context.cluster.exec(context.node, {
    argv: ['python3', '-I', '-c', await scriptText('harbor-test.py'), String(context.commandTimeoutMs)],
    stdin: JSON.stringify(files),
    timeoutMs: context.commandTimeoutMs,
    signal: context.signal,
  });
  requireSuccess(result, 'tests/test.sh', context);
  const { exitCode, rewardText, rewardJson, output } = parseJson(result.stdout, printed, 'harbor-test.py');
  return {
    exitCode,
    reward: parseReward(rewardText, rewardJson),
    rewardFile: rewardText ?? rewardJson,
    output,
  };
}

interface PackedFile {
  path: string;
  executable: boolean;
  base64: string;
}

async function packedTests(folder: string): Promise<PackedFile[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  return Promise.all(
    files.map(async (file) => ({
      path: relative(folder, file),
      executable: ((await stat(file)).mode & 0o100) !== 0,
      base64: (await readFile(file)).toString('base64'),
    })),
  );
}

/** reward.txt holds one number; reward.json an object of numbers. null where it is neither. */
export function parseReward(text: string | null, json: string | null): number | null {
  if (text !== null && text.trim() !== '') {
    const value = Number(text.trim());
    return Number.isFinite(value) ? value : null;
  }
  const table = z.record(z.string(), z.number()).safeParse(json === null ? undefined : safeJson(json));
  if (!table.success) return null;
  const numbers = Object.values(table.data);
  if (numbers.length === 0) return null;
  return table.data['reward'] ?? numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
}

function safeJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function judge(seen: Evidence, { threshold }: Parameters): Judgement {
  if (seen.reward === null)
    return fail(
      `tests/test.sh left no reward (status ${String(seen.exitCode)}): ${brief(seen.output.slice(-300))}`,
    );
  const why = `tests/test.sh gave the reward ${String(seen.reward)}`;
  return seen.reward >= threshold ? pass(why) : fail(`${why}, below ${String(threshold)}`);
}

export const harborTest = defineChecker<Parameters, Evidence>({
  name: 'harbor-test',
  summary: 'tests/test.sh of a foreign package, judged by the reward file that it writes.',
  with: parameters,
  evidence,
  gather,
  judge,
});
