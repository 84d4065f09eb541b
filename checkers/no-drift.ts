/** Nothing else on the node is otherwise than before the fault: an allow-list, net of what changes by itself. */
import { z } from 'zod';
import { globMatcher } from '../src/core/glob.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import type { DriftChange } from '../src/trial/drift/drift.js';
import { fail, pass } from './expectation.js';

const parameters = z.strictObject({
  allow: z
    .array(z.string().min(1))
    .default([])
    .describe(
      'Globs on `kind:subject` that may change, such as "file:/etc/systemd/network/*"; `**` crosses slashes.',
    ),
  kinds: z
    .array(z.string().min(1))
    .optional()
    .describe('Only these kinds of change (file, package, unit, user, ...); default: all.'),
  nodes: z.array(z.string().min(1)).optional().describe('Names of the nodes; default: the node of `on`.'),
});
type Parameters = z.output<typeof parameters>;

const change = z.strictObject({
  node: z.string(),
  kind: z.string(),
  subject: z.string(),
  change: z.enum(['added', 'removed', 'changed']),
  before: z.string().nullable(),
  after: z.string().nullable(),
});
const evidence = z.strictObject({
  /** Changes against the baseline that the control trial did not make. At most 500. */
  changes: z.array(change),
  total: z.number(),
  /** Changes left out because the fault-free control trial makes them too. */
  byControl: z.number(),
  controlRecorded: z.boolean(),
});
type Evidence = z.output<typeof evidence>;

async function gather(context: CheckContext, { nodes, kinds }: Parameters): Promise<Evidence> {
  const { changes, control, controlRecorded } = await context.drift();
  const named = new Set(nodes ?? [context.node]);
  const wanted = changes.filter(
    ({ node, kind }) => named.has(node) && (kinds === undefined || kinds.includes(kind)),
  );
  const net = netOf(wanted, control);
  return {
    changes: net.slice(0, 500).map((one) => ({ ...one })),
    total: net.length,
    byControl: wanted.length - net.length,
    controlRecorded,
  };
}

/** Changes that the control trial did not make: same node, same thing, same way of changing. */
export function netOf(changes: readonly DriftChange[], control: readonly DriftChange[]): DriftChange[] {
  const key = ({ node, kind, subject, change }: DriftChange): string =>
    JSON.stringify([node, kind, subject, change]);
  const expected = new Set(control.map(key));
  return changes.filter((one) => !expected.has(key(one)));
}

function judge(seen: Evidence, { allow }: Parameters): Judgement {
  const allowed = globMatcher(allow);
  const unexpected = seen.changes.filter(({ kind, subject }) => !allowed(`${kind}:${subject}`));
  const caveat = seen.controlRecorded ? '' : ' (no control trial is recorded to compare with)';
  if (unexpected.length > 0) {
    const named = unexpected
      .slice(0, 3)
      .map((one) => `${one.kind}:${one.subject} ${one.change} on ${one.node}`);
    const more = unexpected.length > 3 ? ` and ${String(unexpected.length - 3)} more` : '';
    return fail(`${named.join(', ')}${more}${caveat}`);
  }
  if (seen.total > seen.changes.length)
    return fail(`${String(seen.total)} changes are more than can be looked through${caveat}`);
  return pass(
    `no change beyond the ${String(seen.total)} allowed and ${String(seen.byControl)} usual ones${caveat}`,
  );
}

export const noDrift = defineChecker<Parameters, Evidence>({
  name: 'no-drift',
  summary: 'Nothing but what an allow-list names has changed since before the fault.',
  with: parameters,
  evidence,
  programs: ['systemctl', 'ip', 'nft', 'sysctl', 'ss'],
  gather,
  judge,
});
