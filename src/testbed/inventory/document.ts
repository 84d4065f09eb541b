/** An inventory's YAML with the line of every key, so that a problem can be shown where it stands. */
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, type Document } from 'yaml';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { keyText } from '../../core/spelling.js';

/** One thing that is wrong with an inventory. */
export interface Problem {
  /** Path of the file, as it was given. */
  file: string;
  /** From 1; null where there is no one place for it. */
  line: number | null;
  /** `nodes[2].power.address`; empty for the whole file. */
  key: string;
  /** What is wrong. */
  what: string;
  /** What to do about it: one sentence. */
  fix: string;
}

export type KeyPath = readonly (string | number)[];

/** The file as plain values, and how to say where something in it stands. */
export interface InventoryDocument {
  value: unknown;
  problemAt(path: KeyPath, what: string, fix: string): Problem;
}

const longestText = 4 * 1024 * 1024;
/** Of how many values aliases may stand for; a thousand nodes that share a table need a thousand. */
const mostAliased = 20_000;

/** Reads the YAML. What is no YAML comes back as problems. */
export function readDocument(
  text: string,
  file: string,
): { document: InventoryDocument; problems: [] } | { document: null; problems: Problem[] } {
  const whole = (line: number | null, what: string, fix: string): Problem => ({
    file,
    line,
    key: '',
    what,
    fix,
  });
  if (text.length > longestText) {
    return { document: null, problems: [whole(null, 'the file is longer than 4 MiB', 'Split the site.')] };
  }
  const lines = new LineCounter();
  // Without pretty errors, whose excerpt of the file could show a secret that was written in clear.
  const parsed = parseDocument(text, { lineCounter: lines, prettyErrors: false, merge: true });
  if (parsed.errors.length > 0) {
    const problems = parsed.errors.map((error) =>
      whole(lines.linePos(error.pos[0]).line, error.message, 'Correct the YAML at this line.'),
    );
    return { document: null, problems };
  }
  let value: unknown;
  try {
    value = parsed.toJS({ maxAliasCount: mostAliased });
  } catch (error) {
    // An alias without its anchor, or a merge (<<) of what is no table, is found out only here.
    const what = messageOf(error);
    const problem = what.startsWith('Excessive alias count')
      ? whole(null, `aliases stand for more than ${String(mostAliased)} values`, 'Write out what they mean.')
      : whole(null, what, 'Set an anchor (&name) before its alias (*name), and merge (<<) only tables.');
    return { document: null, problems: [problem] };
  }
  const problemAt = (path: KeyPath, what: string, fix: string): Problem => {
    const { offset, found } = locate(parsed, path);
    const line = offset === undefined ? null : lines.linePos(offset).line;
    return { file, line, key: keyText(found), what, fix };
  };
  return { document: { value, problemAt }, problems: [] };
}

/** Follows a path as far as the document has it: the offset of its last key, and the part of the path that is there. */
function locate(document: Document.Parsed, path: KeyPath): { offset: number | undefined; found: KeyPath } {
  let node: unknown = document.contents;
  let offset = document.contents?.range[0];
  for (const [depth, part] of path.entries()) {
    if (isAlias(node)) node = node.resolve(document);
    let next: unknown;
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => isScalar(key) && key.value === part);
      const key = pair?.key;
      if (isScalar(key)) offset = key.range?.[0] ?? offset;
      next = pair?.value;
      if (pair === undefined) return { offset, found: path.slice(0, depth) };
    } else if (isSeq(node) && typeof part === 'number' && part < node.items.length) {
      next = node.items[part];
      offset = (next as { range?: [number, number, number] | null } | null)?.range?.[0] ?? offset;
    } else {
      return { offset, found: path.slice(0, depth) };
    }
    node = next;
  }
  return { offset, found: path };
}

/** `lab.yaml:12: nodes[2].power.address: what is wrong. Fix.` */
export function formatProblem({ file, line, key, what, fix }: Problem): string {
  return `${file}${line === null ? '' : `:${String(line)}`}: ${key === '' ? '' : `${key}: `}${what}. ${fix}`;
}

/** The one error for all problems of an inventory. */
export function invalidSite(file: string, problems: readonly Problem[]): InfrabedError {
  const count = problems.length === 1 ? 'a problem' : `${String(problems.length)} problems`;
  const list = problems.map((problem) => `  ${formatProblem(problem)}`);
  return new InfrabedError('IB_SITE_INVALID', `The inventory ${file} has ${count}:\n${list.join('\n')}`, {
    hint: 'Correct what is named; docs/inventory.md describes every key.',
    details: { file, problems },
  });
}
