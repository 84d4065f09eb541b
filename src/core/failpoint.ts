/**
 * Named points at which a test kills or stops this process from within, just before or after something that another
 * process can see. Off unless INFRABED_FAILPOINT or INFRABED_FAILPOINT_LOG is set.
 */
import { appendFileSync } from 'node:fs';

/** `kill:NAME#N` or `stop:NAME#N`: SIGKILL or SIGSTOP to this process when it passes NAME for the Nth time. */
const wanted = process.env['INFRABED_FAILPOINT'];
/** File to which the name of every point that is passed is appended, one `NAME#N` a line. */
const logFile = process.env['INFRABED_FAILPOINT_LOG'];
/** False in normal use: whoever has to work out the name of a point asks first. */
export const failpointsOn = wanted !== undefined || logFile !== undefined;
const passed = new Map<string, number>();

/** Marks a point. `name` holds no blanks and nothing that differs from run to run (ids, times). */
export function failpoint(name: string): void {
  if (!failpointsOn) return;
  const count = (passed.get(name) ?? 0) + 1;
  passed.set(name, count);
  const point = `${name}#${String(count)}`;
  // Written before the signal: the last line of the log is where the process died.
  if (logFile !== undefined) appendFileSync(logFile, `${point}\n`);
  if (wanted === `kill:${point}`) process.kill(process.pid, 'SIGKILL');
  if (wanted === `stop:${point}`) process.kill(process.pid, 'SIGSTOP');
}
