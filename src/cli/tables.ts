/** Tables and lists of names as the commands print them: fitted to the width of the terminal. */
import Table from 'cli-table3';

/** Borders and blanks that a table of so many columns takes. */
const frame = (columns: number): number => 3 * columns + 1;
/** A column that gives way is not made narrower than this: the line gets longer instead. */
const narrowest = 12;

/**
 * A table of at most `width` columns where that can be: the column `elastic` gives way and wraps at words.
 * Cells may hold several lines.
 */
export function fittedTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  options: { width: number; elastic: number },
): string {
  const widths = head.map((title, column) =>
    Math.max(...[title, ...rows.map((row) => row[column] ?? '')].map(longestLine)),
  );
  const natural = widths[options.elastic] ?? 0;
  const others = widths.reduce((sum, width) => sum + width, 0) - natural;
  const room = Math.max(narrowest, options.width - frame(head.length) - others);
  const table = new Table({
    head: [...head],
    style: { head: [], border: [] },
    wordWrap: true,
    colWidths: widths.map(
      (width, column) => 2 + (column === options.elastic ? Math.min(room, natural) : width),
    ),
  });
  for (const row of rows) table.push([...row]);
  return table.toString();
}

function longestLine(text: string): number {
  return Math.max(...text.split('\n').map((line) => line.length));
}

/** `local/n[01-03,07]`, as an inventory writes ranges: names of a site that differ in a number at the end. */
export function compactNames(names: readonly string[]): string {
  const groups = new Map<string, string[]>();
  for (const name of [...names].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))) {
    const [, before = name, digits = ''] = /^(.*?)(\d*)$/.exec(name) ?? [];
    const key = `${before}\0${String(digits.length)}`;
    groups.set(key, [...(groups.get(key) ?? []), digits]);
  }
  return [...groups].map(([key, digits]) => joined(key.split('\0')[0] ?? '', digits)).join(' ');
}

function joined(before: string, digits: readonly string[]): string {
  if (digits.length === 1) return `${before}${digits[0] ?? ''}`;
  const runs: { first: string; last: string }[] = [];
  for (const number of digits) {
    const run = runs.at(-1);
    if (run !== undefined && Number(number) === Number(run.last) + 1) run.last = number;
    else runs.push({ first: number, last: number });
  }
  return `${before}[${runs.map(({ first, last }) => (first === last ? first : `${first}-${last}`)).join(',')}]`;
}

/** At most so many characters, with `…` for the rest. */
export function shortened(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
