/** Tables and lists of names as the commands print them: fitted to the width of the terminal. */
import Table from 'cli-table3';

/** Borders and blanks that a table of so many columns takes. */
const frame = (columns: number): number => 3 * columns + 1;
/** A column that gives way is not made narrower than this: the line gets longer instead. */
const narrowest = 12;

export interface TableOptions {
  width: number;
  /** The column that gives way and wraps at words. */
  elastic: number;
  /** Rows of one line stand one below the other without a line between them. */
  dense?: boolean;
}

/** A table of at most `width` columns where that can be. Cells may hold several lines. */
export function fittedTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  { width, elastic, dense = false }: TableOptions,
): string {
  const widths = head.map((title, column) =>
    Math.max(...[title, ...rows.map((row) => row[column] ?? '')].map(longestLine)),
  );
  const natural = widths[elastic] ?? 0;
  const others = widths.reduce((sum, one) => sum + one, 0) - natural;
  const room = Math.min(natural, Math.max(narrowest, width - frame(head.length) - others));
  const wrapped = rows.map((row) =>
    row.map((cell, column) => (column === elastic ? wrap(cell, room) : cell.split('\n'))),
  );
  const table = new Table({
    head: [...head],
    style: { head: [], border: [] },
    colWidths: widths.map((one, column) => 2 + (column === elastic ? room : one)),
  });
  const lines = dense ? [joinRows(wrapped)] : wrapped;
  for (const row of lines) table.push(row.map((cell) => cell.join('\n')));
  return table.toString();
}

/** All rows as one: each as high as its highest cell. */
function joinRows(rows: readonly string[][][]): string[][] {
  const joined: string[][] = [];
  for (const row of rows) {
    const height = Math.max(...row.map((cell) => cell.length));
    for (const [column, cell] of row.entries()) {
      const padding = Array.from({ length: height - cell.length }, () => '');
      joined[column] = [...(joined[column] ?? []), ...cell, ...padding];
    }
  }
  return joined;
}

/** At words; a word that is longer than a line is cut. */
function wrap(text: string, width: number): string[] {
  return text.split('\n').flatMap((paragraph) => {
    const lines = [''];
    for (const word of paragraph.split(' ')) {
      const longer = lines.at(-1) === '' ? word : `${lines.at(-1) ?? ''} ${word}`;
      if (longer.length <= width) lines[lines.length - 1] = longer;
      else lines.push(...cut(word, width));
    }
    return lines[0] === '' && lines.length > 1 ? lines.slice(1) : lines;
  });
}

function cut(word: string, width: number): string[] {
  return Array.from({ length: Math.max(1, Math.ceil(word.length / width)) }, (_, index) =>
    word.slice(index * width, (index + 1) * width),
  );
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
