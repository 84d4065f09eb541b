/** The gates side by side, the checks against them, and the evidence of each check at each gate. */
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import type { CheckScore, TrialScore } from '../score/score.js';
import type { ReportContent } from './content.js';
import { html, type Content, type Html } from './markup.js';
import { duration, pretty, share, since, verdictMark } from './words.js';

const gates = ['immediate', 'running', 'reboot', 'decommission', 'window'] as const;
type Moment = (typeof gates)[number];

const questions: Readonly<Record<Moment, string>> = {
  immediate: 'Is the objective met?',
  running: 'Does it stay met under load?',
  reboot: 'Does it survive a power cycle?',
  decommission: 'Is residue left?',
  window: 'Did it hold from before the fault to the end?',
};

export function gatesSection({ score }: ReportContent): Html {
  return html`<h2 id="gates">Gates</h2>
    <ul class="gates">
      ${gates.map((gate) => {
        const { verdict, passed, failed, errors, seconds } = score.gates[gate];
        const total = passed + failed + errors;
        return html`<li class="${verdict}">
          <h3><span>${gate}</span>${verdictMark(verdict)}</h3>
          <p class="small soft">${questions[gate]}</p>
          <p class="small">
            ${String(passed)} of ${String(total)} checks
            passed${errors > 0 && `, ${String(errors)} with an error`}; ${seconds.toFixed(1)} s
          </p>
        </li>`;
      })}
    </ul>`;
}

export function checksSection(content: ReportContent): Html {
  const { score } = content;
  const ids = [...new Set(score.checks.map(({ id }) => id))];
  return html`<h2 id="checks">Checks</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Checks by gate">
      <table>
        <caption>
          Each verdict leads to its evidence below. A scored check's weight is split over its gates.
        </caption>
        <thead>
          <tr>
            <th scope="col">check</th>
            <th scope="col">kind</th>
            <th scope="col">class</th>
            <th scope="col">trap</th>
            ${gates.map((gate) => html`<th scope="col">${gate}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${ids.map((id) => row(id, score))}
        </tbody>
      </table>
    </div>
    <h3>Evidence</h3>
    ${score.checks.map((check) => evidenceOf(check, content))}`;
}

function row(id: string, score: TrialScore): Html {
  const own = score.checks.filter((check) => check.id === id);
  const [first] = own;
  const weight = own.reduce((sum, check) => sum + check.weight, 0);
  return html`<tr>
    <th scope="row"><code>${id}</code></th>
    <td>${first?.kind}${weight > 0 && ` ${share(weight)}`}</td>
    <td>${first?.class}</td>
    <td>${first?.trap}</td>
    ${gates.map((gate) => {
      const check = own.find((one) => one.gate === gate);
      return html`<td>
        ${check !== undefined && html`<a href="#${anchor(check)}">${verdictMark(check.verdict)}</a>`}
      </td>`;
    })}
  </tr>`;
}

function anchor(check: CheckScore): string {
  return `evidence-${check.id}-${check.gate}`;
}

function evidenceOf(check: CheckScore, content: ReportContent): Html {
  const definition = content.checks.get(check.id);
  const looks = content.evidence.filter(
    (record) => record.check === check.id && record.moment === check.gate,
  );
  const { total, passed, verdicts } = check.probes;
  return html`<details id="${anchor(check)}" ${check.verdict !== 'pass' && html` open`}>
    <summary>${verdictMark(check.verdict)} <code>${check.id}</code> at ${check.gate}: ${check.why}</summary>
    <dl class="facts">
      <dt>checker</dt>
      <dd>
        <code>${definition?.uses}</code> on <code>${definition?.on}</code>, with
        <code>${JSON.stringify(definition?.with ?? {})}</code>
      </dd>
      <dt>kind</dt>
      <dd>
        ${check.kind}${check.weight > 0 && `, ${share(check.weight)} of the weight at this gate`};
        ${check.class}${check.trap !== null && `; catches ${check.trap}`}
      </dd>
      ${
        definition?.cites !== undefined &&
        html`<dt>what the agent was told</dt>
          <dd>${definition.cites}</dd>`
      }
      <dt>looks</dt>
      <dd>${String(passed)} of ${String(total)} passed${paused(verdicts)}</dd>
    </dl>
    ${verdicts.length > 1 && probeStrip(verdicts, passed, total)}
    ${evidenceText(check, looks, content.manifest.startedAt)}
  </details>`;
}

function paused(verdicts: string): string {
  const count = verdicts.split('-').length - 1;
  return count === 0 ? '' : `, ${String(count)} more were not made while the controller rebooted the node`;
}

const shownProbes = 600;

function probeStrip(verdicts: string, passed: number, total: number): Html {
  const label = `${String(passed)} of ${String(total)} probes passed, in order`;
  return html`<div class="probes" role="img" aria-label="${label}">
      ${Array.from(verdicts.slice(0, shownProbes), (letter) => html`<i class="${letter}"></i>`)}
    </div>
    ${verdicts.length > shownProbes && html`<p class="small soft">The first ${String(shownProbes)} probes are drawn.</p>`}`;
}

function evidenceText(check: CheckScore, looks: readonly EvidenceRecord[], startedAt: number): Content {
  const first = looks[0];
  if (first === undefined) return html`<p>No evidence was gathered.</p>`;
  const unmade = looks.find((record) => record.outcome !== 'gathered' && record.outcome !== 'paused');
  return html`<p class="small soft">
      First look at ${since(startedAt, first.at)}, taking
      ${duration(first.durationMs)}.${looks.length > 1 && ' Of several looks, the evidence of the first that did not pass is shown, or else of the last.'}
    </p>
    ${unmade !== undefined && html`<p>${unmade.outcome}${unmade.blame !== undefined && ` (${unmade.blame})`}: ${unmade.error?.code} ${unmade.error?.message}</p>`}
    ${check.evidence !== null && html`<pre>${pretty(check.evidence)}</pre>`}`;
}
