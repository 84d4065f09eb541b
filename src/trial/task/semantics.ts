/** What a well-formed task.toml may still get wrong: names of things that are not there. */
import type { z } from 'zod';
import { effectiveChecks, reachabilityGuard } from './effective-checks.js';
import { suggestion, type TaskProblem } from './problem.js';
import type { CheckDefinition, TaskDefinition } from './schema.js';
import { schemaProblems } from './schema-problems.js';
import { lineOf, type KeyPath, type LineIndex } from './toml-lines.js';
import { keyText } from './problem.js';

/** As much of the checkers as the loader and the linter look at. */
export type KnownCheckers = ReadonlyMap<string, { readonly name: string; readonly with: z.ZodType }>;

export interface Candidate {
  definition: TaskDefinition;
  /** Files of the package, relative. */
  files: ReadonlySet<string>;
  instruction: string;
  lines: LineIndex;
  foreign: boolean;
  checkers?: KnownCheckers;
}

type Report = (path: KeyPath, message: string) => void;

export function semanticProblems(task: Candidate): TaskProblem[] {
  const problems: TaskProblem[] = [];
  const report: Report = (path, message) =>
    problems.push({ file: 'task.toml', line: lineOf(task.lines, path), key: keyText(path), message });
  missingFiles(task, problems);
  duplicates(task.definition, report);
  task.definition.checks.forEach((check, index) => {
    examineCheck(task, check, index, report);
    problems.push(...examineParameters(task, check, index));
  });
  examineNames(task, report);
  examineMutants(task, report);
  return problems;
}

function missingFiles({ files, foreign, instruction, definition }: Candidate, problems: TaskProblem[]): void {
  const missing = (file: string, message: string): void => {
    problems.push({ file, line: null, key: null, message });
  };
  if (instruction.trim() === '') missing('instruction.md', 'is missing or empty; the agent reads it');
  if (!foreign && !files.has('solution/solve.sh'))
    missing('solution/solve.sh', 'is missing; it is the reference solution');
  if (definition.checks.length === 0)
    missing('task.toml', 'has no [[checks]], and the package no tests/test.sh: nothing could be judged');
  else if (!definition.checks.some(({ kind }) => kind === 'scored'))
    missing('task.toml', 'has no check of kind "scored": no reward could be given');
}

function duplicates(definition: TaskDefinition, report: Report): void {
  const lists: [KeyPath, string, readonly string[]][] = [
    [['environment', 'nodes'], 'name', definition.environment.nodes.map(({ name }) => name)],
    [['checks'], 'id', definition.checks.map(({ id }) => id)],
    [['mutants'], 'name', definition.mutants.map(({ name }) => name)],
    [['workload'], 'name', definition.workload.map(({ name }) => name)],
  ];
  for (const [path, key, names] of lists) {
    names.forEach((name, index) => {
      const first = names.indexOf(name);
      if (first < index)
        report([...path, index, key], `"${name}" is already ${keyText([...path, first, key])}`);
    });
  }
}

function examineCheck(task: Candidate, check: CheckDefinition, index: number, report: Report): void {
  const at = (key: string): KeyPath => ['checks', index, key];
  requireNode(task, check.on, at('on'), report);
  if (check.kind === 'scored' && check.weight === undefined)
    report(
      ['checks', index],
      `check "${check.id}" is scored and needs a weight (or kind = "guard" or "hard")`,
    );
  if (check.kind !== 'scored' && check.weight !== undefined)
    report(at('weight'), `a check of kind "${check.kind}" carries no weight`);
  if (new Set(check.gates).size < check.gates.length) report(at('gates'), 'names a gate twice');
  if (check.cites !== undefined) examineCitation(task, check.cites, at('cites'), report);
  if (check.uses.startsWith('.')) {
    const file = check.uses.replace(/^\.\//, '');
    if (!/^checks\/[A-Za-z0-9._-]+\.mjs$/.test(file))
      report(at('uses'), `expected "./checks/NAME.mjs", got "${check.uses}"`);
    else if (!task.files.has(file)) report(at('uses'), `there is no file ${file} in the package`);
  } else if (task.checkers !== undefined && !task.checkers.has(check.uses)) {
    const names = [...task.checkers.keys()];
    const hint = suggestion(check.uses, names) || `; there are ${names.join(', ')}`;
    report(at('uses'), `there is no checker "${check.uses}"${hint}`);
  }
}

/** `instruction.md: text` or `NODE:/path: text`. */
export function parseCitation(
  cites: string,
): { node: string | null; path: string; text: string } | undefined {
  const parts = /^(?:([a-z0-9][a-z0-9-]*):)?([^:\s]+):\s*(\S.*)$/s.exec(cites);
  if (parts === null) return undefined;
  return { node: parts[1] ?? null, path: parts[2] ?? '', text: parts[3] ?? '' };
}

function examineCitation(task: Candidate, cites: string, path: KeyPath, report: Report): void {
  const citation = parseCitation(cites);
  if (citation === undefined || (citation.node === null && citation.path !== 'instruction.md'))
    report(path, 'expected "instruction.md: words of it" or "NODE:/path/on/the/node: words of it"');
  else if (citation.node !== null) requireNode(task, citation.node, path, report);
}

/** `with` against the checker's own schema, and what its usual keys point at. */
function examineParameters(task: Candidate, check: CheckDefinition, index: number): TaskProblem[] {
  const prefix: KeyPath = ['checks', index, 'with'];
  const found: TaskProblem[] = [];
  const report: Report = (path, message) =>
    found.push({ file: 'task.toml', line: lineOf(task.lines, path), key: keyText(path), message });
  for (const key of ['script', 'query_file']) {
    const file = check.with[key];
    if (typeof file === 'string' && !check.uses.startsWith('.') && !task.files.has(file.replace(/^\.\//, '')))
      report([...prefix, key], `there is no file ${file} in the package`);
  }
  const { to, nodes } = check.with;
  if (typeof to === 'string' && !/[.:]/.test(to)) requireNode(task, to, [...prefix, 'to'], report);
  if (Array.isArray(nodes))
    nodes.forEach((name: unknown, at) => {
      if (typeof name === 'string') requireNode(task, name, [...prefix, 'nodes', at], report);
    });
  const schema = task.checkers?.get(check.uses)?.with;
  const result = schema?.safeParse(check.with);
  if (schema === undefined || result === undefined || result.success) return found;
  const known = (): string[] => keysOf(schema);
  return [
    ...schemaProblems(result.error, check.with, task.lines, { file: 'task.toml', prefix, known }),
    ...found,
  ];
}

function keysOf(schema: z.ZodType): string[] {
  return 'shape' in schema && typeof schema.shape === 'object' ? Object.keys(schema.shape ?? {}) : [];
}

function examineNames(task: Candidate, report: Report): void {
  const { definition, files } = task;
  definition.environment.nodes.forEach((node, index) => {
    const disks = node.disks_mib.map((_, number) => `data${String(number)}`);
    for (const name of Object.keys(node.disk_iops_sec)) {
      if (disks.includes(name)) continue;
      const has = disks.length === 0 ? 'no data disk (disks_mib)' : disks.join(', ');
      const hint = suggestion(name, disks);
      report(
        ['environment', 'nodes', index, 'disk_iops_sec', name],
        `there is no disk "${name}" on ${node.name}, which has ${has}${hint}`,
      );
    }
  });
  definition.lifecycle.reboot.nodes?.forEach((name, index) => {
    requireNode(task, name, ['lifecycle', 'reboot', 'nodes', index], report);
  });
  definition.workload.forEach((workload, index) => {
    requireNode(task, workload.on, ['workload', index, 'on'], report);
    if (!files.has(workload.script.replace(/^\.\//, '')))
      report(['workload', index, 'script'], `there is no file ${workload.script} in the package`);
  });
  definition.risk.allow.forEach((allowance, index) => {
    requireNode(task, allowance.node, ['risk', 'allow', index, 'node'], report);
  });
  if (!definition.environment.nodes.some(({ agent }) => agent))
    report(['environment', 'nodes'], 'none of the nodes can be reached by the agent');
}

function examineMutants({ definition, files }: Candidate, report: Report): void {
  const ids = effectiveChecks(definition).map(({ id }) => id);
  definition.mutants.forEach((mutant, index) => {
    const script = `mutants/${mutant.name}/solve.sh`;
    if (!files.has(script)) report(['mutants', index, 'name'], `there is no file ${script} in the package`);
    mutant.caught_by.forEach((id, at) => {
      if (!ids.includes(id) && id !== reachabilityGuard)
        report(['mutants', index, 'caught_by', at], `there is no check "${id}"${suggestion(id, ids)}`);
    });
  });
}

function requireNode({ definition }: Candidate, name: string, path: KeyPath, report: Report): void {
  const names = definition.environment.nodes.map((node) => node.name);
  if (names.includes(name)) return;
  report(path, `there is no node "${name}"${suggestion(name, names) || `; there are ${names.join(', ')}`}`);
}
