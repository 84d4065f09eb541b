/** The life cycle of a node as data: which state may follow which. What moves a node stands in transition.ts. */

export const nodeStates = [
  'enrolled',
  'cleaning',
  'available',
  'leased',
  'provisioning',
  'active',
  'quarantined',
  'maintenance',
] as const;
export type NodeState = (typeof nodeStates)[number];

/** Beside these, every state but `maintenance` leads to `quarantined`, and every state to `maintenance`. */
const ordinary: Readonly<Record<NodeState, readonly NodeState[]>> = {
  enrolled: ['cleaning'],
  cleaning: ['available'],
  available: ['leased', 'cleaning'],
  leased: ['provisioning', 'cleaning'],
  provisioning: ['active', 'cleaning'],
  active: ['cleaning'],
  // Its fault is cleared by a successful clean, and by nothing else.
  quarantined: ['cleaning'],
  // A person's hold, cleared only by a person.
  maintenance: ['cleaning'],
};

/** States in which a node belongs to a lease. */
export const heldStates: readonly NodeState[] = ['leased', 'provisioning', 'active'];

/** True if a node may go from one state to the other. */
export function mayFollow(from: NodeState, to: NodeState): boolean {
  if (to === 'maintenance') return from !== 'maintenance';
  if (to === 'quarantined') return from !== 'maintenance' && from !== 'quarantined';
  return ordinary[from].includes(to);
}

/** The states that may follow, for messages. */
export function followers(from: NodeState): NodeState[] {
  return nodeStates.filter((to) => mayFollow(from, to));
}
