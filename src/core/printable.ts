/** Text that came from nodes, agents and other programs, made fit for a person's terminal. */

/** Control characters become `?` (line ends and tabs a blank): nothing of it can move the cursor or set a title. */
export function printable(text: string): string {
  return (
    text
      .replace(/[\n\r\t]+/g, ' ')
      // C0 and C1 controls, and the marks that turn the direction of writing (CVE-2021-42574).
      // eslint-disable-next-line no-control-regex
      .replace(/[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, '?')
  );
}
