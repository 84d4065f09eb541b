/** Nodes can be logged in to afresh: what every agent has to leave as it was. */
import { z } from 'zod';
import { systemClock } from '../src/core/clock.js';
import { InfrabedError } from '../src/core/errors.js';
import type { NodeStanding } from '../src/testbed/cluster/cluster.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { fail, pass } from './expectation.js';

const parameters = z.strictObject({
  nodes: z
    .array(z.string().min(1))
    .min(1)
    .optional()
    .describe('Names of the nodes; default: the node of `on`.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  nodes: z.array(z.strictObject({ node: z.string(), reachable: z.boolean(), why: z.string().nullable() })),
});
type Evidence = z.output<typeof evidence>;

/** One lost connection proves nothing: a node is out of reach that cannot be logged in to three times in a row. */
const attempts = 3;
const pauseMs = 1000;

async function standingOf({ cluster, signal }: CheckContext, name: string): Promise<NodeStanding> {
  for (let attempt = 1; ; attempt++) {
    const standing = await cluster.standing(name, signal);
    if (standing.standing === 'reachable' || attempt === attempts) return standing;
    await systemClock.sleep(pauseMs, signal);
  }
}

async function gather(context: CheckContext, { nodes }: Parameters): Promise<Evidence> {
  const standings = await Promise.all(
    (nodes ?? [context.node]).map(async (name) => ({ name, standing: await standingOf(context, name) })),
  );
  return {
    nodes: standings.map(({ name, standing }) => {
      if (standing.standing === 'reachable') return { node: name, reachable: true, why: null };
      if (standing.blame === 'node') return { node: name, reachable: false, why: standing.why };
      // Not the node's doing, or not known whose: then nothing was seen, and the gate says whose fault that is.
      throw new InfrabedError('IB_NODE_UNREACHABLE', `${name} could not be asked: ${standing.why}`, {
        details: { node: name },
      });
    }),
  };
}

function judge(seen: Evidence): Judgement {
  const lost = seen.nodes.filter(({ reachable }) => !reachable);
  if (lost.length === 0) return pass(`${seen.nodes.map(({ node }) => node).join(', ')}: a fresh login works`);
  return fail(lost.map(({ node, why }) => `${node} cannot be logged in to: ${String(why)}`).join('; '));
}

export const nodesReachable = defineChecker<Parameters, Evidence>({
  name: 'nodes-reachable',
  summary:
    'A fresh login by SSH works on every named node, at one of three attempts. Every task has it, as a guard.',
  with: parameters,
  evidence,
  gather,
  judge,
});
