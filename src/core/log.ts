/** The log: pino to standard error or to a file, scrubbed of secrets before it is written. */
import { pino, type Logger } from 'pino';

export type { Logger };

/**
 * Text that looks like a key or password assignment; its value becomes [redacted]. An agent chooses the text, so
 * every repetition is bounded: an open one (`\s*` in a lookbehind) took minutes for a MiB of blanks.
 */
const secretPatterns: readonly RegExp[] = [
  /-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----[\s\S]{0,8192}?-----END [A-Z ]{0,24}PRIVATE KEY-----/g,
  /\b(?:sk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{16,}/g,
  // A token of our own server (web/api/token.ts).
  /\bib_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])/g,
  /(?<=\b(?:api[_-]?key|authorization|bearer)["']?\s{0,4}[:=]\s{0,4}["']?)[^\s"',]{8,}/gi,
];

/** Replaces secrets known by value and those recognised by shape. */
export class Redactor {
  private readonly values = new Set<string>();

  /** From now on this value never leaves in clear. Values under 6 characters are refused: they would eat text. */
  add(secret: string): void {
    if (secret.length >= 6) this.values.add(secret);
  }

  redact(text: string): string {
    let out = text;
    for (const value of this.values) out = out.replaceAll(value, '[redacted]');
    for (const pattern of secretPatterns) out = out.replace(pattern, '[redacted]');
    return out;
  }

  /** The same for every string inside a JSON-able value. */
  redactDeep<T>(value: T): T {
    if (typeof value === 'string') return this.redact(value) as T;
    if (Array.isArray(value)) return value.map((item: unknown) => this.redactDeep(item)) as T;
    if (value !== null && typeof value === 'object') {
      return Object.fromEntries(
        Object.entries(value).map(([key, inner]) => [key, this.redactDeep(inner as unknown)]),
      ) as T;
    }
    return value;
  }
}

export const redactor = new Redactor();

/** INFRABED_LOG=debug|info|warn|error|silent; warnings and worse go to standard error by default. */
export const log: Logger = pino(
  {
    level: process.env['INFRABED_LOG'] ?? 'error',
    formatters: { log: (fields) => redactor.redactDeep(fields) },
    base: null,
  },
  pino.destination({ dest: 2, sync: true }),
);
