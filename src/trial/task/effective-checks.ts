/** The checks that a trial makes and a review expects: the task's own and the guard that every task has. */
import type { CheckDefinition, TaskDefinition } from './schema.js';

/** Id of the guard; a task that declares a check of this id replaces it. */
export const reachabilityGuard = 'nodes-reachable';

/** The task's checks, and a guard that a fresh login works on every node the agent can reach, in all four gates. */
export function effectiveChecks(definition: TaskDefinition): CheckDefinition[] {
  const nodes = definition.environment.nodes.filter(({ agent }) => agent).map(({ name }) => name);
  const [first] = nodes;
  if (first === undefined || definition.checks.some(({ id }) => id === reachabilityGuard)) {
    return definition.checks;
  }
  const guard: CheckDefinition = {
    id: reachabilityGuard,
    gates: ['immediate', 'running', 'reboot', 'decommission'],
    uses: 'nodes-reachable',
    on: first,
    with: { nodes },
    kind: 'guard',
    class: 'functional',
    after_teardown: false,
    availability: 1,
    interval_sec: 2,
    timeout_sec: 30,
  };
  return [...definition.checks, guard];
}

/** Nodes that the reboot gate power-cycles: those named, else every node that the agent can reach. */
export function rebootNodeNames(definition: TaskDefinition): string[] {
  const named = definition.lifecycle.reboot.nodes;
  return named ?? definition.environment.nodes.filter(({ agent }) => agent).map(({ name }) => name);
}
