/** Who may ask: users, their roles and their tokens, and what can be done about them. */
import { timingSafeEqual } from 'node:crypto';
import type { Selectable } from 'kysely';
import { z } from 'zod';
import { controllerActor, mayChange, type Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import { redactor } from '../../core/log.js';
import { recordChange } from '../../record/store/changes.js';
import type { UsersTable } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { operation, type AnyOperation, type Desk } from './operation.js';
import { isToken, newToken, tokenHash } from './token.js';

const role = z.enum(['user', 'operator']);
/** As user names of Linux are, so that whoever works here through sudo and through the server is the same. */
const userName = z
  .string()
  .regex(
    /^[a-z_][a-z0-9_.-]{0,31}$/,
    'a name is up to 32 lower-case letters, digits, _ . or -, a letter first',
  )
  .refine((name) => name !== controllerActor.name, `"${controllerActor.name}" is what infrabed calls itself`);

const userSchema = z.object({
  name: z.string(),
  role,
  createdAt: z.iso.datetime(),
  revokedAt: z.iso.datetime().nullable(),
});
export type User = z.output<typeof userSchema>;
const withToken = z.object({ user: userSchema, token: z.string().describe('shown this once') });
const named = z.strictObject({ name: z.string().min(1) });

/** The user whose token this is, or undefined. A revoked user is nobody. */
export async function actorOfToken(store: Store, token: string): Promise<Actor | undefined> {
  if (!isToken(token)) return undefined;
  const wanted = Buffer.from(tokenHash(token), 'hex');
  const rows = await store.db.selectFrom('users').selectAll().where('revoked_at', 'is', null).execute();
  // All are compared, each in constant time: how long it takes says nothing about a hash.
  const [row] = rows.filter((one) => timingSafeEqual(Buffer.from(one.token_hash, 'hex'), wanted));
  if (row === undefined) return undefined;
  redactor.add(token);
  return { name: row.name, role: role.parse(row.role) };
}

export const userWhoami = operation({
  name: 'user.whoami',
  method: 'GET',
  path: '/v1/whoami',
  summary: 'Who asks, and in which role',
  role: 'user',
  input: z.strictObject({}),
  output: z.object({ name: z.string(), role }),
  handle: (_desk, _input, actor) => Promise.resolve({ name: actor.name, role: actor.role }),
});

export const userList = operation({
  name: 'user.list',
  method: 'GET',
  path: '/v1/users',
  summary: 'Everybody who has or had a token',
  role: 'operator',
  input: z.strictObject({}),
  output: z.object({ users: z.array(userSchema) }),
  async handle({ store }) {
    const rows = await store.db.selectFrom('users').selectAll().orderBy('name').execute();
    return { users: rows.map(shown) };
  },
});

export const userAdd = operation({
  name: 'user.add',
  method: 'POST',
  path: '/v1/users',
  summary: 'Add a user, or take back a revoked one; the token is shown once',
  role: 'operator',
  withoutRecovery: true,
  input: z.strictObject({ name: userName, role: role.default('user') }),
  output: withToken,
  async handle({ store, clock }, { name, role: wanted }, actor) {
    const token = newToken();
    const row = {
      name,
      role: wanted,
      token_hash: tokenHash(token),
      created_at: clock.now(),
      revoked_at: null,
    };
    await store.db.transaction().execute(async (db) => {
      const before = await db.selectFrom('users').selectAll().where('name', '=', name).executeTakeFirst();
      if (before?.revoked_at === null) {
        throw new InfrabedError('IB_USAGE', `There is a user ${name} already (${before.role}).`, {
          hint: `A new token: "infrabed user token ${name}". Another role: "infrabed user revoke ${name}", then add again.`,
        });
      }
      await db.deleteFrom('users').where('name', '=', name).execute();
      await db.insertInto('users').values(row).execute();
      const detail = { role: wanted, again: before !== undefined };
      await recordChange(db, clock, { actor, kind: 'user.added', subject: name, detail });
    });
    return { user: shown(row), token };
  },
});

export const userRevoke = operation({
  name: 'user.revoke',
  method: 'POST',
  path: '/v1/users/:name/revoke',
  summary: 'Make the token of a user worthless',
  role: 'operator',
  withoutRecovery: true,
  input: named,
  output: z.object({ user: userSchema }),
  async handle(desk, { name }, actor) {
    return { user: await changeUser(desk, actor, name, 'user.revoked', { revoked_at: desk.clock.now() }) };
  },
});

export const userToken = operation({
  name: 'user.token',
  method: 'POST',
  path: '/v1/users/:name/token',
  summary: 'A new token for oneself, or by an operator for somebody; the old one is worthless at once',
  role: 'user',
  withoutRecovery: true,
  input: named,
  output: withToken,
  async handle(desk, { name }, actor) {
    if (!mayChange(actor, name)) {
      throw new InfrabedError('IB_NOT_ALLOWED', `The token of ${name} is not yours to change.`, {
        hint: 'Leave the name out for a token of your own.',
      });
    }
    const token = newToken();
    const user = await changeUser(desk, actor, name, 'user.token', { token_hash: tokenHash(token) });
    return { user, token };
  },
});

/** @throws InfrabedError IB_USER_UNKNOWN for one who is not there, or not any more. */
async function changeUser(
  { store, clock }: Pick<Desk, 'store' | 'clock'>,
  actor: Actor,
  name: string,
  kind: string,
  change: Partial<Pick<Selectable<UsersTable>, 'token_hash' | 'revoked_at'>>,
): Promise<User> {
  return store.db.transaction().execute(async (db) => {
    const row = await db
      .updateTable('users')
      .set(change)
      .where('name', '=', name)
      .where('revoked_at', 'is', null)
      .returningAll()
      .executeTakeFirst();
    if (row === undefined) {
      throw new InfrabedError('IB_USER_UNKNOWN', `There is no user ${name} with a token.`, {
        hint: 'See "infrabed user list"; "infrabed user add" makes one, also of one who was revoked.',
      });
    }
    await recordChange(db, clock, { actor, kind, subject: name });
    return shown(row);
  });
}

function shown(row: Selectable<UsersTable>): User {
  return {
    name: row.name,
    role: role.parse(row.role),
    createdAt: new Date(row.created_at).toISOString(),
    revokedAt: row.revoked_at === null ? null : new Date(row.revoked_at).toISOString(),
  };
}

export const userOperations: readonly AnyOperation[] = [userAdd, userList, userRevoke, userToken, userWhoami];
