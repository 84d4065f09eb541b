/** Processes that must not run (any more). */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { brief, fail, pass, pattern } from './expectation.js';
import { runPython } from './node-script.js';

const parameters = z
  .strictObject({
    command: pattern
      .optional()
      .describe('Regular expression for the whole command line, words joined by blanks.'),
    name: z
      .string()
      .optional()
      .describe('Exact name of the process (as in /proc/PID/comm, at most 15 bytes).'),
    user: z.string().optional().describe('Only processes of this user.'),
  })
  .refine((table) => table.command !== undefined || table.name !== undefined || table.user !== undefined, {
    error: 'needs at least one of command, name, user',
  });
type Parameters = z.output<typeof parameters>;

const process = z.strictObject({ pid: z.number(), user: z.string(), name: z.string(), command: z.string() });
const evidence = z.strictObject({ processes: z.array(process) });
type Evidence = z.output<typeof evidence>;

function gather(context: CheckContext): Promise<Evidence> {
  return runPython(context, 'processes.py', {}, evidence);
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  const command = wanted.command === undefined ? undefined : new RegExp(wanted.command, 'm');
  const found = seen.processes.filter(
    (one) =>
      (command === undefined || command.test(one.command)) &&
      (wanted.name === undefined || one.name === wanted.name) &&
      (wanted.user === undefined || one.user === wanted.user),
  );
  const [first] = found;
  if (first === undefined) return pass(`none of ${String(seen.processes.length)} processes matches`);
  const more = found.length > 1 ? ` and ${String(found.length - 1)} more` : '';
  return fail(
    `process ${String(first.pid)} of ${first.user} runs: ${brief(first.command || first.name)}${more}`,
  );
}

export const processAbsent = defineChecker<Parameters, Evidence>({
  name: 'process-absent',
  summary: 'No process with a command line, name or user runs.',
  with: parameters,
  evidence,
  gather,
  judge,
});
