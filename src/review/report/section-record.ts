/** On what the trial ran, how far its record reaches, and whether the record is whole. */
import type { ReportContent } from './content.js';
import { html, type Html } from './markup.js';
import { day } from './words.js';

export function settingSection({ manifest, task, instruction, consoles }: ReportContent): Html {
  const { metadata } = task;
  return html`<h2 id="setting">Setting</h2>
    <dl class="facts">
      <dt>task</dt>
      <dd>
        ${metadata.layer}, ${metadata.stage}, ${metadata.difficulty};
        ${manifest.task.admitted ? 'admitted' : 'NOT admitted: its figures do not count in campaigns'}
      </dd>
      <dt>sources</dt>
      <dd>${metadata.source.join('; ') || 'none named'}</dd>
      <dt>backend</dt>
      <dd>${manifest.backend}</dd>
      <dt>network of the agent</dt>
      <dd>
        ${manifest.network === 'none' ? 'none beside the gateway (closed book)' : "the host's (open book)"}
      </dd>
      ${Object.entries(manifest.versions).map(
        ([name, version]) =>
          html`<dt>${name}</dt>
            <dd>${version}</dd>`,
      )}
      <dt>task hash</dt>
      <dd class="mono">${manifest.task.hash}</dd>
      <dt>image hash</dt>
      <dd class="mono">${manifest.imageHash}</dd>
      <dt>nonce</dt>
      <dd class="mono">${manifest.nonce}</dd>
    </dl>
    <div class="scroll">
      <table>
        <caption>
          Nodes
        </caption>
        <thead>
          <tr>
            <th scope="col">name</th>
            <th scope="col">address</th>
            <th scope="col">roles</th>
            <th scope="col">the agent's</th>
          </tr>
        </thead>
        <tbody>
          ${manifest.nodes.map(
            (node) =>
              html`<tr>
                <th scope="row">${node.name}</th>
                <td>${node.address}</td>
                <td>${node.roles.join(', ')}</td>
                <td>${node.agent ? 'yes' : 'no: it cannot reach this node'}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <details>
      <summary>What the agent was asked (instruction.md)</summary>
      <pre>${instruction.slice(0, 40_000)}</pre>
    </details>
    ${consoles.map(
      ({ name, tail }) =>
        html`<details>
          <summary>Console of ${name.replace(/\.log$/, '')}, its end</summary>
          <pre>${tail}</pre>
        </details>`,
    )}`;
}

export function recordSection({ manifest, ledger, files, score }: ReportContent): Html {
  return html`<h2 id="record">Record</h2>
    <h3>How far it reaches</h3>
    ${
      manifest.coverage.length === 0
        ? html`<p>Nothing was noted.</p>`
        : html`<ul>
            ${manifest.coverage.map((sentence) => html`<li>${sentence}</li>`)}
          </ul>`
    }
    <h3>Whether it is whole</h3>
    ${ledgerState(ledger, files)}
    <dl class="facts">
      <dt>bundle</dt>
      <dd class="mono">${score.bundle}</dd>
      <dt>ended</dt>
      <dd>${day(manifest.endedAt)}, ${manifest.ending}</dd>
      <dt>head of the chain</dt>
      <dd class="mono">${ledger?.head ?? 'none'}</dd>
      <dt>sealed with the key</dt>
      <dd class="mono">${ledger?.publicKey ?? 'not sealed'}</dd>
    </dl>`;
}

function ledgerState(ledger: ReportContent['ledger'], files: ReportContent['files']): Html {
  if (ledger === null)
    return html`<p><span class="verdict fail">✗ no ledger</span> There is no ledger that can be read.</p>`;
  const fileProblems = files?.problems ?? [];
  const whole = ledger.ok && fileProblems.length === 0;
  const state = whole
    ? html`<span class="verdict pass">✓ whole</span>`
    : html`<span class="verdict fail">✗ not whole</span>`;
  return html`<p>
      ${state} ${String(ledger.count)} records, when this page was made.
      ${files?.listed === true && `${String(files.count)} files were compared with the hashes in the ledger.`}
      Verify it yourself: <code>infrabed ledger verify</code>.
    </p>
    ${
      (ledger.problems.length > 0 || fileProblems.length > 0) &&
      html`<ul>
        ${ledger.problems.slice(0, 50).map(({ line, problem }) => html`<li>${line === null ? '' : `line ${String(line)}: `}${problem}</li>`)}${fileProblems.slice(0, 50).map((problem) => html`<li>${problem}</li>`)}
      </ul>`
    }`;
}
