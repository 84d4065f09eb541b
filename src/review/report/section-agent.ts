/** What the agent did: every command through the gateway with what went in and came out, and its terminal sessions. */
import type { AgentCommand } from './activity.js';
import type { ReportContent } from './content.js';
import type { Excerpt } from './excerpt.js';
import { dataElement, html, type Html } from './markup.js';
import { bytes, duration, since } from './words.js';

export function agentSection({ activity, manifest, agentLogs }: ReportContent): Html {
  const { commands } = activity;
  return html`<h2 id="agent">Agent</h2>
    <p>
      ${ending(manifest.agentExit)} It opened ${String(commands.length)}
      session${commands.length === 1 ? '' : 's'} on the nodes. Network:
      ${manifest.network === 'none' ? 'none beside the gateway (closed book)' : "the host's (open book)"}.
    </p>
    <ul class="commands">
      ${commands.map((command) => html`<li>${commandOf(command, manifest.startedAt)}</li>`)}
    </ul>
    ${agentLogs.length > 0 && html`<h3>What it printed itself</h3>`}
    ${agentLogs.map(
      ({ name, tail }) =>
        html`<details>
          <summary>${name}, its end</summary>
          <pre>${tail}</pre>
        </details>`,
    )}`;
}

function ending(exit: ReportContent['manifest']['agentExit']): string {
  if (exit === null) return 'The agent did not run.';
  const how = exit.signal === null ? `with status ${String(exit.exitCode)}` : `by ${exit.signal}`;
  return `The agent ended ${how} after ${duration(exit.durationMs)}.`;
}

function commandOf(command: AgentCommand, startedAt: number): Html {
  const title = command.command ?? `(${command.kind})`;
  const kind = command.ended === '0' ? 'pass' : command.ended === null ? 'none' : 'error';
  const about = [
    command.kind,
    command.durationMs === null ? 'no end on record' : duration(command.durationMs),
  ];
  return html`<details>
    <summary>
      <span class="soft small">${since(startedAt, command.at)} ${command.node}</span>
      <span class="verdict ${kind}">${command.ended ?? '?'}</span> <code>${short(gist(command, title))}</code>
    </summary>
    <p class="small soft">
      ${about.join(', ')}; session
      ${command.command === null && command.kind !== 'sftp' ? html`<a href="#recordings">${command.session}</a>` : command.session}
    </p>
    ${title.length > shortLength && html`<pre>${title.slice(0, 20_000)}</pre>`}
    ${command.streams.map(({ name, excerpt }) => streamOf(name, excerpt))}
    ${
      command.files.length > 0 &&
      html`<h3>Files</h3>
        <ul>
          ${command.files.map((file) => html`<li><code>${file}</code></li>`)}
        </ul>`
    }
  </details>`;
}

/** What was done, in a line: of file transfers the first file, of a script on standard input its first command. */
function gist(command: AgentCommand, title: string): string {
  const paths = new Set(command.files.flatMap((file) => /\bpath=(\S+)/.exec(file)?.[1] ?? []));
  if (paths.size > 0) return `${title}: ${[...paths].join(', ')}`;
  if (!/^(ba|da|)sh( -\S+)*$/.test(title)) return title;
  const script = command.streams.find(({ name }) => name === 'stdin')?.excerpt.text ?? '';
  const line = script.split('\n').find((one) => /^\s*[^#\s]/.test(one) && !/^\s*set -/.test(one));
  return line === undefined ? title : `${title}: ${line}`;
}

function streamOf(name: string, excerpt: Excerpt): Html {
  const size = `${bytes(excerpt.sizeBytes)}, SHA-256 ${excerpt.sha256.slice(0, 16)}`;
  return html`<p class="small soft">${name}: ${size}</p>
    ${
      excerpt.text === ''
        ? html`<p class="small">Not on this page, which has its limit; it is in the bundle.</p>`
        : html`<pre>${excerpt.text}</pre>`
    }`;
}

const shortLength = 160;

function short(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > shortLength ? `${line.slice(0, shortLength)}...` : line;
}

export function recordingsSection({ recordings, recordingsLeftOut, activity }: ReportContent): Html {
  if (recordings.length === 0 && recordingsLeftOut === 0) return html``;
  const byCast = new Map(activity.commands.map((command) => [`${command.session}.cast`, command]));
  return html`<h2 id="recordings">Recorded sessions</h2>
    ${recordings.map(({ name, cast, cut }) => {
      const command = byCast.get(name);
      return html`<details class="recording">
        <summary>
          ${name}${command !== undefined && `, ${command.node ?? ''}: ${short(command.command ?? command.kind)}`}${cut && ' (its beginning)'}
        </summary>
        <div class="player"></div>
        ${dataElement(cast)}
        <noscript><p>Playing needs JavaScript; the file is sessions/${name} in the bundle.</p></noscript>
      </details>`;
    })}
    ${recordingsLeftOut > 0 && html`<p class="small">${String(recordingsLeftOut)} more recordings are in the bundle (sessions/), not on this page, which has its limit.</p>`}`;
}
