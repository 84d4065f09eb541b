/** A task in words, as `infrabed task show` prints it. */
import { printable } from '../core/printable.js';
import { effectiveChecks, rebootNodeNames } from '../trial/task/effective-checks.js';
import type { CheckDefinition, TaskPackage } from '../trial/task/schema.js';

/** The lines; every text of the package is made fit for a terminal. */
export function describeTask(task: TaskPackage, admission: string): string[] {
  const { definition, instruction } = task;
  const { metadata, environment, agent, lifecycle } = definition;
  const seconds = (value: number): string => `${String(value)} s`;
  return [
    printable(`${definition.task.name}: ${definition.task.description}`),
    '',
    `Layer ${metadata.layer}, stage ${metadata.stage}, ${metadata.difficulty}. ${admission}`,
    `Folder ${task.dir}, hash ${task.hash.slice(0, 12)}`,
    ...(task.assumed ?? []).map((one) => `Filled in: ${printable(one)}`),
    ...metadata.source.map((source) => `Source: ${printable(source)}`),
    '',
    `Nodes (${environment.type}, layers ${environment.layers.join(', ')}):`,
    ...environment.nodes.map(({ name, roles, agent: reached }) => {
      return `  ${name}${roles.length > 0 ? ` (${roles.join(', ')})` : ''}${reached ? '' : ', out of the agent’s reach'}`;
    }),
    ...definition.workload.map(({ name, on, script }) => `Workload ${name} on ${on}: ${printable(script)}`),
    '',
    `Agent: ${seconds(agent.timeout_sec)}. Running gate: ${seconds(lifecycle.running.duration_sec)}, a probe every ${seconds(lifecycle.running.interval_sec)}.`,
    `Reboot gate: ${rebootNodeNames(definition).join(', ')} ${lifecycle.reboot.order}${lifecycle.reboot.times > 1 ? `, ${String(lifecycle.reboot.times)} times` : ''}, then ${seconds(lifecycle.reboot.settle_sec)} to settle.`,
    '',
    'Instruction:',
    ...instruction
      .trimEnd()
      .split('\n')
      .map((line) => `  ${printable(line)}`),
    '',
    'Checks:',
    ...checkTable(effectiveChecks(definition)),
    ...section(
      'Wrong fixes (mutants):',
      definition.mutants.map(
        ({ name, trap, caught_by }) => `${name} (${trap}), caught by ${caught_by.join(', ')}`,
      ),
    ),
    ...section(
      'Authorised risks:',
      definition.risk.allow.map(
        ({ category, resource, node, why }) => `${category} of ${resource} on ${node}: ${why}`,
      ),
    ),
  ];
}

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : ['', title, ...lines.map((line) => `  ${printable(line)}`)];
}

const moments = ['immediate', 'running', 'reboot', 'decommission', 'window'] as const;

function checkTable(checks: readonly CheckDefinition[]): string[] {
  const width = Math.max(5, ...checks.map(({ id }) => id.length));
  const head = `  ${'CHECK'.padEnd(width)}  KIND    WEIGHT  CLASS        GATES  USES`;
  const rows = checks.map((check) => {
    const marks = moments.map((moment) =>
      check.gates.includes(moment) ? moment.charAt(0).toUpperCase() : '.',
    );
    const cells = [
      check.id.padEnd(width),
      check.kind.padEnd(6),
      (check.weight === undefined ? '-' : String(check.weight)).padEnd(6),
      check.class.padEnd(11),
      marks.join('').padEnd(5),
    ];
    return printable(`  ${cells.join('  ')}  ${check.uses} on ${check.on}`);
  });
  return [head, ...rows, '  Gates: I immediate, R running, R reboot, D decommission, W window, by position'];
}
