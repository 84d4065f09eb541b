/** What stands at the head of a test file whose nodes need root: elsewhere it is a skip that says so, never a pass. */
import type { TAP } from 'tap';

/** Ends the process with one skipped test where this is not root. */
export function needsRoot(t: TAP): void {
  if (process.getuid?.() === 0) return;
  t.pass('container nodes need root', { skip: 'container nodes need root' });
  process.exit(0);
}
