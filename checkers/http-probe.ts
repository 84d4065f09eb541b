/** One HTTP request, as a client on a node makes it. */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, brief, fail, oneOrMore, pass, pattern } from './expectation.js';
import { runPython } from './node-script.js';

const parameters = z.strictObject({
  to: z.string().optional().describe('Name of the node that is asked; default: the node of `on`.'),
  address: z.string().optional().describe('Address to ask instead of that of `to`.'),
  port: z.number().int().min(1).max(65535).describe('TCP port.'),
  path: z.string().startsWith('/').default('/').describe('Path and query.'),
  scheme: z.enum(['http', 'https']).default('http').describe('https does not verify the certificate.'),
  host: z.string().optional().describe('Host header (and the name for TLS); default: the address.'),
  status: z
    .union([z.number().int(), z.array(z.number().int()).min(1)])
    .default(200)
    .describe('Status, or list of them, that it must answer with. Redirections are not followed.'),
  body_contains: oneOrMore.optional().describe('Text, or list of texts, that the body must hold.'),
  body_matches: pattern.optional().describe('Regular expression that the body must match.'),
  max_ms: z.number().positive().optional().describe('Longest time for the whole answer, in milliseconds.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  url: z.string(),
  /** null when there was no answer; `error` says why. */
  status: z.number().nullable(),
  error: z.string().nullable(),
  headers: z.record(z.string(), z.string()),
  /** The first 64 KiB. */
  body: z.string(),
  durationMs: z.number(),
});
type Evidence = z.output<typeof evidence>;

function gather(context: CheckContext, wanted: Parameters): Promise<Evidence> {
  const address = wanted.address ?? context.cluster.node(wanted.to ?? context.node).address;
  const { scheme, port, path } = wanted;
  const timeoutMs = Math.min(10_000, context.commandTimeoutMs / 2);
  const request = { scheme, address, port, path, host: wanted.host ?? null, timeoutMs, limit: 64 * 1024 };
  return runPython(context, 'http-probe.py', request, evidence);
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  if (seen.status === null) return fail(`${seen.url} gave no answer: ${String(seen.error)}`);
  const statuses = typeof wanted.status === 'number' ? [wanted.status] : wanted.status;
  if (!statuses.includes(seen.status))
    return fail(`${seen.url} answered ${String(seen.status)}, not ${statuses.join(' or ')}`);
  for (const text of asList(wanted.body_contains))
    if (!seen.body.includes(text)) return fail(`the body of ${seen.url} does not hold "${brief(text)}"`);
  if (wanted.body_matches !== undefined && !new RegExp(wanted.body_matches, 'm').test(seen.body))
    return fail(`the body of ${seen.url} does not match /${wanted.body_matches}/`);
  if (wanted.max_ms !== undefined && seen.durationMs > wanted.max_ms)
    return fail(`${seen.url} took ${String(seen.durationMs)} ms, more than ${String(wanted.max_ms)}`);
  return pass(`${seen.url} answered ${String(seen.status)} in ${String(seen.durationMs)} ms`);
}

export const httpProbe = defineChecker<Parameters, Evidence>({
  name: 'http-probe',
  summary: 'An HTTP request from a node is answered with the status, body and speed that are asked for.',
  with: parameters,
  evidence,
  gather,
  judge,
});
