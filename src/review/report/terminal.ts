/** The scorecard for a terminal: one row a check, the four gates side by side, the reason of each failure beneath. */
import { printable } from '../../core/printable.js';
import type { CheckScore, GateScore, TrialScore, Verdict } from '../score/score.js';

export interface TerminalOptions {
  /** Colour and bold; only for a real terminal. */
  colour: boolean;
  /** Default 100. */
  columns?: number;
}

type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow';
type Paint = (text: string, ...styles: Style[]) => string;

const sequences: Readonly<Record<Style, string>> = {
  bold: '1',
  dim: '2',
  red: '31',
  green: '32',
  yellow: '33',
};

const gates = ['immediate', 'running', 'reboot', 'decommission'] as const;
type Gate = (typeof gates)[number];

const words: Readonly<Record<Verdict, string>> = { pass: 'pass', fail: 'FAIL', error: 'ERROR' };
const colours: Readonly<Record<Verdict, Style>> = { pass: 'green', fail: 'red', error: 'yellow' };

/** The lines of the scorecard. Text that came from nodes or agents has lost its control characters. */
export function terminalReport(score: TrialScore, options: TerminalOptions): string[] {
  const columns = Math.max(60, options.columns ?? 100);
  const paint: Paint = options.colour
    ? (text, ...styles) => `\x1b[${styles.map((style) => sequences[style]).join(';')}m${text}\x1b[0m`
    : (text) => text;
  return [
    ...head(score, paint, columns),
    '',
    ...table(score, paint, columns),
    ...watches(score, paint, columns),
    ...reasons(score, paint, columns),
    '',
    ...wrap(`bundle: ${printable(score.bundle)}`, columns, ''),
  ];
}

function head(score: TrialScore, paint: Paint, columns: number): string[] {
  const good = score.outcome === 'resolved';
  const outcomeStyle: Style = good ? 'green' : score.outcome === 'partial' ? 'yellow' : 'red';
  const facts = [
    `reward ${number(score.reward)}`,
    `effective ${number(score.effective)}`,
    score.safe ? 'safe' : 'NOT SAFE',
    ...(score.timedOut ? ['timed out'] : []),
    ...(score.unattributed ? ['an error that could not be attributed'] : []),
    ...(score.network === undefined ? [] : [score.network === 'none' ? 'closed book' : 'open book']),
  ];
  const title = `${printable(score.task)}  ${printable(score.agent)}  ${printable(score.trial)}`;
  return [
    ...wrap(title, columns, '').map((line) => paint(line, 'bold')),
    `${paint(score.outcome.toUpperCase(), 'bold', outcomeStyle)}  ${facts.join('  ')}`,
  ];
}

interface Row {
  id: string;
  /** Weight of a scored check over all of its gates, else its kind. */
  weight: string;
  class: string;
  trap: string;
  at: Partial<Record<CheckScore['gate'], CheckScore>>;
}

function rowsOf(score: TrialScore, wanted: (check: CheckScore) => boolean): Row[] {
  const rows = new Map<string, Row>();
  for (const check of score.checks.filter(wanted)) {
    const row: Row = rows.get(check.id) ?? {
      id: printable(check.id),
      weight: weightOf(score, check),
      class: check.class,
      trap: check.trap ?? '',
      at: {},
    };
    row.at[check.gate] = check;
    rows.set(check.id, row);
  }
  return [...rows.values()];
}

function weightOf(score: TrialScore, check: CheckScore): string {
  if (check.kind !== 'scored') return check.kind;
  const weight = score.checks.filter(({ id }) => id === check.id).reduce((sum, one) => sum + one.weight, 0);
  return String(Math.round(weight * 1000) / 1000);
}

function table(score: TrialScore, paint: Paint, columns: number): string[] {
  const rows = rowsOf(score, (check) => check.gate !== 'window');
  const room = columns - gates.reduce((sum, gate) => sum + gate.length + 2, 0);
  const widths = columnWidths(rows, room);
  const label = (...texts: string[]): string =>
    widths.map((width, index) => fit(texts[index] ?? '', width)).join(' ');
  const line = (left: string, cellOf: (gate: Gate) => string): string =>
    [left, ...gates.map(cellOf)].join('  ').trimEnd();
  const { gates: totals } = score;
  return [
    paint(
      line(label('CHECK', 'WEIGHT', 'CLASS', 'TRAP'), (gate) => gate),
      'bold',
    ),
    ...rows.map((row) =>
      line(label(row.id, row.weight, row.class, row.trap), (gate) =>
        cell(row.at[gate]?.verdict, gate.length, paint),
      ),
    ),
    line(paint(label('gate'), 'bold'), (gate) => cell(totals[gate].verdict, gate.length, paint)),
    line(label('passed'), (gate) => fit(counted(totals[gate]), gate.length)),
    line(label('seconds'), (gate) => fit(totals[gate].seconds.toFixed(1), gate.length)),
  ];
}

function counted({ passed, failed, errors }: GateScore): string {
  return `${String(passed)}/${String(passed + failed + errors)}`;
}

/** Widths of id, weight, class and trap that fill `room` together; trap, then id, give way. */
function columnWidths(rows: readonly Row[], room: number): number[] {
  const widest = (heading: string, text: (row: Row) => string): number =>
    Math.max(heading.length, ...rows.map((row) => text(row).length));
  const [weight, group] = [widest('WEIGHT', (row) => row.weight), widest('CLASS', (row) => row.class)];
  let trap = widest('TRAP', (row) => row.trap);
  let id = widest('seconds', (row) => row.id);
  const over = (): number => id + weight + group + trap + 3 - room;
  trap -= Math.min(Math.max(0, over()), Math.max(0, trap - 8));
  id -= Math.min(Math.max(0, over()), Math.max(0, id - 12));
  return [id, weight, group, trap];
}

function cell(verdict: Verdict | 'none' | undefined, width: number, paint: Paint): string {
  if (verdict === undefined || verdict === 'none') return paint('-', 'dim') + ' '.repeat(width - 1);
  const word = words[verdict];
  const styles: Style[] = verdict === 'pass' ? [colours[verdict]] : ['bold', colours[verdict]];
  return paint(word, ...styles) + ' '.repeat(Math.max(0, width - word.length));
}

/** The window has probes, not a column: each watch is a row of its own beneath the table. */
function watches(score: TrialScore, paint: Paint, columns: number): string[] {
  const rows = score.checks.filter((check) => check.gate === 'window');
  if (rows.length === 0) return [];
  const seconds = score.gates.window.seconds.toFixed(0);
  return [
    '',
    paint(`window: watched from before the fault to the end, ${seconds} s`, 'bold'),
    ...rows.map((check) => {
      const probes = `${String(check.probes.passed)} of ${String(check.probes.total)} probes`;
      const about = [printable(check.id), watchWeight(score, check), check.class, check.trap ?? ''].filter(
        (text) => text !== '',
      );
      return `  ${cell(check.verdict, 5, paint)}  ${fit(`${about.join(', ')}: ${probes}`, columns - 9).trimEnd()}`;
    }),
  ];
}

function watchWeight(score: TrialScore, check: CheckScore): string {
  return check.kind === 'scored' ? `weight ${weightOf(score, check)}` : check.kind;
}

function reasons(score: TrialScore, paint: Paint, columns: number): string[] {
  const unwell = score.checks.filter((check) => check.verdict !== 'pass');
  return unwell.flatMap((check, index) => {
    const trap = check.trap === null ? '' : ` (trap: ${check.trap})`;
    const title = `${words[check.verdict]} ${printable(check.id)}, ${check.gate}${trap}`;
    return [
      ...(index === 0 ? [''] : []),
      ...wrap(title, columns, '  ').map((line) => paint(line, colours[check.verdict])),
      ...wrap(printable(check.why), columns, '    ').slice(0, 6),
    ];
  });
}

/** Exactly `width` wide; what does not fit ends with `~`. */
function fit(text: string, width: number): string {
  return text.length > width ? `${text.slice(0, Math.max(0, width - 1))}~` : text.padEnd(width);
}

/** Lines of at most `columns` characters, broken at blanks; the second line on is indented deeper by two. */
function wrap(text: string, columns: number, indent: string): string[] {
  const lines: string[] = [];
  let line = indent;
  for (const word of text.split(' ').flatMap((one) => pieces(one, columns - indent.length - 2))) {
    const blank = line.trim() === '' ? '' : ' ';
    if (line.length + blank.length + word.length > columns) {
      lines.push(line);
      line = `${indent}  ${word}`;
    } else line += blank + word;
  }
  return [...lines, line];
}

function pieces(word: string, length: number): string[] {
  if (word.length <= length) return [word];
  return [word.slice(0, length), ...pieces(word.slice(length), length)];
}

function number(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}
