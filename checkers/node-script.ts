/** Runs a script of checkers/scripts on a node, with trusted programs, and parses the JSON that it prints. */
import { readFile } from 'node:fs/promises';
import type { z } from 'zod';
import { InfrabedError } from '../src/core/errors.js';
import { lastLines } from '../src/core/exec.js';
import { asset } from '../src/core/paths.js';
import type { CommandResult } from '../src/testbed/driver/driver.js';
import type { CheckContext } from '../src/trial/gate/checker.js';

/** The text of a script of checkers/scripts. */
export function scriptText(name: string): Promise<string> {
  return readFile(asset(`checkers/scripts/${name}`), 'utf8');
}

/**
 * Runs a Python script of checkers/scripts with one JSON argument; isolated, so that nothing on the node alters it.
 * @throws InfrabedError IB_TIMEOUT or IB_NODE_FAILED when it could not look; what it saw comes back parsed.
 */
export async function runPython<T>(
  context: CheckContext,
  name: string,
  parameters: unknown,
  schema: z.ZodType<T>,
): Promise<T> {
  const result = await context.cluster.exec(context.node, {
    argv: ['python3', '-I', '-', JSON.stringify(parameters)],
    stdin: await scriptText(name),
    timeoutMs: context.commandTimeoutMs,
    maxOutputBytes: 4 * 1024 * 1024,
    signal: context.signal,
  });
  requireSuccess(result, name, context);
  return parseJson(result.stdout, schema, name);
}

/** @throws InfrabedError IB_TIMEOUT or IB_NODE_FAILED for a command that only fails when it could not look. */
export function requireSuccess(result: CommandResult, what: string, context: CheckContext): void {
  if (result.timedOut) {
    throw new InfrabedError(
      'IB_TIMEOUT',
      `"${what}" on ${context.node} did not end within ${String(context.commandTimeoutMs)} ms.`,
      { details: { node: context.node } },
    );
  }
  if (result.exitCode === 0) return;
  const how =
    result.signal === null ? `ended with status ${String(result.exitCode)}` : `was ended by ${result.signal}`;
  throw new InfrabedError(
    'IB_NODE_FAILED',
    `"${what}" on ${context.node} ${how}: ${lastLines(result.stderr, 3)}`,
    {
      details: { node: context.node },
    },
  );
}

/** @throws InfrabedError IB_CHECKER_FAILED when the text is not JSON of that shape. */
export function parseJson<T>(text: string, schema: z.ZodType<T>, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new InfrabedError('IB_CHECKER_FAILED', `"${what}" printed something other than JSON.`, {
      cause: error,
      details: { stdout: text.slice(0, 500) },
    });
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new InfrabedError('IB_CHECKER_FAILED', `"${what}" printed JSON of another shape than it should.`, {
    cause: parsed.error,
  });
}
