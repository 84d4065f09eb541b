/** The BMC's watchdog timer: whether it runs, what it would do, and whether somebody feeds it. */
import { z } from 'zod';
import { systemClock } from '../src/core/clock.js';
import { InfrabedError } from '../src/core/errors.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { fail, pass } from './expectation.js';

const actions = ['none', 'reset', 'power-off', 'power-cycle'] as const;

const parameters = z.strictObject({
  running: z.boolean().default(true).describe('Whether the timer of the BMC of `on` runs.'),
  action: z.enum(actions).optional().describe('What it does when it runs out.'),
  initial_sec: z.number().positive().optional().describe('Countdown that it starts with, in seconds.'),
  fed: z
    .boolean()
    .optional()
    .describe('Whether somebody resets it: seen by more being left than a mere countdown would leave.'),
  within_sec: z
    .number()
    .positive()
    .default(15)
    .describe('How long to look for that, in seconds; longer than the interval of the feeder.'),
});
type Parameters = z.output<typeof parameters>;

const reading = z.strictObject({
  /** Epoch milliseconds before and after the question: the answer is of a moment between them. */
  askedAt: z.number(),
  answeredAt: z.number(),
  running: z.boolean(),
  action: z.enum(actions),
  use: z.string(),
  initialSec: z.number(),
  /** null where the BMC does not tell, which matters only for whether it is fed. */
  remainingSec: z.number().nullable(),
});
const evidence = z.strictObject({ readings: z.array(reading).min(1) });
type Evidence = z.output<typeof evidence>;
type Reading = z.output<typeof reading>;

const pauseMs = 1000;
/** What the BMC's counter (100 ms, IPMI 2.0, section 27.6) and two clocks may differ by. */
const toleranceSec = 1;

async function gather(context: CheckContext, { fed, within_sec }: Parameters): Promise<Evidence> {
  const readings = [await read(context)];
  const until = systemClock.now() + within_sec * 1000;
  while (
    fed !== undefined &&
    readings.at(-1)?.running === true &&
    !wasFed(readings) &&
    systemClock.now() < until
  ) {
    await systemClock.sleep(pauseMs, context.signal);
    readings.push(await read(context));
  }
  if (fed !== undefined && readings.some(({ running, remainingSec }) => running && remainingSec === null)) {
    throw new InfrabedError(
      'IB_BMC',
      `The BMC of ${context.node} does not tell what is left of its watchdog's time.`,
      {
        details: { node: context.node },
      },
    );
  }
  return { readings };
}

async function read({ cluster, node, signal }: CheckContext): Promise<Reading> {
  const askedAt = systemClock.now();
  const { running, action, use, initialSec, remainingSec } = await cluster.bmc(node).watchdog(signal);
  return { askedAt, answeredAt: systemClock.now(), running, action, use, initialSec, remainingSec };
}

/** Between two readings at least so much time passed; a timer that nobody resets has lost as much. */
export function wasFed(readings: readonly Reading[]): boolean {
  const [first] = readings;
  const firstSec = first?.remainingSec ?? null;
  if (first === undefined || firstSec === null) return false;
  return readings.slice(1).some((later) => {
    const passedSec = (later.askedAt - first.answeredAt) / 1000;
    return later.remainingSec !== null && later.remainingSec > firstSec - passedSec + toleranceSec;
  });
}

function judge({ readings }: Evidence, wanted: Parameters): Judgement {
  const first = readings[0];
  const last = readings.at(-1);
  if (first === undefined || last === undefined) return fail('the watchdog was not read');
  if (last.running !== wanted.running)
    return fail(
      `the watchdog ${last.running ? 'runs' : 'is stopped'}${last.running ? '' : ': nothing would reset the node'}`,
    );
  if (wanted.action !== undefined && last.action !== wanted.action)
    return fail(`the watchdog would do "${last.action}", not "${wanted.action}"`);
  if (wanted.initial_sec !== undefined && last.initialSec !== wanted.initial_sec)
    return fail(
      `the watchdog counts down from ${String(last.initialSec)} s, not from ${String(wanted.initial_sec)} s`,
    );
  const left = `${String(last.remainingSec ?? '?')} of ${String(last.initialSec)} s are left`;
  if (wanted.fed === undefined) return pass(`the watchdog ${last.running ? `runs: ${left}` : 'is stopped'}`);
  const seconds = ((last.answeredAt - first.askedAt) / 1000).toFixed(0);
  const fed = wasFed(readings);
  if (fed !== wanted.fed)
    return fail(
      fed ? 'something feeds the watchdog' : `nothing fed the watchdog within ${seconds} s: ${left}`,
    );
  return pass(fed ? `the watchdog is fed: ${left}` : `nothing feeds the watchdog: ${left}`);
}

export const bmcWatchdog = defineChecker<Parameters, Evidence>({
  name: 'bmc-watchdog',
  summary: 'The watchdog timer of the BMC runs (or not), with a certain action, and is fed.',
  with: parameters,
  evidence,
  gather,
  judge,
});
