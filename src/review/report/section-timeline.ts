/** When what happened: the phases as bars on one axis, and the events of the ledger. */
import type { Span } from './activity.js';
import type { ReportContent } from './content.js';
import { html, type Html } from './markup.js';
import { duration, since } from './words.js';

type Timings = ReportContent['score']['timings'];

interface Bar {
  name: string;
  beginAt: number;
  durationMs: number | null;
}

export function timelineSection({ activity, manifest, score }: ReportContent): Html {
  const bars =
    activity.phases.length > 0
      ? fromLedger(activity.phases, score.timings)
      : fromTimings(score.timings, manifest.startedAt);
  const end = Math.max(manifest.endedAt, ...bars.map((bar) => bar.beginAt + (bar.durationMs ?? 0)));
  const whole = Math.max(1, end - manifest.startedAt);
  return html`<h2 id="timeline">Timeline</h2>
    <p class="small soft">
      Started ${new Date(manifest.startedAt).toISOString()};
      ${duration(manifest.endedAt - manifest.startedAt)} in all.
    </p>
    ${bars.map((bar) => line(bar, manifest.startedAt, whole))}
    <details>
      <summary>
        Events: ${String(activity.events.length)} records of the ledger about the cluster, power, connections
        and the agent
      </summary>
      <div class="scroll" tabindex="0" role="region" aria-label="Events">
        <table>
          <thead>
            <tr>
              <th scope="col">time</th>
              <th scope="col">who</th>
              <th scope="col">node</th>
              <th scope="col">what</th>
              <th scope="col">detail</th>
            </tr>
          </thead>
          <tbody>
            ${activity.events.map(
              (event) =>
                html`<tr>
                  <td class="time">${since(manifest.startedAt, event.at)}</td>
                  <td>${event.actor}</td>
                  <td>${event.node}</td>
                  <td class="key"><code>${event.kind}</code></td>
                  <td class="wide"><code>${event.detail}</code></td>
                </tr>`,
            )}
          </tbody>
        </table>
      </div>
    </details>
    ${activity.notes.map((note) => html`<p class="small">${note}</p>`)}`;
}

/** The last phases end when the ledger is sealed already: how long those took, the score knows. */
function fromLedger(phases: readonly Span[], timings: Timings): Bar[] {
  return phases.map(({ name, beginAt, endAt }) => ({
    name,
    beginAt,
    durationMs:
      endAt === null ? ((timings as Readonly<Record<string, number>>)[name] ?? null) : endAt - beginAt,
  }));
}

/** Where the ledger names no phases, they stand one behind the other. */
function fromTimings(timings: Timings, startedAt: number): Bar[] {
  let beginAt = startedAt;
  return Object.entries(timings).map(([name, durationMs]) => {
    const bar = { name, beginAt, durationMs };
    beginAt += durationMs;
    return bar;
  });
}

function line({ name, beginAt, durationMs }: Bar, startedAt: number, whole: number): Html {
  const left = percent((beginAt - startedAt) / whole);
  const width = percent((durationMs ?? 0) / whole);
  const kind = name === 'agent' ? 'bar agent' : 'bar';
  return html`<div class="line">
    <span>${name}</span
    ><span class="track"><span class="${kind}" style="left:${left};width:${width}"></span></span
    ><span class="num">${durationMs === null ? 'cut off' : duration(durationMs)}</span>
  </div>`;
}

function percent(part: number): string {
  return `${(Math.min(1, Math.max(0, part)) * 100).toFixed(2)}%`;
}
