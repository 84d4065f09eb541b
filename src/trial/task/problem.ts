/** What is wrong with a task package: file, line, key and what was expected, several at once. */
import { InfrabedError } from '../../core/errors.js';

export { keyText, nearestOf, suggestion } from '../../core/spelling.js';

export interface TaskProblem {
  /** Relative to the package. */
  file: string;
  /** From 1; null where the file itself is the problem. */
  line: number | null;
  /** `checks[2].with.path`, or null. */
  key: string | null;
  /** What is wrong and what was expected. */
  message: string;
}

/** `task.toml:12: checks[0].gates: expected ...` */
export function formatProblem({ file, line, key, message }: TaskProblem): string {
  return `${file}${line === null ? '' : `:${String(line)}`}: ${key === null ? '' : `${key}: `}${message}`;
}

/** The one error for all problems of a package. */
export function invalidTask(dir: string, problems: readonly TaskProblem[], cause?: unknown): InfrabedError {
  const count = problems.length === 1 ? 'a problem' : `${String(problems.length)} problems`;
  const lines = problems.map((problem) => `  ${formatProblem(problem)}`);
  return new InfrabedError('IB_TASK_INVALID', `The task package ${dir} has ${count}:\n${lines.join('\n')}`, {
    hint: 'Correct what is named; docs/writing-tasks.md describes every key.',
    details: { dir, problems },
    ...(cause === undefined ? {} : { cause }),
  });
}
