/** Several trials of one task side by side: which gate stopped which agent. For the terminal and as a page. */
import { readFile } from 'node:fs/promises';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { writeFileAtomic } from '../../core/disk.js';
import { asset } from '../../core/paths.js';
import { printable } from '../../core/printable.js';
import { bundleFiles } from '../../record/bundle/schema.js';
import type { GateScore, TrialScore } from '../score/score.js';
import { html, styleElement, type Html } from './markup.js';
import { verdictMark } from './words.js';

const gates = ['immediate', 'running', 'reboot', 'decommission', 'window'] as const;
const words: Readonly<Record<GateScore['verdict'], string>> = {
  pass: 'pass',
  fail: 'FAIL',
  error: 'ERROR',
  none: '-',
};

/** Three decimals at most, as the scorecard of one trial has them. */
const short = (reward: number): string => String(Number(reward.toFixed(3)));

/** One row a trial, one column a gate; beneath, the checks that stopped each. */
export function comparisonLines(scores: readonly TrialScore[]): string[] {
  const rows = [
    ['AGENT', ...gates, 'reward', 'outcome'],
    ...scores.map((score) => [
      printable(score.agent),
      ...gates.map((gate) => words[score.gates[gate].verdict]),
      short(score.reward),
      score.outcome,
    ]),
  ];
  const widths =
    rows[0]?.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length))) ?? [];
  const lines = rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  const reasons = scores.flatMap((score) =>
    failedAt(score).map((reason) => `  ${printable(score.agent)}: ${reason}`),
  );
  return reasons.length === 0 ? lines : [...lines, '', 'stopped by', ...reasons];
}

/** `gate: check, check` for each gate that did not pass. */
function failedAt(score: TrialScore): string[] {
  return gates.flatMap((gate) => {
    const failed = score.checks.filter((check) => check.gate === gate && check.verdict !== 'pass');
    return failed.length === 0 ? [] : [`${gate}: ${failed.map((check) => check.id).join(', ')}`];
  });
}

/**
 * Writes the same as one self-contained page whose rows lead to the reports of the trials.
 * @throws InfrabedError IB_DISK_FULL or IB_STATE_DIR.
 */
export async function writeComparison(path: string, scores: readonly TrialScore[]): Promise<void> {
  const style = await readFile(asset('src/review/report/page.css'), 'utf8');
  const title = [...new Set(scores.map((score) => score.task))].join(', ');
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>infrabed: ${title}</title>
        ${styleElement(style)}
      </head>
      <body>
        <header>
          <div>
            <h1>${title}</h1>
            <p>Which gate stopped which agent. Every row leads to the report of its trial.</p>
          </div>
        </header>
        <main>
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>agent</th>
                  ${gates.map((gate) => html`<th>${gate}</th>`)}
                  <th>reward</th>
                  <th>outcome</th>
                </tr>
              </thead>
              <tbody>
                ${scores.map((score) => row(score, dirname(resolve(path))))}
              </tbody>
            </table>
          </div>
        </main>
      </body>
    </html>`;
  await writeFileAtomic(path, page.text);
}

/** Links are relative, so that page and bundles can move together. */
function row(score: TrialScore, from: string): Html {
  const report = relative(from, join(score.bundle, bundleFiles.report))
    .split(sep)
    .map(encodeURIComponent)
    .join('/');
  return html`<tr>
    <td>
      <a href="${report}"><code>${score.agent}</code></a>
    </td>
    ${gates.map((gate) => cell(score, gate))}
    <td>${short(score.reward)}</td>
    <td>${score.outcome}</td>
  </tr>`;
}

function cell(score: TrialScore, gate: (typeof gates)[number]): Html {
  const { verdict } = score.gates[gate];
  if (verdict === 'none') return html`<td></td>`;
  const failed = score.checks.filter((check) => check.gate === gate && check.verdict !== 'pass');
  return html`<td>
    ${verdictMark(verdict)} ${failed.map((check) => html`<br /><code>${check.id}</code>`)}
  </td>`;
}
