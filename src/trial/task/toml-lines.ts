/** Finds the line of a key in a TOML text, since the parser gives positions for syntax errors only. */

export type KeyPath = readonly (string | number)[];

/** Line numbers (from 1) of tables and keys, by the JSON text of their path. */
export type LineIndex = ReadonlyMap<string, number>;

/** The line of the longest part of the path that the text has; 1 where it has none. */
export function lineOf(lines: LineIndex, path: KeyPath): number {
  for (let length = path.length; length > 0; length--) {
    const line = lines.get(JSON.stringify(path.slice(0, length)));
    if (line !== undefined) return line;
  }
  return 1;
}

/**
 * Indexes a text that the parser has accepted. Keys inside an inline table or array have the line they stand on
 * where each begins a line, else that of the key outside.
 */
export function indexLines(text: string): LineIndex {
  const lines = new Map<string, number>();
  const arrays = new Map<string, number>();
  let table: (string | number)[] = [];
  let state: ValueState = { depth: 0, quote: null };
  text.split('\n').forEach((line, index) => {
    if (state.depth > 0 || state.quote !== null) {
      state = scanValue(line, state);
      return;
    }
    const header = /^\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$/.exec(line);
    if (header !== null && !/^\s*\[[^\]]*=/.test(line)) {
      table = tablePath(splitKey(header[2] ?? ''), header[1] === '[[', arrays);
      remember(lines, table, index + 1);
      return;
    }
    const key =
      /^\s*((?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=/.exec(
        line,
      );
    if (key === null) return;
    remember(lines, [...table, ...splitKey(key[1] ?? '')], index + 1);
    state = scanValue(line.slice(key[0].length), { depth: 0, quote: null });
  });
  return lines;
}

function remember(lines: Map<string, number>, path: KeyPath, line: number): void {
  const key = JSON.stringify(path);
  if (!lines.has(key)) lines.set(key, line);
}

/** The path of a header: names of arrays of tables carry the index of their last element. */
function tablePath(names: string[], opensElement: boolean, arrays: Map<string, number>): (string | number)[] {
  const path: (string | number)[] = [];
  names.forEach((name, position) => {
    path.push(name);
    const key = JSON.stringify(path);
    const last = position === names.length - 1;
    if (last && opensElement) arrays.set(key, (arrays.get(key) ?? -1) + 1);
    const element = arrays.get(key);
    if (element !== undefined) path.push(element);
  });
  return path;
}

function splitKey(text: string): string[] {
  const parts = text.match(/"(?:[^"\\]|\\.)*"|'[^']*'|[^.\s]+/g) ?? [];
  return parts.map((part) => (/^["']/.test(part) ? part.slice(1, -1) : part));
}

interface ValueState {
  /** Open brackets and braces of a value that goes over several lines. */
  depth: number;
  /** The delimiter of an open multi-line string. */
  quote: '"""' | "'''" | null;
}

function scanValue(line: string, from: ValueState): ValueState {
  let { depth, quote } = from;
  let rest = line;
  while (rest !== '') {
    if (quote !== null) {
      const end = rest.indexOf(quote);
      if (end < 0) return { depth, quote };
      rest = rest.slice(end + 3);
      quote = null;
    } else if (rest.startsWith('"""') || rest.startsWith("'''")) {
      quote = rest.startsWith('"') ? '"""' : "'''";
      rest = rest.slice(3);
    } else {
      if (rest.startsWith('#')) break;
      const string = /^(?:"(?:[^"\\]|\\.)*"|'[^']*')/.exec(rest);
      if (string === null && /^[[{]/.test(rest)) depth++;
      if (string === null && /^[\]}]/.test(rest)) depth--;
      rest = rest.slice(string?.[0].length ?? 1);
    }
  }
  return { depth: Math.max(0, depth), quote };
}
