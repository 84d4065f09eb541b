/** What an operator decides about a node: to hold it for maintenance, or to take it out for a fault. */
import type { Kysely } from 'kysely';
import type { Actor } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import { recordChange } from '../../record/store/changes.js';
import type { Database } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import { setPendingFault } from './health.js';
import { isPerson, nodeRow, parseState, transition } from './transition.js';

export interface NodeGround {
  store: Store;
  clock: Clock;
}

/** What came of it. */
export interface Decision {
  node: string;
  /**
   * False while the node belongs to a lease or is being cleaned: nothing happens to what runs on it, no further lease
   * gets it, and the decision comes into force when it is given back.
   */
  isInForce: boolean;
}

/** @throws InfrabedError IB_NOT_ALLOWED unless the actor is an operator, and a person. */
export function assertOperator(actor: Actor, what: string): void {
  if (actor.role === 'operator' && isPerson(actor)) return;
  throw new InfrabedError('IB_NOT_ALLOWED', `${what} is for an operator to decide.`, {
    hint: 'Ask an operator of this site.',
    details: { actor: actor.name },
  });
}

/**
 * Begins or ends a person's hold. It may begin at any time. After its end the node is `cleaning`: whatever a person did
 * to it is cleaned away, by `cleanNode` or the next start, before it is lent again.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_NODE_UNKNOWN, IB_NODE_STATE when it is (or is not) held already, IB_USAGE
 *   without a reason.
 */
export async function setMaintenance(
  ground: NodeGround,
  node: string,
  wish: { on: boolean; why?: string },
  actor: Actor,
): Promise<Decision> {
  assertOperator(actor, 'Maintenance of a node');
  return ground.store.db
    .transaction()
    .execute((db) =>
      wish.on
        ? beginHold(db, ground.clock, node, reason(wish.why, 'is held'), actor)
        : endHold(db, ground.clock, node, actor),
    );
}

async function beginHold(
  db: Kysely<Database>,
  clock: Clock,
  node: string,
  why: string,
  actor: Actor,
): Promise<Decision> {
  const row = await nodeRow(db, node);
  if (row.hold !== null || row.state === 'maintenance')
    throw wrongState(node, 'is held for maintenance already');
  if (row.lease === null) {
    await transition(db, node, 'maintenance', { actor, why, clock });
    return { node, isInForce: true };
  }
  const hold = { by: actor.name, why, at: clock.now() };
  await db
    .updateTable('nodes')
    .set({ hold: JSON.stringify(hold) })
    .where('name', '=', node)
    .execute();
  const detail = { why, from: row.state, lease: row.lease };
  await recordChange(db, clock, { actor, kind: 'node.hold', subject: node, detail });
  return { node, isInForce: false };
}

async function endHold(db: Kysely<Database>, clock: Clock, node: string, actor: Actor): Promise<Decision> {
  const row = await nodeRow(db, node);
  if (row.state === 'maintenance') {
    await transition(db, node, 'cleaning', { actor, clock });
    return { node, isInForce: true };
  }
  if (row.hold === null) throw wrongState(node, 'is not held for maintenance');
  await db.updateTable('nodes').set({ hold: null }).where('name', '=', node).execute();
  await recordChange(db, clock, { actor, kind: 'node.hold-ended', subject: node });
  return { node, isInForce: true };
}

/**
 * Takes a node out for a fault that a person saw (`reported`); a successful clean brings it back.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_NODE_UNKNOWN, IB_NODE_STATE when it is quarantined or held already, IB_USAGE
 *   without a reason.
 */
export async function quarantineNode(
  ground: NodeGround,
  node: string,
  why: string,
  actor: Actor,
): Promise<Decision> {
  assertOperator(actor, 'The quarantine of a node');
  const message = reason(why, 'is quarantined');
  const { clock } = ground;
  return ground.store.db.transaction().execute(async (db) => {
    const row = await nodeRow(db, node);
    const fault = { code: 'reported', message, by: actor.name };
    if (row.lease === null) {
      await transition(db, node, 'quarantined', { actor, fault, why: message, clock });
      return { node, isInForce: true };
    }
    if (row.fault !== null) throw wrongState(node, `is ${parseState(row.state)} and carries a fault already`);
    await setPendingFault(db, node, fault, clock, actor);
    return { node, isInForce: false };
  });
}

function reason(why: string | undefined, what: string): string {
  const text = why?.trim() ?? '';
  if (text !== '') return text;
  throw new InfrabedError('IB_USAGE', `It has to be said why the node ${what}.`, {
    hint: 'Add --why TEXT.',
  });
}

function wrongState(node: string, what: string): InfrabedError {
  return new InfrabedError('IB_NODE_STATE', `${node} ${what}.`, {
    hint: `Run "infrabed node show ${node}".`,
  });
}
