/** The clauses of admission as a pure function: what was run goes in, one sentence for each broken clause comes out. */
import { effectiveChecks } from '../../trial/task/effective-checks.js';
import { lateTraps, type TaskDefinition } from '../../trial/task/schema.js';
import type { AdmissionRun } from './admission-file.js';

export interface AdmissionEvidence {
  definition: TaskDefinition;
  runs: readonly AdmissionRun[];
  /** Runs of the reference solution that were asked for. */
  repeat: number;
  /** Messages of the linter. */
  lint: readonly string[];
  traces: readonly string[];
}

/** Doing nothing must score less than this. */
const idleLimit = 0.5;

/** Empty when the task is fit to count. */
export function brokenClauses(evidence: AdmissionEvidence): string[] {
  return [
    ...ours(evidence),
    ...reference(evidence),
    ...idle(evidence),
    ...mutants(evidence),
    ...neverFailing(evidence),
    ...evidence.lint.map((message) => `lint: ${message}`),
    ...evidence.traces.map((trace) => `trace on a node: ${trace}`),
  ];
}

/** Share of the reference solution's runs that did not resolve the task; 1 when it was not run. */
export function flakeRate(runs: readonly AdmissionRun[]): number {
  const oracle = runs.filter((run) => run.agent === 'oracle');
  return oracle.length === 0 ? 1 : oracle.filter((run) => !run.resolved).length / oracle.length;
}

function ours({ runs }: AdmissionEvidence): string[] {
  return runs
    .filter((run) => ['infra_error', 'verifier_error', 'cancelled'].includes(run.outcome))
    .map((run) => `${run.agent}: ended as ${run.outcome}, which says nothing about the task`);
}

function reference({ runs, repeat }: AdmissionEvidence): string[] {
  const oracle = runs.filter((run) => run.agent === 'oracle');
  const resolved = oracle.filter((run) => run.resolved).length;
  const problems: string[] = [];
  if (resolved < repeat) {
    const failed = [...new Set(oracle.flatMap((run) => run.failed.map(({ id, gate }) => `${id}@${gate}`)))];
    problems.push(
      `oracle: resolved ${String(resolved)} of ${String(repeat)} runs (failed: ${failed.join(', ') || 'none'})`,
    );
  }
  const alternative = runs.filter((run) => run.agent === 'oracle:alternative');
  if (alternative.length === 0) problems.push('oracle:alternative: was not run');
  for (const run of alternative) {
    if (!run.resolved)
      problems.push(`oracle:alternative: is another right fix, but failed ${ids(run).join(', ')}`);
  }
  return problems;
}

function idle({ runs }: AdmissionEvidence): string[] {
  const noop = runs.filter((run) => run.agent === 'noop');
  if (noop.length === 0) return ['noop: was not run'];
  return noop.flatMap((run) => [
    ...(run.resolved ? ['noop: doing nothing resolves the task'] : []),
    ...(run.reward >= idleLimit
      ? [`noop: doing nothing scores ${run.reward.toFixed(2)}, not below 0.5`]
      : []),
  ]);
}

function mutants({ definition, runs }: AdmissionEvidence): string[] {
  return definition.mutants.flatMap((mutant) => {
    const agent = `mutant:${mutant.name}`;
    const run = runs.find((one) => one.agent === agent);
    if (run === undefined) return [`${agent}: was not run`];
    const failed = ids(run);
    const missed = mutant.caught_by.filter((id) => !failed.includes(id));
    const unexpected = failed.filter((id) => !mutant.caught_by.includes(id));
    const early = run.failed.filter(({ gate }) => gate === 'immediate').map(({ id }) => id);
    return [
      ...(missed.length > 0 ? [`${agent}: is not caught by ${missed.join(', ')}`] : []),
      ...(unexpected.length > 0
        ? [`${agent}: also fails ${unexpected.join(', ')}, which it does not name`]
        : []),
      ...(lateTraps.has(mutant.trap) && early.length > 0
        ? [`${agent}: is a late trap (${mutant.trap}), but fails ${early.join(', ')} at the immediate gate`]
        : []),
    ];
  });
}

/** A check that nothing can fail proves nothing. */
function neverFailing({ definition, runs }: AdmissionEvidence): string[] {
  const failed = new Set(
    runs.flatMap((run) => run.failed.filter(({ verdict }) => verdict === 'fail').map(({ id }) => id)),
  );
  return effectiveChecks(definition)
    .filter((check) => check.kind === 'scored' && !failed.has(check.id))
    .map((check) => `check ${check.id}: failed in no run`);
}

function ids(run: AdmissionRun): string[] {
  return [...new Set(run.failed.map(({ id }) => id))];
}
