/** The difference between two recordings of facts: pure, in a stable order. */
import type { NodeFacts } from '../../testbed/facts/facts.js';
import type { DriftChange } from './drift.js';
import { flattenFacts } from './flatten.js';

/** What is otherwise in `after` than in `before`, ordered by kind and subject. Both are facts of one node. */
export function diffFacts(before: NodeFacts, after: NodeFacts): DriftChange[] {
  const old = flattenFacts(before);
  const recent = flattenFacts(after);
  return Object.keys(old).flatMap((kind) =>
    diffKind(after.node, kind, old[kind] ?? null, recent[kind] ?? null),
  );
}

type Facts = ReadonlyMap<string, string> | null;

function diffKind(node: string, kind: string, before: Facts, after: Facts): DriftChange[] {
  if (before === null || after === null) return diffReadability(node, kind, before, after);
  const changes: DriftChange[] = [];
  for (const subject of [...new Set([...before.keys(), ...after.keys()])].sort()) {
    const was = before.get(subject) ?? null;
    const is = after.get(subject) ?? null;
    if (was === is) continue;
    const change = was === null ? 'added' : is === null ? 'removed' : 'changed';
    changes.push({ node, kind, subject, change, before: was, after: is });
  }
  return changes;
}

/** A kind that can no longer be asked about is itself a change: it must not pass for "nothing changed". */
function diffReadability(node: string, kind: string, before: Facts, after: Facts): DriftChange[] {
  if (before === null && after === null) return [];
  const words = (facts: Facts): string => (facts === null ? 'cannot be read' : 'can be read');
  return [{ node, kind, subject: '*', change: 'changed', before: words(before), after: words(after) }];
}
