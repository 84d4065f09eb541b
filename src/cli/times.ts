/**
 * Durations and times as people write them and read them: `1h30m`, `tomorrow 09:00`, ISO 8601; shown in local time.
 * The machine's zone counts (TZ); what happens twice or never in it is refused, not guessed.
 */
import { InfrabedError } from '../core/errors.js';

const unitMs = { w: 604_800_000, d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000 } as const;
const durationPattern = /^(-)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/;
/** More is a slip of the keyboard, and the sums behind it would lose their precision. */
const longestDurationMs = 3650 * unitMs.d;

/**
 * `90m`, `4h`, `2d`, `1h30m`: units w, d, h, m, s from the largest down. Zero and less are parsed: whether they make
 * sense is for the one who asked to say.
 * @param option is named in errors.
 * @throws InfrabedError IB_USAGE.
 */
export function parseDuration(text: string, option: string): number {
  const word = text.trim();
  const match = durationPattern.exec(word);
  const numbers: (string | undefined)[] = match?.slice(2) ?? [];
  if (match === null || numbers.every((number) => number === undefined)) {
    throw wrong(`${option} "${word}" is no duration.`, 'Write it like 90m, 4h, 2d or 1h30m.');
  }
  const factors = Object.values(unitMs);
  const lengthMs = numbers.reduce(
    (sum, number, index) => sum + Number(number ?? 0) * (factors[index] ?? 0),
    0,
  );
  if (lengthMs > longestDurationMs) throw wrong(`${option} "${word}" is longer than ten years.`);
  return match[1] === undefined || lengthMs === 0 ? lengthMs : -lengthMs;
}

/** `1h30m`: whole seconds, days as the largest unit. */
export function formatDuration(durationMs: number): string {
  let rest = Math.round(Math.abs(durationMs) / 1000) * 1000;
  let text = '';
  for (const unit of ['d', 'h', 'm', 's'] as const) {
    const count = Math.floor(rest / unitMs[unit]);
    rest -= count * unitMs[unit];
    if (count > 0) text += `${String(count)}${unit}`;
  }
  if (text === '') return '0m';
  return durationMs < 0 ? `-${text}` : text;
}

const datePart = /^(\d{4})-(\d{2})-(\d{2})$/;
const clockPart = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/;
const zonePart = /(Z|UTC|[+-]\d{2}:?\d{2})$/i;
const howTo =
  'Write it like 2026-12-01T09:00, 2026-12-01T09:00+01:00, 09:00 (the next such), "tomorrow 09:00" or +2h.';

/**
 * A point in time, in epoch milliseconds. ISO 8601 with or without zone (without: local), `HH:MM` (the next such),
 * `today HH:MM`, `tomorrow [HH:MM]`, `+2h`, `-1d`, `now`.
 * @throws InfrabedError IB_USAGE for what is no time, for a day or hour that does not exist, and for one that local time has twice.
 */
export function parseTime(text: string, option: string, nowMs: number): number {
  const words = text.trim();
  if (words === 'now') return nowMs;
  const relative = /^([+-])(\d+[wdhms].*)$/.exec(words);
  if (relative !== null) {
    const lengthMs = parseDuration(relative[2] ?? '', option);
    return relative[1] === '-' ? nowMs - lengthMs : nowMs + lengthMs;
  }
  if (clockPart.test(words)) return nextSuch(words, option, nowMs);
  const day = /^(today|tomorrow)(?:\s+(\S+))?$/i.exec(words);
  if (day !== null) {
    const offset = day[1]?.toLowerCase() === 'tomorrow' ? 1 : 0;
    return local(dayOf(nowMs, offset), parseClock(day[2] ?? '00:00', option), words, option);
  }
  return parseIso(words, option);
}

interface Day {
  year: number;
  month: number;
  day: number;
}

interface TimeOfDay {
  hour: number;
  minute: number;
  second: number;
  ms: number;
}

function nextSuch(words: string, option: string, nowMs: number): number {
  const time = parseClock(words, option);
  const today = local(dayOf(nowMs, 0), time, words, option);
  return today > nowMs ? today : local(dayOf(nowMs, 1), time, words, option);
}

function parseIso(words: string, option: string): number {
  const zone = /[T\s]/.test(words) ? zonePart.exec(words)?.[1] : undefined;
  const bare = zone === undefined ? words : words.slice(0, -zone.length).trim();
  const [date = '', clock = '00:00', ...more] = bare.split(/[T\s]+/);
  const match = datePart.exec(date);
  if (match === null || more.length > 0) throw wrong(`${option} "${words}" is no time.`, howTo);
  const day = { year: Number(match[1]), month: Number(match[2]), day: Number(match[3]) };
  if (!exists(day)) throw wrong(`${option} "${words}": there is no ${date}.`, howTo);
  const time = parseClock(clock, option);
  if (zone === undefined) return local(day, time, words, option);
  return utc(day, time) - zoneOffsetMs(zone, words, option);
}

function parseClock(text: string, option: string): TimeOfDay {
  const match = clockPart.exec(text);
  if (match === null) throw wrong(`${option}: "${text}" is no time of day.`, howTo);
  const [hour, minute, second] = [Number(match[1]), Number(match[2]), Number(match[3] ?? 0)];
  if (hour === 24) throw wrong(`${option}: "${text}" is no time of day.`, 'Write 00:00 of the next day.');
  if (hour > 23 || minute > 59 || second > 59) throw wrong(`${option}: "${text}" is no time of day.`, howTo);
  return { hour, minute, second, ms: Number((match[4] ?? '').padEnd(3, '0')) };
}

function zoneOffsetMs(zone: string, words: string, option: string): number {
  const match = /^([+-])(\d{2}):?(\d{2})$/.exec(zone);
  if (match === null) return 0;
  const [hours, minutes] = [Number(match[2]), Number(match[3])];
  // The widest offset in use is +14:00.
  if (hours > 14 || minutes > 59) throw wrong(`${option} "${words}": there is no zone ${zone}.`, howTo);
  const lengthMs = hours * unitMs.h + minutes * unitMs.m;
  return match[1] === '-' ? -lengthMs : lengthMs;
}

/** Calendar day of a moment in local time, `later` days on. */
function dayOf(atMs: number, later: number): Day {
  const at = new Date(atMs);
  const moved = new Date(Date.UTC(at.getFullYear(), at.getMonth(), at.getDate() + later));
  return { year: moved.getUTCFullYear(), month: moved.getUTCMonth() + 1, day: moved.getUTCDate() };
}

function exists({ year, month, day }: Day): boolean {
  const date = new Date(Date.UTC(year, month - 1, day));
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
}

function utc({ year, month, day }: Day, { hour, minute, second, ms }: TimeOfDay): number {
  return Date.UTC(year, month - 1, day, hour, minute, second, ms);
}

/** Local time has some moments twice (clocks go back) and some never (clocks go forward). */
function local(day: Day, time: TimeOfDay, words: string, option: string): number {
  const wanted = utc(day, time);
  // The offsets before and after any change near that day; a moment counts where it reads as it was written.
  const offsets = new Set([-1, 0, 1].map((days) => offsetMs(wanted + days * unitMs.d)));
  const moments = [...offsets].map((offset) => wanted - offset).filter((at) => at + offsetMs(at) === wanted);
  const [first, second] = moments.sort((a, b) => a - b);
  if (first === undefined) {
    throw wrong(`${option} "${words}" does not exist in ${zoneName()}: clocks go forward over it.`);
  }
  if (second !== undefined) {
    throw wrong(
      `${option} "${words}" comes twice in ${zoneName()}: clocks go back over it.`,
      `Say which: ${isoLocal(first)} or ${isoLocal(second)}.`,
    );
  }
  return first;
}

function offsetMs(atMs: number): number {
  return -new Date(atMs).getTimezoneOffset() * unitMs.m;
}

/** Start of the local day of a moment, `later` days on. Where clocks skip midnight, the first moment of the day. */
export function startOfDay(atMs: number, later = 0): number {
  const at = new Date(atMs);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() + later).getTime();
}

/** IANA name of the local zone, e.g. `Europe/Berlin`. */
export function zoneName(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** `2026-12-01T09:00+01:00`: local time that can be pasted into an option and means the same anywhere. */
export function isoLocal(atMs: number): string {
  // Seconds where there are some, since a start that is pasted must not come out earlier than it was found.
  const rest = atMs % unitMs.m;
  const seconds =
    rest === 0
      ? ''
      : `:${(rest / 1000).toFixed(rest % 1000 === 0 ? 0 : 3).padStart(rest % 1000 === 0 ? 2 : 6, '0')}`;
  return `${localFields(atMs).replace(' ', 'T')}${seconds}${offsetText(atMs)}`;
}

/** `2026-12-01 09:00 +01:00`, for sentences. */
export function formatTime(atMs: number): string {
  return `${localFields(atMs)} ${offsetText(atMs).replace('Z', 'UTC')}`;
}

/** `Tue 12-01 09:00`, for tables whose head names the zone; with the year where it is not this one. */
export function formatShort(atMs: number, nowMs: number): string {
  const fields = localFields(atMs);
  const at = new Date(atMs);
  if (at.getFullYear() !== new Date(nowMs).getFullYear()) return fields;
  return `${weekday(atMs)} ${fields.slice(5)}`;
}

export function weekday(atMs: number): string {
  return ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'][new Date(atMs).getDay()] ?? '';
}

/** What --json carries: ISO 8601 in UTC. */
export function iso(atMs: number): string {
  return new Date(atMs).toISOString();
}

/** To the minute. */
function localFields(atMs: number): string {
  const at = new Date(atMs);
  const two = (number: number): string => String(number).padStart(2, '0');
  const date = `${String(at.getFullYear()).padStart(4, '0')}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

function offsetText(atMs: number): string {
  const minutes = -new Date(atMs).getTimezoneOffset();
  if (minutes === 0) return 'Z';
  const two = (number: number): string => String(Math.floor(number)).padStart(2, '0');
  const size = Math.abs(minutes);
  return `${minutes < 0 ? '-' : '+'}${two(size / 60)}:${two(size % 60)}`;
}

function wrong(message: string, hint?: string): InfrabedError {
  return new InfrabedError('IB_USAGE', message, hint === undefined ? {} : { hint });
}
