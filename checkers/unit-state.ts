/** Whether a systemd unit runs, and whether it is to run after the next boot. */
import { z } from 'zod';
import { InfrabedError } from '../src/core/errors.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, fail, oneOrMore, pass } from './expectation.js';
import { requireSuccess } from './node-script.js';

const parameters = z.strictObject({
  unit: z
    .string()
    .regex(/^[A-Za-z0-9:_.\\@-]+\.[a-z]+$/, 'a unit name with its type, such as ssh.service')
    .describe('Name of the unit with its type.'),
  active: oneOrMore
    .optional()
    .describe('State, or states, that it may be in (ActiveState). Default "active".'),
  enabled: oneOrMore
    .optional()
    .describe('State, or states, of its unit file (UnitFileState). Default "enabled"; "any" leaves it open.'),
});
type Parameters = z.output<typeof parameters>;

const properties = [
  'LoadState',
  'ActiveState',
  'SubState',
  'UnitFileState',
  'Result',
  'NRestarts',
  'FragmentPath',
] as const;
const evidence = z.strictObject({
  LoadState: z.string(),
  ActiveState: z.string(),
  SubState: z.string(),
  UnitFileState: z.string(),
  Result: z.string(),
  NRestarts: z.string(),
  FragmentPath: z.string(),
});
type Evidence = z.output<typeof evidence>;

async function gather(context: CheckContext, { unit }: Parameters): Promise<Evidence> {
  const result = await context.cluster.exec(context.node, {
    argv: ['systemctl', 'show', '--no-pager', `--property=${properties.join(',')}`, '--', unit],
    timeoutMs: context.commandTimeoutMs,
    signal: context.signal,
  });
  requireSuccess(result, 'systemctl show', context);
  return parseShow(result.stdout);
}

/** The KEY=VALUE lines of `systemctl show`; a property that the unit's type does not have is empty. */
export function parseShow(text: string): Evidence {
  const found = new Map<string, string>();
  for (const line of text.split('\n')) {
    const equals = line.indexOf('=');
    if (equals > 0) found.set(line.slice(0, equals), line.slice(equals + 1));
  }
  if (!found.has('LoadState'))
    throw new InfrabedError('IB_NODE_FAILED', '"systemctl show" told nothing of the unit.');
  return evidence.parse(
    Object.fromEntries(properties.map((property) => [property, found.get(property) ?? ''])),
  );
}

function judge(seen: Evidence, { unit, active, enabled }: Parameters): Judgement {
  const mayBe = active === undefined ? ['active'] : asList(active);
  const mayBoot = enabled === undefined ? ['enabled'] : asList(enabled);
  const absent = seen.LoadState === 'not-found' && !mayBe.includes('inactive');
  if (absent) return fail(`${unit} does not exist`);
  if (!mayBe.includes('any') && !mayBe.includes(seen.ActiveState))
    return fail(`${unit} is ${seen.ActiveState} (${seen.SubState}), not ${mayBe.join(' or ')}`);
  const unitFile = seen.UnitFileState === '' ? 'without a unit file' : seen.UnitFileState;
  if (!mayBoot.includes('any') && !mayBoot.includes(seen.UnitFileState))
    return fail(`${unit} is ${seen.ActiveState} but ${unitFile}, not ${mayBoot.join(' or ')}`);
  return pass(`${unit} is ${seen.ActiveState} and ${unitFile}`);
}

export const unitState = defineChecker<Parameters, Evidence>({
  name: 'unit-state',
  summary: 'A systemd unit is active now and enabled for the next boot (or the states that are named).',
  with: parameters,
  evidence,
  programs: ['systemctl'],
  gather,
  judge,
});
