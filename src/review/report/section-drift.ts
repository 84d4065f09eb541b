/** What was otherwise on the nodes than before the fault, gate by gate, net of what changes by itself. */
import type { DriftFile } from '../../record/bundle/schema.js';
import type { ReportContent } from './content.js';
import { html, type Html } from './markup.js';

type Change = DriftFile['control'][number];

const shownChanges = 300;
const gates = ['immediate', 'running', 'reboot', 'decommission', 'window'] as const;

export function driftSection({ drift }: ReportContent): Html {
  if (drift === null) {
    return html`<h2 id="drift">Drift</h2>
      <p>The trial ended before the nodes were compared with how they were.</p>`;
  }
  const usual = new Set(drift.control.map(keyOf));
  const control = drift.controlRecorded
    ? `Changes that a fault-free control trial makes by itself (${String(drift.control.length)}) are left out.`
    : 'No control trial is recorded, so changes that happen by themselves are among these.';
  return html`<h2 id="drift">Drift</h2>
    <p>What is otherwise on the nodes than before the fault. ${control}</p>
    ${gates.map((gate) => {
      const changes = drift.gates[gate];
      return changes === undefined
        ? null
        : gateDrift(
            gate,
            changes.filter((change) => !usual.has(keyOf(change))),
          );
    })}`;
}

function keyOf({ node, kind, subject, change }: Change): string {
  return JSON.stringify([node, kind, subject, change]);
}

function gateDrift(gate: string, changes: readonly Change[]): Html {
  const title = `At ${gate}: ${String(changes.length)} change${changes.length === 1 ? '' : 's'}`;
  if (changes.length === 0) return html`<p>${title}.</p>`;
  return html`<details>
    <summary>${title}</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="${title}">
      <table>
        <thead>
          <tr>
            <th scope="col">node</th>
            <th scope="col">kind</th>
            <th scope="col">what</th>
            <th scope="col">change</th>
            <th scope="col">before</th>
            <th scope="col">after</th>
          </tr>
        </thead>
        <tbody>
          ${changes.slice(0, shownChanges).map(
            (one) =>
              html`<tr>
                <td>${one.node}</td>
                <td>${one.kind}</td>
                <td class="wide"><code>${one.subject}</code></td>
                <td>${one.change}</td>
                <td><code>${brief(one.before)}</code></td>
                <td><code>${brief(one.after)}</code></td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${changes.length > shownChanges && html`<p class="small">The first ${String(shownChanges)} are shown; drift.json has all.</p>`}
  </details>`;
}

function brief(value: string | null): string {
  if (value === null) return '-';
  return value.length > 120 ? `${value.slice(0, 120)}...` : value;
}
