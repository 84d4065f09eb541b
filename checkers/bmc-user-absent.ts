/** BMC accounts that must be gone (a temporary user, a former owner's), and those that must be left. */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, fail, oneOrMore, pass } from './expectation.js';

const parameters = z.strictObject({
  name: oneOrMore.describe('Name, or list of names, that no user of the BMC of `on` may have.'),
  keep: z
    .array(z.string().min(1))
    .default([])
    .describe('Names of users that must still be there and may log in.'),
});
type Parameters = z.output<typeof parameters>;

const user = z.strictObject({
  id: z.number(),
  name: z.string(),
  privilege: z.string(),
  enabled: z.boolean().nullable(),
});
const evidence = z.strictObject({
  /** Slots that have a name, or none and yet a privilege: the others are empty. */
  users: z.array(user),
});
type Evidence = z.output<typeof evidence>;
type User = z.output<typeof user>;

/** Privilege limits that let somebody in (IPMI 2.0, table 6-1: NO ACCESS is Fh; 0h is reserved). */
const privileges: ReadonlySet<string> = new Set(['CALLBACK', 'USER', 'OPERATOR', 'ADMINISTRATOR', 'OEM']);

const mayLogIn = ({ enabled, privilege }: User): boolean => enabled !== false && privileges.has(privilege);

async function gather({ cluster, node, signal }: CheckContext): Promise<Evidence> {
  const users = await cluster.bmc(node).users(signal);
  return { users: users.filter((one) => one.name !== '' || mayLogIn(one)).map((one) => ({ ...one })) };
}

function judge({ users }: Evidence, { name, keep }: Parameters): Judgement {
  const left = users.find((one) => asList(name).includes(one.name));
  if (left !== undefined) {
    const how = left.enabled === false ? 'disabled, but not removed' : left.privilege;
    return fail(`the user "${left.name}" is still there (id ${String(left.id)}, ${how})`);
  }
  // Without its name a slot that may log in is an anonymous user, which is worse than one with a name.
  const nameless = users.find((one) => one.name === '' && mayLogIn(one));
  if (nameless !== undefined)
    return fail(`user ${String(nameless.id)} has no name but may log in as ${nameless.privilege}`);
  for (const wanted of keep) {
    const kept = users.find((one) => one.name === wanted);
    if (kept === undefined) return fail(`the user "${wanted}" was to be left, and is gone`);
    if (!mayLogIn(kept)) return fail(`the user "${wanted}" was to be left, and may no longer log in`);
  }
  const rest = keep.length === 0 ? '' : `; ${keep.join(', ')} may log in`;
  return pass(`no user is called ${asList(name).join(' or ')}${rest}`);
}

export const bmcUserAbsent = defineChecker<Parameters, Evidence>({
  name: 'bmc-user-absent',
  summary: 'No user of the BMC has a certain name, and none got in its place.',
  with: parameters,
  evidence,
  gather,
  judge,
});
