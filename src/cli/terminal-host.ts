/**
 * The io host of the terminal: progress on standard error, so that standard output holds data alone.
 * On a terminal the current line is rewritten; elsewhere each step is one line, at most one a second a scope.
 */
import { createInterface } from 'node:readline/promises';
import type { IoEvent, IoHost, Question } from '../core/io.js';

interface Stream {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

const quietIntervalMs = 1000;
const tickMs = 1000;

export class TerminalHost implements IoHost {
  private readonly begun = new Map<string, number>();
  private readonly lastPrinted = new Map<string, number>();
  private live: { text: string; sinceMs: number } | undefined;
  private ticker: NodeJS.Timeout | undefined;

  constructor(
    private readonly err: Stream,
    private readonly options: { quiet?: boolean; answerYes?: boolean } = {},
  ) {}

  notify(event: IoEvent): void {
    if (this.options.quiet && event.type !== 'warning') return;
    switch (event.type) {
      case 'phase':
        this.phase(event);
        break;
      case 'progress': {
        const count = event.total === undefined ? '' : ` (${event.done ?? 0}/${event.total})`;
        this.progress(event.scope, `${event.scope}: ${event.message}${count}`);
        break;
      }
      case 'info':
        this.line(event.message);
        break;
      case 'warning':
        this.line(`warning: ${event.message}`);
        break;
    }
  }

  async ask(question: Question): Promise<boolean> {
    if (this.options.answerYes) return true;
    if (!process.stdin.isTTY || !this.err.isTTY) return question.default;
    this.clearLive();
    const reader = createInterface({ input: process.stdin, output: process.stderr });
    try {
      const answer = await reader.question(`${question.message} [${question.default ? 'Y/n' : 'y/N'}] `);
      return answer.trim() === '' ? question.default : /^y(es)?$/i.test(answer.trim());
    } finally {
      reader.close();
    }
  }

  /** Ends live progress; the cursor stands at the start of an empty line. */
  close(): void {
    this.clearLive();
  }

  private phase(event: Extract<IoEvent, { type: 'phase' }>): void {
    const key = `${event.scope} ${event.phase}`;
    const detail = event.detail === undefined ? '' : ` ${event.detail}`;
    if (event.state === 'begin') {
      this.begun.set(key, Date.now());
      if (this.err.isTTY) this.setLive(`${event.phase} ...`);
      else this.line(`${event.phase} ...${detail}`);
      return;
    }
    const seconds = ((Date.now() - (this.begun.get(key) ?? Date.now())) / 1000).toFixed(1);
    this.begun.delete(key);
    const mark = event.state === 'end' ? 'ok' : 'FAILED';
    this.line(`${event.phase.padEnd(13)} ${mark.padEnd(6)} ${seconds.padStart(6)} s${detail}`);
  }

  private progress(scope: string, text: string): void {
    if (this.err.isTTY) {
      this.setLive(text);
      return;
    }
    const now = Date.now();
    if (now - (this.lastPrinted.get(scope) ?? 0) < quietIntervalMs) return;
    this.lastPrinted.set(scope, now);
    this.line(text);
  }

  private line(text: string): void {
    this.clearLive();
    this.err.write(`${printable(text)}\n`);
  }

  private setLive(text: string): void {
    this.live = { text, sinceMs: Date.now() };
    this.draw();
    this.ticker ??= setInterval(() => this.draw(), tickMs).unref();
  }

  private draw(): void {
    if (!this.live) return;
    const waited = Math.round((Date.now() - this.live.sinceMs) / 1000);
    const text = `${this.live.text}${waited > 0 ? ` ${waited} s` : ''}`;
    this.err.write(`\r\x1b[2K${printable(text).slice(0, (this.err.columns ?? 80) - 1)}`);
  }

  private clearLive(): void {
    clearInterval(this.ticker);
    this.ticker = undefined;
    if (this.live) this.err.write('\r\x1b[2K');
    this.live = undefined;
  }
}

/** Control characters of other programs' output never reach the person's terminal. */
function printable(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '?');
}
