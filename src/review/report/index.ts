/** The reporters by the name that `--format` gives, and the two that other rooms call directly. */
import type { Reporter } from './reporter.js';
import { terminalReport } from './terminal.js';
import { htmlReport } from './html.js';

export type { Reporter } from './reporter.js';
export { terminalReport } from './terminal.js';
export { writeHtmlReport } from './html.js';
export { comparisonLines, writeComparison } from './comparison.js';

export const reporters: Readonly<Record<'terminal' | 'json' | 'html', Reporter>> = {
  terminal: {
    format: 'terminal',
    render: (score, options) => Promise.resolve(`${terminalReport(score, options).join('\n')}\n`),
  },
  json: {
    format: 'json',
    render: (score) => Promise.resolve(`${JSON.stringify(score)}\n`),
  },
  html: {
    format: 'html',
    render: (score) => htmlReport(score.bundle, score),
  },
};
