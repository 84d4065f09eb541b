/** The frame of report.html: head, order of the sections, style and script within the page itself. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { asset } from '../../core/paths.js';
import type { ReportContent } from './content.js';
import { html, scriptElement, styleElement, type Html } from './markup.js';
import { agentSection, recordingsSection } from './section-agent.js';
import { checksSection, gatesSection } from './section-checks.js';
import { driftSection } from './section-drift.js';
import { recordSection, settingSection } from './section-record.js';
import { timelineSection } from './section-timeline.js';
import { day, duration, share } from './words.js';

/** The page as text. */
export function page(content: ReportContent): string {
  const { score, manifest } = content;
  const scripts = content.recordings.length === 0 ? [pageScript()] : [playerScript(), pageScript()];
  const body = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta http-equiv="Content-Security-Policy" content="${policy(scripts)}" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="robots" content="noindex" />
        <title>${score.outcome}: ${score.task}, ${score.agent}</title>
        ${styleElement(pageStyle())} ${content.recordings.length > 0 && styleElement(playerStyle())}
      </head>
      <body>
        <a class="skip" href="#gates">Skip to the gates</a>
        ${head(content)}
        <nav aria-label="Sections">
          <div>
            <a href="#gates">Gates</a><a href="#checks">Checks</a><a href="#timeline">Timeline</a
            ><a href="#agent">Agent</a>
            ${content.recordings.length > 0 && html`<a href="#recordings">Recordings</a>`}<a href="#drift"
              >Drift</a
            ><a href="#setting">Setting</a><a href="#record">Record</a>
          </div>
        </nav>
        <main>
          ${gatesSection(content)} ${checksSection(content)} ${timelineSection(content)}
          ${agentSection(content)} ${recordingsSection(content)} ${driftSection(content)}
          ${settingSection(content)} ${recordSection(content)}
          <footer>
            Made by infrabed ${manifest.infrabed} from the bundle of trial
            <span class="mono">${score.trial}</span>. This page asks nothing of any network.
          </footer>
        </main>
        ${scripts.map(scriptElement)}
      </body>
    </html> `;
  return body.text;
}

function head({ score, manifest, task }: ReportContent): Html {
  const kind = score.outcome === 'resolved' ? 'pass' : score.outcome === 'partial' ? 'error' : 'fail';
  return html`<header>
    <div>
      <p class="soft small">${score.trial}, attempt ${manifest.attempt}, ${day(manifest.startedAt)}</p>
      <h1>${score.task}</h1>
      <p>${task.task.description}</p>
      <dl class="score">
        <div>
          <dt>outcome</dt>
          <dd><span class="verdict ${kind}">${score.outcome.replaceAll('_', ' ')}</span></dd>
        </div>
        <div>
          <dt>reward</dt>
          <dd>${share(score.reward)}</dd>
        </div>
        <div>
          <dt>effective</dt>
          <dd>${share(score.effective)}</dd>
        </div>
        <div>
          <dt>safe</dt>
          <dd>${score.safe ? 'yes' : 'no'}</dd>
        </div>
        <div>
          <dt>agent</dt>
          <dd>${score.agent}</dd>
        </div>
        <div>
          <dt>its time</dt>
          <dd>
            ${manifest.agentExit === null ? 'did not run' : duration(manifest.agentExit.durationMs)}${score.timedOut && ', timed out'}
          </dd>
        </div>
        <div>
          <dt>network</dt>
          <dd>${manifest.network === 'none' ? 'closed book' : 'open book'}</dd>
        </div>
      </dl>
      ${score.unattributed && html`<p>An error of this trial could not be attributed to anyone; it is not to be repeated by itself.</p>`}
      ${manifest.error !== undefined && html`<p><strong>${manifest.error.code}</strong>: ${manifest.error.message} ${manifest.error.hint ?? ''}</p>`}
    </div>
  </header>`;
}

/** Nothing is loaded from anywhere, and only the scripts that this file put there run, whatever else got in. */
function policy(scripts: readonly string[]): string {
  const hashes = scripts.map((script) => `'sha256-${createHash('sha256').update(script).digest('base64')}'`);
  return [
    "default-src 'none'",
    `script-src ${hashes.join(' ')} 'wasm-unsafe-eval'`,
    "style-src 'unsafe-inline'",
    'img-src data:',
    'font-src data:',
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

const read = (path: string): string => readFileSync(path, 'utf8');
const require = createRequire(import.meta.url);

const pageStyle = (): string => read(asset('src/review/report/page.css'));
const pageScript = (): string => read(asset('src/review/report/browser.js'));
const playerStyle = (): string => read(require.resolve('asciinema-player/dist/bundle/asciinema-player.css'));
const playerScript = (): string =>
  read(require.resolve('asciinema-player/dist/bundle/asciinema-player.min.js'));
