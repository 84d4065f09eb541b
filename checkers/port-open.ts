/** Whether a TCP port answers, as seen from a node or from the controller. */
import { z } from 'zod';
import { isInfrabedError } from '../src/core/errors.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { brief, fail, pass, pattern } from './expectation.js';
import { runPython } from './node-script.js';

const parameters = z.strictObject({
  port: z.number().int().min(1).max(65535).describe('TCP port.'),
  to: z.string().optional().describe('Name of the node that is asked; default: the node of `on`.'),
  address: z.string().optional().describe('Address to ask instead of that of `to`, such as "127.0.0.1".'),
  from: z
    .enum(['node', 'controller'])
    .default('node')
    .describe(
      '`node`: the node of `on` asks. `controller`: the controller does, from the network of the cluster.',
    ),
  open: z.boolean().default(true).describe('false: it must not answer.'),
  banner: pattern
    .optional()
    .describe('Regular expression for what the service says first (up to 256 bytes).'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  address: z.string(),
  open: z.boolean(),
  /** refused, timeout, unreachable or another word; null when it is open. */
  error: z.string().nullable(),
  banner: z.string().nullable(),
  durationMs: z.number().nullable(),
});
type Evidence = z.output<typeof evidence>;

async function gather(context: CheckContext, wanted: Parameters): Promise<Evidence> {
  const target = wanted.to ?? context.node;
  if (wanted.from === 'controller') return fromController(context, target, wanted.port);
  const address = wanted.address ?? context.cluster.node(target).address;
  const timeoutMs = Math.min(5000, context.commandTimeoutMs / 2);
  const request = { address, port: wanted.port, timeoutMs, banner: wanted.banner !== undefined };
  return runPython(context, 'tcp-probe.py', request, evidence);
}

/** A refused connection is only evidence when the node itself answers; otherwise it is not known. */
async function fromController(context: CheckContext, target: string, port: number): Promise<Evidence> {
  const { cluster } = context;
  const { address } = cluster.node(target);
  try {
    const stream = await cluster.dial(target, port, context.signal);
    stream.on('error', () => undefined);
    stream.destroy();
    return { address, open: true, error: null, banner: null, durationMs: null };
  } catch (error) {
    if (!isInfrabedError(error, 'IB_NODE_UNREACHABLE')) throw error;
    const standing = await cluster.standing(target, context.signal);
    if (standing.standing === 'unreachable') throw error;
    return { address, open: false, error: brief(error.message), banner: null, durationMs: null };
  }
}

function judge(seen: Evidence, { port, open, banner }: Parameters): Judgement {
  const where = `port ${String(port)} of ${seen.address}`;
  if (!open)
    return seen.open ? fail(`${where} answers`) : pass(`${where} does not answer (${String(seen.error)})`);
  if (!seen.open) return fail(`${where} does not answer: ${String(seen.error)}`);
  if (banner !== undefined && !new RegExp(banner, 'm').test(seen.banner ?? ''))
    return fail(`${where} answers "${brief(seen.banner ?? '')}", which does not match /${banner}/`);
  return pass(`${where} answers`);
}

export const portOpen = defineChecker<Parameters, Evidence>({
  name: 'port-open',
  summary: 'A TCP port answers (or does not), as seen from a node or from the controller.',
  with: parameters,
  evidence,
  gather,
  judge,
});
