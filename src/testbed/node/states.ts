/**
 * The life cycle of a node as data: which state may follow which, which are stable, and what a crash in each means.
 * What moves a node stands in transition.ts.
 */

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

export interface StateRule {
  /** Beside these, every state but `maintenance` leads to `quarantined`, and every state to `maintenance`. */
  readonly next: readonly NodeState[];
  /** `stable`: a node rests there for as long as nobody wants anything. `in progress`: somebody is at work on it. */
  readonly kind: 'stable' | 'in progress';
  /** The node belongs to a lease. */
  readonly isHeld: boolean;
  /**
   * What it means when the controller at work dies here. `stays`: nothing. `with its lease`: whoever takes the lease over
   * cleans the node or quarantines it. `clean again`: what is there is unknown, so that the node is cleaned from the
   * start or quarantined, and never counts as clean for what was done before.
   */
  readonly afterCrash: 'stays' | 'with its lease' | 'clean again';
}

export const stateTable: Readonly<Record<NodeState, StateRule>> = {
  enrolled: { next: ['cleaning'], kind: 'stable', isHeld: false, afterCrash: 'stays' },
  cleaning: { next: ['available'], kind: 'in progress', isHeld: false, afterCrash: 'clean again' },
  available: { next: ['leased', 'cleaning'], kind: 'stable', isHeld: false, afterCrash: 'stays' },
  leased: { next: ['provisioning', 'cleaning'], kind: 'stable', isHeld: true, afterCrash: 'stays' },
  provisioning: {
    next: ['active', 'cleaning'],
    kind: 'in progress',
    isHeld: true,
    afterCrash: 'with its lease',
  },
  // Stable, since a kept cluster stands without a controller; only a trial's is work for recovery.
  active: { next: ['cleaning'], kind: 'stable', isHeld: true, afterCrash: 'with its lease' },
  // Its fault is cleared by a successful clean, and by nothing else.
  quarantined: { next: ['cleaning'], kind: 'stable', isHeld: false, afterCrash: 'stays' },
  // A person's hold, cleared only by a person.
  maintenance: { next: ['cleaning'], kind: 'stable', isHeld: false, afterCrash: 'stays' },
};

/** States in which a node belongs to a lease. */
export const heldStates: readonly NodeState[] = nodeStates.filter((state) => stateTable[state].isHeld);

/** True if a node may go from one state to the other. */
export function mayFollow(from: NodeState, to: NodeState): boolean {
  if (to === 'maintenance') return from !== 'maintenance';
  if (to === 'quarantined') return from !== 'maintenance' && from !== 'quarantined';
  return stateTable[from].next.includes(to);
}

/** The states that may follow, for messages. */
export function followers(from: NodeState): NodeState[] {
  return nodeStates.filter((to) => mayFollow(from, to));
}
