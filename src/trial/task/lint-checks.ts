/** Rules on checks: weak ones, residue that nobody was told about, gates that nothing looks at. */
import type { LintFinding, LintSubject } from './lint.js';
import type { CheckDefinition } from './schema.js';
import { parseCitation } from './semantics.js';

const gates = ['immediate', 'running', 'reboot', 'decommission'] as const;

export function lintChecks(subject: LintSubject): LintFinding[] {
  const { checks } = subject.task.definition;
  const findings = checks.flatMap((check, index) => [
    ...weakParameters(subject, check, index),
    ...weakScript(subject, check),
    ...residueCitation(subject, check, index),
  ]);
  for (const gate of gates) {
    if (checks.some((check) => check.gates.includes(gate))) continue;
    findings.push(
      subject.at('gate-not-covered', 'error', ['checks'], `no check is made at the ${gate} gate`),
    );
  }
  return findings;
}

function weakParameters(subject: LintSubject, check: CheckDefinition, index: number): LintFinding[] {
  const found: LintFinding[] = [];
  const weak = (rule: string, key: string, message: string): void => {
    found.push(subject.at(rule, 'error', ['checks', index, ...key.split('.')], message));
  };
  const table = check.with;
  if (check.availability === 0) weak('always-true', 'availability', 'an availability of 0 is always reached');
  for (const key of ['matches', 'expect_stdout_matches', 'body_matches', 'banner', 'expect_error']) {
    const pattern = table[key];
    if (typeof pattern === 'string' && matchesAnything(pattern))
      weak('always-true', `with.${key}`, 'the pattern matches any text');
  }
  if (table['contains'] === '' || table['body_contains'] === '')
    weak('always-true', 'with', 'every text holds the empty text');
  if (table['max_loss'] === 100)
    weak('always-true', 'with.max_loss', 'a loss of 100 % passes whatever happens');
  if (check.uses === 'sql-query' && !expects(table, ['expect_rows', 'min_rows', 'max_rows', 'expect_error']))
    weak('exit-code-only', 'with', 'only psql’s exit status is judged; expect rows or an error');
  if (check.uses === 'no-drift' && check.gates.some((gate) => gate === 'running' || gate === 'window'))
    weak(
      'drift-in-probes',
      'gates',
      'differences are gathered once a gate, so that probes would all see the same',
    );
  if (check.uses === 'shell' && table['programs'] === 'own')
    found.push(
      subject.at(
        'own-programs',
        'warning',
        ['checks', index, 'with', 'programs'],
        'runs the programs of the node, which the agent may have replaced: only for software the agent is to install',
      ),
    );
  return found;
}

function matchesAnything(pattern: string): boolean {
  try {
    const expression = new RegExp(pattern, 'm');
    return expression.test('') && expression.test('\u0001 no such text');
  } catch {
    return false;
  }
}

function expects(table: Record<string, unknown>, keys: readonly string[]): boolean {
  return keys.some((key) => table[key] !== undefined);
}

const expectations = ['expect_stdout', 'expect_stdout_matches', 'expect_json'];
/** A line that ends so is an exception that its author stands by. */
const exempt = /#\s*lint-ok:\s*\S/;
const swallowed =
  /\|\|\s*(?:true\b|:(?:\s|$)|echo\b)|2>\s*\/dev\/null|&>\s*\/dev\/null|\bset\s+\+e\b|except(?:\s+\w+)?:\s*pass\b/;
const logSearch =
  /\bjournalctl\b(?!.*(?:--since|-S\b|--boot|\s-b\b|--cursor|--after-cursor|\s-n\b|--lines))|\bgrep\b[^|]*\s\/var\/log\//;

/** Rules on the text of the script that a `shell` check runs. */
function weakScript(subject: LintSubject, check: CheckDefinition): LintFinding[] {
  const script = check.with['script'];
  if (check.uses !== 'shell' || typeof script !== 'string') return [];
  const file = script.replace(/^\.\//, '');
  const text = subject.texts.get(file) ?? '';
  const findings: LintFinding[] = [];
  const report = (rule: string, line: number | null, message: string): void => {
    findings.push({ rule, severity: 'error', file, line, key: null, message });
  };
  text.split('\n').forEach((line, index) => {
    if (/^\s*#/.test(line) || exempt.test(line)) return;
    const swallow = swallowed.exec(line);
    if (swallow !== null)
      report(
        'swallowed-error',
        index + 1,
        `"${swallow[0].trim()}" hides an error (or say why: # lint-ok: ...)`,
      );
    if (logSearch.test(line))
      report(
        'unbounded-log-search',
        index + 1,
        'a log is searched without a beginning: entries from before the fault would count',
      );
  });
  if (!expects(check.with, expectations)) lintOutput(text, check, report);
  return findings;
}

function lintOutput(
  text: string,
  check: CheckDefinition,
  report: (rule: string, line: number | null, message: string) => void,
): void {
  const verdicts = [...text.matchAll(/["']pass["']\\?"?\s*:\s*([^,}\n]*)/gi)].map((match) =>
    (match[1] ?? '').trim(),
  );
  if (verdicts.length === 0) {
    report(
      'exit-code-only',
      null,
      `check "${check.id}" judges only the exit status; print { "pass": ..., "why": ... } or expect an output`,
    );
  } else if (verdicts.every((verdict) => /^true$/i.test(verdict))) {
    report('always-true', null, `check "${check.id}" never prints "pass": false`);
  }
}

/** Nobody can be blamed for leaving what nobody asked to remove. */
function residueCitation(subject: LintSubject, check: CheckDefinition, index: number): LintFinding[] {
  const path = ['checks', index, 'cites'] as const;
  if (check.cites === undefined) {
    if (check.class !== 'cleanup' && check.trap !== 'residue') return [];
    const message = `check "${check.id}" asks for cleaning up and cites no line that told the agent to`;
    return [subject.at('uncited-residue', 'error', path, message)];
  }
  const citation = parseCitation(check.cites);
  if (citation === undefined) return [];
  const wanted = plain(citation.text);
  const sources = [...subject.texts].filter(([file]) =>
    citation.node === null ? file === 'instruction.md' : file.startsWith('environment/'),
  );
  if (sources.some(([, text]) => plain(text).includes(wanted))) return [];
  const where = citation.node === null ? 'instruction.md' : 'any file under environment/';
  return [subject.at('citation-not-found', 'error', path, `the text cited does not stand in ${where}`)];
}

/** A text without the differences that line breaks and Markdown make. */
function plain(text: string): string {
  return text.replace(/[`*_]/g, '').replace(/\s+/g, ' ').trim();
}
