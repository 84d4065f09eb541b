/** What a package that loads may still lack before it is fit to count: findings with a rule, file and line. */
import { lstat, readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { errnoOf } from '../../core/errors.js';
import { lintChecks } from './lint-checks.js';
import { lintScripts } from './lint-scripts.js';
import { lintTraps } from './lint-traps.js';
import { keyText, nearestOf } from './problem.js';
import type { TaskPackage } from './schema.js';
import { knownKeys } from './schema-problems.js';
import type { KnownCheckers } from './semantics.js';
import { indexLines, lineOf, type KeyPath, type LineIndex } from './toml-lines.js';
import { parse } from 'smol-toml';

export interface LintFinding {
  rule: string;
  /** Admission refuses a package with errors; warnings are for its author. */
  severity: 'error' | 'warning';
  /** Relative to the package. */
  file: string;
  line: number | null;
  key: string | null;
  message: string;
}

/** A package as the rules see it: every text file read. */
export interface LintSubject {
  task: TaskPackage;
  checkers: KnownCheckers;
  lines: LineIndex;
  /** Text by path; files that are not text are left out. */
  texts: ReadonlyMap<string, string>;
  executables: ReadonlySet<string>;
  /** Reports a finding at a key of task.toml. */
  at: (rule: string, severity: LintFinding['severity'], path: KeyPath, message: string) => LintFinding;
}

/** Every finding, in the order of files and lines. */
export async function lintTask(task: TaskPackage, checkers: KnownCheckers): Promise<LintFinding[]> {
  const subject = await readSubject(task, checkers);
  if (task.foreign) {
    const message =
      'brings only tests/test.sh: it runs, but has no gates, traps and mutants to be admitted by';
    return [
      { rule: 'foreign-package', severity: 'warning', file: 'task.toml', line: null, key: null, message },
    ];
  }
  const findings = [
    ...lintChecks(subject),
    ...lintTraps(subject),
    ...lintScripts(subject),
    ...lintKeys(subject),
    ...lintAllowances(subject),
  ];
  const order = (a: LintFinding, b: LintFinding): number =>
    a.file === b.file ? (a.line ?? 0) - (b.line ?? 0) : a.file < b.file ? -1 : 1;
  return findings.sort(order);
}

async function readSubject(task: TaskPackage, checkers: KnownCheckers): Promise<LintSubject> {
  const texts = new Map<string, string>();
  const executables = new Set<string>();
  for (const entry of await readdir(task.dir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const name = relative(task.dir, path);
    const content = await readFile(path);
    if (!content.subarray(0, 8192).includes(0)) texts.set(name, content.toString('utf8'));
    if (await isExecutable(path)) executables.add(name);
  }
  const lines = indexLines(texts.get('task.toml') ?? '');
  return {
    task,
    checkers,
    lines,
    texts,
    executables,
    at: (rule, severity, path, message) => ({
      rule,
      severity,
      file: 'task.toml',
      line: lineOf(lines, path),
      key: keyText(path),
      message,
    }),
  };
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    return ((await lstat(path)).mode & 0o100) !== 0;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** Tables that Harbor and others may extend are not strict: a key that is nearly one of ours is a slip all the same. */
function lintKeys({ texts, at }: LintSubject): LintFinding[] {
  const findings: LintFinding[] = [];
  const raw = parse(texts.get('task.toml') ?? '') as Record<string, unknown>;
  for (const path of [[], ['task'], ['metadata'], ['agent'], ['environment']]) {
    const table = path.reduce<unknown>(
      (value, part) => (value as Record<string, unknown> | undefined)?.[part],
      raw,
    );
    if (table === null || typeof table !== 'object') continue;
    const known = knownKeys(path);
    for (const key of Object.keys(table)) {
      const near = known.includes(key) ? undefined : nearestOf(key, known);
      if (near === undefined) continue;
      findings.push(at('misspelt-key', 'error', [...path, key], `is not read; did you mean "${near}"?`));
    }
  }
  return findings;
}

/** An allowance that neither solution needs makes room for what no right fix does. */
function lintAllowances({ task, texts, at }: LintSubject): LintFinding[] {
  const solutions = [...texts].filter(([file]) => file.startsWith('solution/')).map(([, text]) => text);
  return task.definition.risk.allow.flatMap(({ resource, node }, index) => {
    const name = resource.replace(/^.*\//, '').replace(/\.(service|socket|timer)$/, '');
    const used = solutions.some((text) => text.includes(name) && text.includes(node));
    if (used) return [];
    const message = `no solution touches "${resource}" on ${node}: an allowance that no right fix needs is too wide`;
    return [at('unused-allowance', 'error', ['risk', 'allow', index], message)];
  });
}
