/** Whether packets of a size get from one node to another and back, unfragmented. */
import { z } from 'zod';
import { InfrabedError } from '../src/core/errors.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { brief, fail, pass } from './expectation.js';
import { requireSuccess } from './node-script.js';

const parameters = z.strictObject({
  to: z.string().describe('Name of the node (or an address) that is to answer.'),
  size: z
    .number()
    .int()
    .min(0)
    .max(65507)
    .default(56)
    .describe('Bytes of payload; a 9000-byte MTU carries 8972.'),
  count: z.number().int().min(1).max(20).default(3).describe('Packets that are sent.'),
  fragment: z.boolean().default(false).describe('true lets packets be fragmented on the way.'),
  max_loss: z.number().min(0).max(100).default(0).describe('Share of packets that may be lost, in per cent.'),
  reply: z.boolean().default(true).describe('false: no packet may come back.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  address: z.string(),
  sent: z.number(),
  received: z.number(),
  /** "message too long, mtu=1500" and the like, or null. */
  error: z.string().nullable(),
});
type Evidence = z.output<typeof evidence>;

async function gather(context: CheckContext, { to, size, count, fragment }: Parameters): Promise<Evidence> {
  const { cluster } = context;
  const address = cluster.nodes.find(({ name }) => name === to)?.address ?? to;
  const result = await cluster.exec(context.node, {
    argv: [
      'ping',
      '-n',
      '-c',
      String(count),
      '-i',
      '0.2',
      '-W',
      '1',
      '-s',
      String(size),
      '-M',
      fragment ? 'dont' : 'do',
      '--',
      address,
    ],
    env: { LC_ALL: 'C' },
    timeoutMs: context.commandTimeoutMs,
    signal: context.signal,
  });
  // 1: no reply, 2: another error, such as no route: both are what is to be found out.
  if (result.exitCode !== 1 && result.exitCode !== 2) requireSuccess(result, 'ping', context);
  return parsePing(address, `${result.stdout}\n${result.stderr}`, result.exitCode === 2);
}

/**
 * Reads the summary of iputils ping. Without one, ping could not even send, and its message is the evidence.
 * @throws InfrabedError IB_NODE_FAILED when it is neither.
 */
export function parsePing(address: string, output: string, failed: boolean): Evidence {
  const summary = /(\d+) packets transmitted, (\d+) received/.exec(output);
  const complaint = /^(?:ping: |From \S+ ?(?:icmp_seq=\d+ )?)(.+)$/m.exec(output)?.[1];
  const error = complaint === undefined ? null : brief(complaint);
  if (summary !== null) return { address, sent: Number(summary[1]), received: Number(summary[2]), error };
  if (failed && error !== null) return { address, sent: 0, received: 0, error };
  throw new InfrabedError('IB_NODE_FAILED', `ping printed no summary: ${brief(output)}`);
}

function judge(seen: Evidence, { size, max_loss, reply }: Parameters): Judgement {
  const what = `${String(seen.received)} of ${String(seen.sent)} packets of ${String(size)} bytes came back from ${seen.address}`;
  const why = seen.error === null ? what : `${what} (${seen.error})`;
  if (!reply) return seen.received === 0 ? pass(why) : fail(why);
  const lost = seen.sent === 0 ? 100 : (100 * (seen.sent - seen.received)) / seen.sent;
  return seen.received > 0 && lost <= max_loss ? pass(why) : fail(why);
}

export const pingPath = defineChecker<Parameters, Evidence>({
  name: 'ping-path',
  summary: 'Packets of a given size get from the node to another and back, unfragmented.',
  with: parameters,
  evidence,
  programs: ['ping'],
  gather,
  judge,
});
