/** What the BMC's event log holds: certain entries or none of them, how many, and whether it overflowed. */
import { z } from 'zod';
import type { SelEntry } from '../src/testbed/driver/driver.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, brief, fail, pass, pattern } from './expectation.js';

const patterns = z.union([pattern, z.array(pattern).min(1)]);
const assertions = ['present', 'absent', 'min_entries', 'max_entries', 'overflow'] as const;

const parameters = z
  .strictObject({
    present: patterns
      .optional()
      .describe('Regular expression, or list of them; each must match an entry (`SENSOR EVENT`).'),
    absent: patterns.optional().describe('Regular expression, or list of them; none may match an entry.'),
    min_entries: z.number().int().min(0).optional().describe('At least so many entries.'),
    max_entries: z
      .number()
      .int()
      .min(0)
      .optional()
      .describe('At most so many, not counting the BMC’s own note that the log was cleared.'),
    overflow: z.boolean().optional().describe('Whether the log says that events were lost.'),
  })
  .refine((table) => assertions.some((key) => table[key] !== undefined), {
    error: `needs at least one of ${assertions.join(', ')}`,
  });
type Parameters = z.output<typeof parameters>;

const entry = z.strictObject({
  id: z.number(),
  time: z.string().nullable(),
  sensor: z.string(),
  event: z.string(),
  raw: z.string(),
});
const evidence = z.strictObject({
  entries: z.number(),
  freeBytes: z.number(),
  overflow: z.boolean(),
  /** At most 1000, the oldest first. */
  log: z.array(entry),
});
type Evidence = z.output<typeof evidence>;

const kept = 1000;

async function gather({ cluster, node, signal }: CheckContext): Promise<Evidence> {
  const bmc = cluster.bmc(node);
  const log = await bmc.selEntries(signal);
  const { freeBytes, overflow } = await bmc.selInfo(signal);
  return { entries: log.length, freeBytes, overflow, log: log.slice(0, kept).map((one) => ({ ...one })) };
}

/**
 * "Log Area Reset/Cleared": sensor type 10h, offset 02h (IPMI 2.0, table 42-3). Most BMCs write it when their log is
 * cleared, so that a log that was just cleared holds one entry (Linuxfabrik monitoring-plugins 982).
 */
export function isClearedNote({ raw }: Pick<SelEntry, 'raw'>): boolean {
  const bytes = raw.replace(/\s+/g, '').match(/../g) ?? [];
  const at = (index: number): number => parseInt(bytes[index] ?? '', 16);
  return at(2) === 0x02 && at(10) === 0x10 && (at(13) & 0x0f) === 0x02;
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  const { log, entries } = seen;
  const texts = log.map(({ sensor, event }) => `${sensor} ${event}`);
  const many = `${String(entries)} entr${entries === 1 ? 'y' : 'ies'}`;
  for (const text of asList(wanted.present)) {
    const expression = new RegExp(text, 'm');
    if (!texts.some((one) => expression.test(one))) return fail(`none of ${many} matches /${text}/`);
  }
  for (const text of asList(wanted.absent)) {
    const expression = new RegExp(text, 'm');
    const found = texts.find((one) => expression.test(one));
    if (found !== undefined) return fail(`"${brief(found)}" is in the log, which matches /${text}/`);
  }
  if (wanted.min_entries !== undefined && entries < wanted.min_entries)
    return fail(`the log has ${many}, fewer than ${String(wanted.min_entries)}`);
  const counted = entries - log.filter(isClearedNote).length;
  if (wanted.max_entries !== undefined && counted > wanted.max_entries)
    return fail(`the log has ${many}, more than ${String(wanted.max_entries)}`);
  if (wanted.overflow !== undefined && wanted.overflow !== seen.overflow)
    return fail(seen.overflow ? 'the log says that events were lost' : 'the log has not overflowed');
  return pass(`the log has ${many}${seen.overflow ? ' and has overflowed' : ''}`);
}

export const selContains = defineChecker<Parameters, Evidence>({
  name: 'sel-contains',
  summary: 'The event log (SEL) of the BMC holds certain entries, or not more than a number of them.',
  with: parameters,
  evidence,
  gather,
  judge,
});
