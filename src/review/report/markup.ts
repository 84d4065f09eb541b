/**
 * HTML by a template tag that escapes everything put into it, unless it is HTML made by the same tag. An agent
 * chooses much of what a report shows, so there is no other way in.
 */

/** Text that is HTML already. Only this file makes it. */
export class Html {
  constructor(readonly text: string) {}
}

export type Content = Html | string | number | null | undefined | false | readonly Content[];

export function html(strings: TemplateStringsArray, ...values: Content[]): Html {
  return new Html(
    strings.map((text, index) => text + (index < values.length ? toText(values[index]) : '')).join(''),
  );
}

/** A script of the page's own, exactly as it is: the page's policy names it by its hash. */
export function scriptElement(script: string): Html {
  return new Html(`<script>${script}</script>`);
}

/** A style sheet of the page's own. */
export function styleElement(style: string): Html {
  return new Html(`<style>${style}</style>`);
}

/** JSON that the page's script reads: with no `<`, nothing in it can end the element. */
export function dataElement(value: unknown): Html {
  const json = JSON.stringify(value)
    .replace(/</g, '\\u003c')
    .replace(/\u2028/g, '\\u2028')
    .replace(/\u2029/g, '\\u2029');
  return new Html(`<script type="application/json">${json}</script>`);
}

function toText(value: Content): string {
  if (value === null || value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  if (typeof value === 'string') return escapeHtml(value);
  if (typeof value === 'number') return String(value);
  return value.map(toText).join('');
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** For text and quoted attributes. Control characters become their pictures, marks that turn the direction visible. */
export function escapeHtml(text: string): string {
  return (
    text
      .replace(/[&<>"']/g, (character) => entities[character] ?? '')
      .replace(/\r\n/g, '\n')
      // eslint-disable-next-line no-control-regex
      .replace(/[\x00-\x08\x0b-\x1f]/g, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
      .replace(
        /[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
        '\ufffd',
      )
  );
}
