/** Rules on what shows that the checks catch something: solutions, mutants and their traps. */
import type { LintFinding, LintSubject } from './lint.js';
import { lateTraps } from './schema.js';

const enoughTraps = 3;

export function lintTraps(subject: LintSubject): LintFinding[] {
  const { texts, task, at } = subject;
  const { checks, mutants, metadata } = task.definition;
  const findings: LintFinding[] = [];
  if (!texts.has('solution/alternative/solve.sh')) {
    const message =
      'is missing: a materially different right fix shows that the checks judge the result, not the way';
    findings.push({
      rule: 'no-alternative',
      severity: 'error',
      file: 'solution/alternative/solve.sh',
      line: null,
      key: null,
      message,
    });
  }
  const tried = new Set(mutants.map(({ trap }) => trap));
  if (tried.size < enoughTraps)
    findings.push(
      at(
        'few-traps',
        'error',
        ['mutants'],
        `there are mutants of ${String(tried.size)} traps; at least ${String(enoughTraps)} are wanted`,
      ),
    );
  if (![...tried].some((trap) => lateTraps.has(trap)))
    findings.push(
      at(
        'no-late-mutant',
        'error',
        ['mutants'],
        `no mutant has a late trap (${[...lateTraps].join(', ')}): nothing shows that the later gates are needed`,
      ),
    );
  checks.forEach(({ trap, id }, index) => {
    if (trap === undefined || tried.has(trap)) return;
    findings.push(
      at(
        'trap-without-mutant',
        lateTraps.has(trap) ? 'error' : 'warning',
        ['checks', index, 'trap'],
        `no mutant shows that check "${id}" catches the trap ${trap}`,
      ),
    );
  });
  if (metadata.source.length === 0)
    findings.push(
      at('no-source', 'warning', ['metadata', 'source'], 'names no source: where has this failure happened?'),
    );
  return [...findings, ...lateMutants(subject)];
}

/** A mutant of a late trap passes every immediate check, so the check that catches it has to look later, too. */
function lateMutants({ task, at }: LintSubject): LintFinding[] {
  const { checks, mutants } = task.definition;
  return mutants.flatMap((mutant, index) => {
    if (!lateTraps.has(mutant.trap)) return [];
    return mutant.caught_by.flatMap((id, position) => {
      const check = checks.find((one) => one.id === id);
      if (check === undefined || check.gates.some((gate) => gate !== 'immediate')) return [];
      const message = `check "${id}" looks only at the immediate gate, which a mutant of the late trap ${mutant.trap} has to pass`;
      return [at('late-mutant-caught-early', 'error', ['mutants', index, 'caught_by', position], message)];
    });
  });
}
