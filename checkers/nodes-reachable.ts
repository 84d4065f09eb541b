/** Nodes can be logged in to afresh: what every agent has to leave as it was. */
import { z } from 'zod';
import { InfrabedError } from '../src/core/errors.js';
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

async function gather({ cluster, node, signal }: CheckContext, { nodes }: Parameters): Promise<Evidence> {
  const standings = await Promise.all(
    (nodes ?? [node]).map(async (name) => ({ name, standing: await cluster.standing(name, signal) })),
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
  summary: 'A fresh login by SSH works on every named node. Every task has this check, as a guard.',
  with: parameters,
  evidence,
  gather,
  judge,
});
