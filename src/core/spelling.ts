/** Keys of a document as text, and the nearest of the words there are, for messages about slips of the hand. */

/** `checks[2].with.path` */
export function keyText(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${String(part)}]`;
    return text === '' ? String(part) : `${text}.${String(part)}`;
  }, '');
}

/** ` (did you mean "x"?)` for the nearest of the candidates, or nothing where none is near. */
export function suggestion(word: string, candidates: Iterable<string>): string {
  const nearest = nearestOf(word, candidates);
  return nearest === undefined ? '' : ` (did you mean "${nearest}"?)`;
}

/** The candidate with the fewest edits, at most a third of the word's length (and at least one). */
export function nearestOf(word: string, candidates: Iterable<string>): string | undefined {
  const limit = Math.max(1, Math.floor(word.length / 3));
  let best: { candidate: string; distance: number } | undefined;
  for (const candidate of candidates) {
    const distance = edits(word, candidate);
    if (distance <= limit && (best === undefined || distance < best.distance)) best = { candidate, distance };
  }
  return best?.candidate;
}

/** Levenshtein distance, a swap of neighbours counted as one. */
function edits(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, column) => column)];
  const at = (row: number, column: number): number => rows[row]?.[column] ?? Infinity;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const swap =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? at(i - 2, j - 2) + 1 : Infinity;
      row.push(Math.min(at(i - 1, j) + 1, (row[j - 1] ?? Infinity) + 1, at(i - 1, j - 1) + same, swap));
    }
  }
  return at(a.length, b.length);
}
