/** Glob patterns as allow-lists write them: `*` stays within a path segment, `**` crosses them, `?` is one character. */

/** The regular expression of a glob; the whole text must match. `[abc]` and `{a,b}` mean what they say in a shell. */
export function globToRegExp(glob: string): RegExp {
  let out = '';
  let alternatives = 0;
  for (let index = 0; index < glob.length; index++) {
    const char = glob.charAt(index);
    const closing = char === '[' ? glob.indexOf(']', index + 2) : -1;
    if (char === '*' && glob[index + 1] === '*') {
      out += '.*';
      index++;
    } else if (char === '*') out += '[^/]*';
    else if (char === '?') out += '[^/]';
    else if (closing > 0) {
      out += bracket(glob.slice(index + 1, closing));
      index = closing;
    } else if (char === '{' && glob.includes('}', index)) {
      out += '(?:';
      alternatives++;
    } else if (char === '}' && alternatives > 0) {
      out += ')';
      alternatives--;
    } else if (char === ',' && alternatives > 0) out += '|';
    else out += char.replace(/[\\^$.|+()[\]{}]/g, '\\$&');
  }
  return new RegExp(`^${out}$`, 's');
}

function bracket(inside: string): string {
  const negated = inside.startsWith('!') || inside.startsWith('^');
  const set = (negated ? inside.slice(1) : inside).replace(/[\\\][^]/g, '\\$&');
  return negated ? `[^/${set}]` : `[${set}]`;
}

/** A test for many globs at once. */
export function globMatcher(globs: readonly string[]): (text: string) => boolean {
  const expressions = globs.map(globToRegExp);
  return (text) => expressions.some((expression) => expression.test(text));
}
