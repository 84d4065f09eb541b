/** Who asks for a change. Every change of a node, lease, site or user is written down with its actor. */

/** `user` may do what it wants with its own; `operator` with everything. */
export type Role = 'user' | 'operator';

export interface Actor {
  /** Name of a user, as leases name their owner. */
  name: string;
  role: Role;
}

/** What the controller does by itself: expiry, health probes, recovery. */
export const controllerActor: Actor = { name: 'controller', role: 'operator' };

/** True if the actor may change what belongs to `owner`. */
export function mayChange(actor: Actor, owner: string): boolean {
  return actor.role === 'operator' || actor.name === owner;
}
