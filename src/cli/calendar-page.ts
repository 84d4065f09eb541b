/** The calendar in a terminal: one row a node, one letter a lease, cells of equal local time, a legend below. */
import { formatShort, formatTime, startOfDay, weekday, zoneName } from './times.js';
import { printable } from '../core/printable.js';
import { shortened } from './tables.js';

export interface CalendarBooking {
  lease: string;
  owner: string;
  purpose: string;
  startMs: number;
  endMs: number;
  /** End of the cleaning gap. */
  busyUntilMs: number;
}

export interface CalendarNode {
  name: string;
  /** State in the life cycle. */
  state: string;
  bookings: readonly CalendarBooking[];
}

export interface PageOptions {
  /** Any moment of the first day. */
  fromMs: number;
  days: number;
  nowMs: number;
  width: number;
}

/** Without X, which small marks maintenance. */
const letters = 'ABCDEFGHIJKLMNOPQRSTUVWYZ';
/** Cells a day: each divides 24 hours, so that the hours stand under one another. */
const cellsADay = [48, 24, 12, 8, 6, 4, 3, 2, 1];
/** How a node that nobody gets looks in the time to come. */
const closedMarks: Readonly<Record<string, string>> = { quarantined: '!', maintenance: 'x', enrolled: '?' };

interface Cell {
  startMs: number;
  endMs: number;
}

interface Mark {
  letter: string;
  /** One of its bookings: all begin and end together. */
  booking: CalendarBooking;
}

/** The lines of the page. */
export function calendarPage(nodes: readonly CalendarNode[], options: PageOptions): string[] {
  const labels = nodes.map(({ name }) => name);
  const sites = new Set(labels.map((name) => name.split('/')[0]));
  const short = (name: string): string => (sites.size === 1 ? name.slice(name.indexOf('/') + 1) : name);
  const labelWidth = Math.max(...labels.map((name) => short(name).length), 3) + 1;
  const perDay = cellsThatFit(options, labelWidth);
  const days = daysOf(options, perDay);
  const marks = markLeases(nodes, days);
  const rows = nodes.map((node) => {
    const cells = days.map((day) => day.map((cell) => cellText(node, cell, marks, options.nowMs)).join(''));
    return `${short(node.name).padEnd(labelWidth)}${cells.join('│')}`;
  });
  return [
    heading(options, perDay),
    '',
    ...header(days, perDay, labelWidth, options),
    ...rows,
    '',
    ...legend(rows, labelWidth, marks, options),
  ].map((line) => line.trimEnd());
}

function cellsThatFit({ days, width }: PageOptions, labelWidth: number): number {
  return cellsADay.find((perDay) => labelWidth + days * perDay + days - 1 <= width) ?? 1;
}

/** Local midnights make the days, so that one has 23 or 25 hours where clocks change. */
function daysOf({ fromMs, days }: PageOptions, perDay: number): Cell[][] {
  const minutes = (24 * 60) / perDay;
  const bound = (day: number, index: number): number => {
    const at = new Date(fromMs);
    return new Date(at.getFullYear(), at.getMonth(), at.getDate() + day, 0, index * minutes).getTime();
  };
  return Array.from({ length: days }, (_day, day) =>
    Array.from({ length: perDay }, (_cell, index) => ({
      startMs: bound(day, index),
      // Where an hour is left out a cell would be empty, and belong to nobody.
      endMs: Math.max(bound(day, index + 1), bound(day, index) + 1),
    })),
  );
}

function markLeases(nodes: readonly CalendarNode[], days: readonly Cell[][]): Map<string, Mark> {
  const from = days[0]?.[0]?.startMs ?? 0;
  const to = days.at(-1)?.at(-1)?.endMs ?? 0;
  const present = nodes
    .flatMap(({ bookings }) => bookings)
    .filter(({ startMs, endMs }) => startMs < to && endMs > from);
  const leases = [...new Map(present.map((booking) => [booking.lease, booking])).values()];
  leases.sort((a, b) => a.startMs - b.startMs || (a.lease < b.lease ? -1 : 1));
  return new Map(leases.map((booking, index) => [booking.lease, { letter: letters[index] ?? '#', booking }]));
}

function cellText(
  node: CalendarNode,
  { startMs, endMs }: Cell,
  marks: ReadonlyMap<string, Mark>,
  nowMs: number,
): string {
  const half = (endMs - startMs) / 2;
  const overlap = (from: number, to: number): number => Math.min(to, endMs) - Math.max(from, startMs);
  const present = node.bookings
    .map((booking) => ({ mark: marks.get(booking.lease), ms: overlap(booking.startMs, booking.endMs) }))
    .filter(({ ms }) => ms > 0)
    .sort((a, b) => b.ms - a.ms)[0];
  const letter = present?.mark?.letter;
  if (present !== undefined && letter !== undefined)
    return present.ms >= half ? letter : letter.toLowerCase();
  const closed = closedMarks[node.state];
  if (closed !== undefined && endMs > nowMs) return closed;
  if (node.bookings.some((booking) => overlap(booking.endMs, booking.busyUntilMs) >= half)) return '-';
  return '·';
}

function heading({ fromMs, days }: PageOptions, perDay: number): string {
  const minutes = (24 * 60) / perDay;
  const cell = minutes % 60 === 0 ? `${String(minutes / 60)} h` : `${String(minutes)} min`;
  const first = formatTime(startOfDay(fromMs)).slice(0, 10);
  const last = formatTime(startOfDay(fromMs, days - 1)).slice(0, 10);
  return `${first}${days > 1 ? ` to ${last}` : ''}, local time (${zoneName()}), one character is ${cell}`;
}

function header(
  days: readonly Cell[][],
  perDay: number,
  labelWidth: number,
  { nowMs }: PageOptions,
): string[] {
  const indent = ' '.repeat(labelWidth);
  const lines = [...dayLines(days, perDay), ...hourLines(days.length, perDay)].map((line) => indent + line);
  const now = days
    .flatMap((day, index) => [...day, ...(index < days.length - 1 ? [undefined] : [])])
    .findIndex((cell) => cell !== undefined && cell.startMs <= nowMs && nowMs < cell.endMs);
  if (now < 0) return lines;
  const column = labelWidth + now;
  const roomAtTheRight = labelWidth + days.length * (perDay + 1) - 1 - column;
  // The word stands left of the mark where there is no room at its right.
  const mark = roomAtTheRight >= '▼ now'.length ? `${' '.repeat(column)}▼ now` : 'now ▼'.padStart(column + 1);
  return [...lines, mark];
}

function dayLines(days: readonly Cell[][], perDay: number): string[] {
  const starts = days.map((day) => day[0]?.startMs ?? 0);
  const dates = starts.map((at) => String(new Date(at).getDate()).padStart(2));
  // One column a day: the two digits stand one below the other.
  if (perDay === 1) return [0, 1].map((digit) => dates.map((date) => date[digit]).join(' '));
  if (perDay < 6) return [dates.map((date) => date.trim().padEnd(perDay)).join(' ')];
  return [starts.map((at, index) => `${weekday(at)} ${dates[index]?.trim() ?? ''}`.padEnd(perDay)).join(' ')];
}

function hourLines(days: number, perDay: number): string[] {
  const hours = perDay >= 12 ? [0, 6, 12, 18] : perDay >= 6 ? [0, 12] : [];
  if (hours.length === 0) return [];
  const ticks = hours.map((hour) => String(hour).padEnd(perDay / hours.length)).join('');
  return [Array.from({ length: days }, () => ticks).join(' ')];
}

function legend(
  rows: readonly string[],
  labelWidth: number,
  marks: ReadonlyMap<string, Mark>,
  { nowMs, width }: PageOptions,
): string[] {
  const cells = rows.map((row) => row.slice(labelWidth)).join('');
  const lines: string[] = [];
  const named = [...marks.values()].filter(({ letter }) => letter !== '#');
  const shown = named.map(({ letter, booking }) => [
    letter,
    booking.lease,
    shortened(printable(booking.owner), 12),
    `${formatShort(booking.startMs, nowMs)} - ${formatShort(booking.endMs, nowMs)}`,
    printable(booking.purpose),
  ]);
  const widths = [0, 1, 2, 3].map((column) => Math.max(0, ...shown.map((row) => (row[column] ?? '').length)));
  for (const row of shown) {
    const line = row.map((text, column) => text.padEnd(widths[column] ?? 0)).join('  ');
    lines.push(shortened(line.trimEnd(), width));
  }
  const further = marks.size - named.length;
  if (further > 0) lines.push(`#  ${String(further)} more leases: "infrabed lease list" has all`);
  const used = (mark: string): boolean => cells.includes(mark);
  const signs = [
    used('·') ? '· free' : '',
    /[a-z]/.test(cells.replaceAll('x', '')) ? 'a small letter: less than half of that time' : '',
    used('-') ? '- being cleaned' : '',
    used('!') ? '! quarantined' : '',
    used('x') ? 'x maintenance' : '',
    used('?') ? '? not clean yet' : '',
  ].filter((text) => text !== '');
  return [...lines, ...(lines.length > 0 ? [''] : []), ...filled(signs, width)];
}

/** Texts behind one another, as many on a line as fit. */
function filled(texts: readonly string[], width: number): string[] {
  const lines: string[] = [];
  for (const text of texts) {
    const longer = lines.length === 0 ? text : `${lines.at(-1) ?? ''}, ${text}`;
    if (lines.length > 0 && longer.length <= width) lines[lines.length - 1] = longer;
    else lines.push(text);
  }
  return lines;
}
