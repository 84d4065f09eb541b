/** Numbers and times as a page shows them. */
import type { GateScore } from '../score/score.js';
import { html, type Html } from './markup.js';

/** `2026-01-15 09:30:00 UTC`; a time that is none is shown as it is. */
export function day(atMs: number): string {
  const date = new Date(atMs);
  return Number.isNaN(date.getTime())
    ? String(atMs)
    : `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** `12 ms`, `3.4 s`, `2 min 5 s` */
export function duration(durationMs: number): string {
  if (durationMs < 1000) return `${String(Math.round(durationMs))} ms`;
  if (durationMs < 60_000) return `${(durationMs / 1000).toFixed(1)} s`;
  return `${String(Math.floor(durationMs / 60_000))} min ${String(Math.round((durationMs % 60_000) / 1000))} s`;
}

/** Since the start of the trial: `+12.3 s` */
export function since(startMs: number, atMs: number): string {
  return `+${((atMs - startMs) / 1000).toFixed(1)} s`;
}

export function share(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}

export function bytes(sizeBytes: number): string {
  if (sizeBytes < 1024) return `${String(sizeBytes)} B`;
  if (sizeBytes < 1024 * 1024) return `${(sizeBytes / 1024).toFixed(1)} KiB`;
  return `${(sizeBytes / 1024 / 1024).toFixed(1)} MiB`;
}

const marks: Readonly<Record<GateScore['verdict'], string>> = {
  pass: '✓ pass',
  fail: '✗ fail',
  error: '! error',
  none: 'not checked',
};

/** A verdict as word and sign, so that it does not hang on its colour. */
export function verdictMark(verdict: GateScore['verdict']): Html {
  return html`<span class="verdict ${verdict}">${marks[verdict]}</span>`;
}

/** JSON for reading, cut after `maxLength` characters. */
export function pretty(value: unknown, maxLength = 8000): string {
  const text = JSON.stringify(value, null, 2);
  return text.length > maxLength
    ? `${text.slice(0, maxLength)}\n[... ${String(text.length - maxLength)} characters more in the bundle ...]`
    : text;
}
