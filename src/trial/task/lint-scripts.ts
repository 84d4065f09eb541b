/** Rules on the scripts of a package: they can be started, and stop at the first error. */
import type { LintFinding, LintSubject } from './lint.js';

/** Scripts that are run as they are; those of checks and workloads get their own look elsewhere. */
const strictScripts = /^(?:solution|mutants|environment)\/(?:.*\/)?[^/]+\.sh$/;

export function lintScripts({ texts, executables, task }: LintSubject): LintFinding[] {
  const findings: LintFinding[] = [];
  const report = (rule: string, file: string, line: number | null, message: string): void => {
    findings.push({ rule, severity: 'error', file, line, key: null, message });
  };
  const workloads = new Set(task.definition.workload.map(({ script }) => script.replace(/^\.\//, '')));
  for (const [file, text] of texts) {
    const strict = strictScripts.test(file);
    if (!strict && !workloads.has(file)) continue;
    if (!text.startsWith('#!'))
      report('no-interpreter', file, 1, 'does not begin with #! and an interpreter');
    if (!executables.has(file)) report('not-executable', file, null, 'is not executable (chmod +x)');
    const shell = /^#!.*\b(?:ba|da)?sh\b/.test(text);
    if (strict && shell && !stopsAtErrors(text))
      report('no-set-e', file, 1, 'goes on after an error; begin it with "set -euo pipefail"');
  }
  return findings;
}

function stopsAtErrors(text: string): boolean {
  return (
    text.split('\n').some((line) => /^\s*set\s+(?:-\w*e\w*|-o\s+errexit)/.test(line)) ||
    /^#!\S+\s+-\w*e/.test(text)
  );
}
