/** The checker for a one-off command: a script file of the package, run as root on the node. */
import { readFile } from 'node:fs/promises';
import { isAbsolute, join, normalize } from 'node:path';
import { z } from 'zod';
import { InfrabedError, errnoOf } from '../src/core/errors.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { brief, fail, pass, pattern } from './expectation.js';

const parameters = z.strictObject({
  script: z
    .string()
    .min(1)
    .refine((path) => !isAbsolute(path) && !normalize(path).startsWith('..'), 'must lie inside the package')
    .describe('Script of the package (relative path); its first line names bash, sh or python3.'),
  args: z.array(z.string()).default([]).describe('Arguments of the script.'),
  expect_status: z.number().int().min(0).max(255).default(0).describe('Exit status that it must have.'),
  expect_stdout: z.string().optional().describe('Exact standard output, white space at both ends left out.'),
  expect_stdout_matches: pattern
    .optional()
    .describe('Regular expression that its standard output must match.'),
  expect_json: z
    .record(z.string(), z.unknown())
    .optional()
    .describe(
      'Fields that the JSON object it prints must hold, with these values (others may stand beside them).',
    ),
  programs: z
    .enum(['pristine', 'own'])
    .default('pristine')
    .describe('`own` runs it over SSH with the programs of the node, where the agent was to install them.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  exitCode: z.number().nullable(),
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  truncated: z.boolean(),
  stdout: z.string(),
  stderr: z.string(),
});
type Evidence = z.output<typeof evidence>;

async function gather(context: CheckContext, { script, args, programs }: Parameters): Promise<Evidence> {
  const text = await readScript(join(context.taskDir, script));
  const command = {
    argv: [...interpreter(text, script), ...args],
    stdin: text,
    env: { INFRABED_NODE: context.node, INFRABED_MOMENT: context.moment },
    timeoutMs: context.commandTimeoutMs,
    maxOutputBytes: 64 * 1024,
    signal: context.signal,
  };
  const { cluster, node } = context;
  const result = await (programs === 'own' ? cluster.ssh(node, command) : cluster.exec(node, command));
  const { exitCode, signal, timedOut, truncated, stdout, stderr } = result;
  return { exitCode, signal, timedOut, truncated, stdout, stderr };
}

async function readScript(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    throw new InfrabedError('IB_TASK_INVALID', `The check's script ${path} is not in the package.`, {
      cause: error,
    });
  }
}

function interpreter(text: string, script: string): string[] {
  const program = /^#!\s*(?:\/usr\/bin\/env\s+)?(?:\/\S*\/)?([a-z0-9.]+)/.exec(text)?.[1];
  if (program === 'bash' || program === 'sh') return [program, '-s', '--'];
  if (program === 'python3') return ['python3', '-I', '-'];
  throw new InfrabedError(
    'IB_TASK_INVALID',
    `The first line of ${script} names no interpreter that checks may use.`,
    {
      hint: 'Begin it with #!/usr/bin/env bash, #!/bin/sh or #!/usr/bin/env python3.',
    },
  );
}

function judge(seen: Evidence, expected: Parameters): Judgement {
  if (seen.timedOut) return fail('the script did not end in time');
  if (seen.truncated) return fail('the script printed more than is kept');
  if (seen.exitCode !== expected.expect_status) {
    const how = seen.signal === null ? `status ${String(seen.exitCode)}` : `signal ${seen.signal}`;
    const said = brief(seen.stderr || seen.stdout);
    return fail(
      `the script ended with ${how}, not ${String(expected.expect_status)}${said ? `: ${said}` : ''}`,
    );
  }
  const stdout = seen.stdout.trim();
  if (expected.expect_stdout !== undefined && stdout !== expected.expect_stdout.trim())
    return fail(`the script printed "${brief(stdout)}", not "${brief(expected.expect_stdout)}"`);
  const matches = expected.expect_stdout_matches;
  if (matches !== undefined && !new RegExp(matches, 'm').test(stdout))
    return fail(`the script printed "${brief(stdout)}", which does not match /${matches}/`);
  if (expected.expect_json !== undefined) return judgeFields(stdout, expected.expect_json);
  if (expected.expect_stdout === undefined && matches === undefined) return judgeReport(stdout, seen);
  return pass(`the script printed "${brief(stdout)}"`);
}

function judgeFields(stdout: string, wanted: Record<string, unknown>): Judgement {
  const printed = jsonObject(stdout);
  if (printed === undefined) return fail(`the script printed no JSON object but "${brief(stdout)}"`);
  for (const [key, value] of Object.entries(wanted)) {
    const is = key in printed ? JSON.stringify(printed[key]) : 'not there';
    const should = JSON.stringify(value);
    if (is !== should) return fail(`${key} is ${brief(is)}, not ${brief(should)}`);
  }
  return pass(`${Object.keys(wanted).join(', ')} as expected`);
}

/** Without expectations a JSON object may say `pass` itself; only the exit status is left where it prints nothing of it. */
function judgeReport(stdout: string, seen: Evidence): Judgement {
  const said = jsonObject(stdout);
  if (said === undefined || typeof said['pass'] !== 'boolean')
    return pass(`the script ended with status ${String(seen.exitCode)}`);
  const why = typeof said['why'] === 'string' ? said['why'] : `the script says ${JSON.stringify(said)}`;
  return said['pass'] ? pass(why) : fail(why);
}

function jsonObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

export const shell = defineChecker<Parameters, Evidence>({
  name: 'shell',
  summary: 'A script of the package, judged by what it prints (or, weakly, by its exit status).',
  with: parameters,
  evidence,
  gather,
  judge,
});
