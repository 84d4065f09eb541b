/** Whether the BMC would still log events and raise alerts: what is switched off to be rid of an alarm. */
import { z } from 'zod';
import { InfrabedError } from '../src/core/errors.js';
import type { Bmc } from '../src/testbed/driver/driver.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { fail, pass } from './expectation.js';

const parameters = z.strictObject({
  logging: z.boolean().default(true).describe('Whether the BMC of `on` writes events into its log.'),
  alerting: z
    .boolean()
    .default(true)
    .describe('Whether platform event filtering, which raises alerts, is on.'),
  policies: z
    .array(z.number().int().min(1).max(127))
    .default([])
    .describe('Numbers of entries of the alert policy table that must be enabled.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  /** Bytes in hex, as the BMC gives them. */
  globalEnables: z.string(),
  pefControl: z.string(),
  policies: z.array(z.strictObject({ entry: z.number(), raw: z.string() })),
});
type Evidence = z.output<typeof evidence>;

const byte = (value: number): string => `0x${value.toString(16).padStart(2, '0')}`;

/** Get BMC Global Enables (IPMI 2.0, section 22.2): bit 3 is system event logging. */
const getGlobalEnables = ['raw', '0x06', '0x2f'];
/** Get PEF Configuration Parameters (section 30.4), parameter 1, PEF control: bit 0 enables PEF, bit 0 of parameter 2 alerts. */
const getPefControl = ['raw', '0x04', '0x13', '0x01', '0x00', '0x00'];
/** Parameter 9, alert policy table (table 30-6): entry number, then bit 3 of the byte behind it enables the entry. */
const getPolicy = (entry: number): string[] => ['raw', '0x04', '0x13', '0x09', byte(entry), '0x00'];

async function gather({ cluster, node, signal }: CheckContext, wanted: Parameters): Promise<Evidence> {
  const bmc = cluster.bmc(node);
  const globalEnables = await bytesOf(bmc, node, getGlobalEnables, 1, signal);
  const pefControl = await bytesOf(bmc, node, getPefControl, 2, signal);
  const policies = [];
  for (const entry of wanted.policies)
    policies.push({ entry, raw: await bytesOf(bmc, node, getPolicy(entry), 4, signal) });
  return { globalEnables, pefControl, policies };
}

/** @throws InfrabedError IB_BMC for an answer that is too short to tell. */
async function bytesOf(
  bmc: Bmc,
  node: string,
  request: readonly string[],
  atLeast: number,
  signal: AbortSignal,
): Promise<string> {
  const words = (await bmc.read(request, signal)).trim().split(/\s+/);
  if (words.length >= atLeast && words.every((word) => /^[0-9a-f]{2}$/i.test(word))) return words.join(' ');
  throw new InfrabedError('IB_BMC', `The BMC of ${node} answered "${request.join(' ')}" with too little.`, {
    details: { node, answer: words.join(' ').slice(0, 200) },
  });
}

const bitOf = (raw: string, index: number, bit: number): boolean =>
  ((parseInt(raw.split(' ')[index] ?? '', 16) >> bit) & 1) === 1;

function judge(seen: Evidence, wanted: Parameters): Judgement {
  const logging = bitOf(seen.globalEnables, 0, 3);
  if (logging !== wanted.logging)
    return fail(`the BMC ${logging ? 'writes' : 'no longer writes'} events into its log`);
  // Behind the parameter's revision comes its data.
  const alerting = bitOf(seen.pefControl, 1, 0);
  if (alerting !== wanted.alerting)
    return fail(
      `platform event filtering is ${alerting ? 'on' : 'off'}: ${alerting ? 'alerts are raised' : 'no alert is raised'}`,
    );
  const off = seen.policies.find(({ raw }) => !bitOf(raw, 2, 3));
  if (off !== undefined) return fail(`entry ${String(off.entry)} of the alert policies is not enabled`);
  const policies = seen.policies.map(({ entry }) => String(entry));
  return pass(
    `events are ${logging ? '' : 'not '}logged and alerts ${alerting ? '' : 'not '}raised${policies.length > 0 ? `, by policy ${policies.join(', ')}` : ''}`,
  );
}

export const bmcAlerting = defineChecker<Parameters, Evidence>({
  name: 'bmc-alerting',
  summary: 'The BMC logs events and raises alerts by its policies, as it is to.',
  with: parameters,
  evidence,
  gather,
  judge,
});
