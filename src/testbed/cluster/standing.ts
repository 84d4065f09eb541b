/** Who is to blame for a node that does not answer: a pure judgement of what the path outside its reach says. */
import type { PowerState, Testimony } from '../driver/driver.js';
import type { NodeStanding } from './cluster.js';

/** What could be found out about a node that did not answer a fresh session. */
export interface Circumstances {
  /** Why the session failed: one sentence. */
  failure: string;
  /** The controller itself switched the node off last. */
  switchedOffByUs: boolean;
  /** Absent where the backend has no witness, or it failed. */
  testimony?: Testimony;
  /** What the BMC says, asked only where there is no testimony. */
  power?: PowerState;
  /** Why there is neither: one sentence. */
  silence?: string;
}

/**
 * A node that is alive, or no longer boots, after what was done on it is to blame itself; only a proven fault of ours
 * is the infrastructure's. What proves neither is unknown.
 */
export function attribute(circumstances: Circumstances): NodeStanding & { standing: 'unreachable' } {
  const { failure, switchedOffByUs, testimony, power, silence } = circumstances;
  const blame = (
    who: 'node' | 'infrastructure' | 'unknown',
    why: string,
  ): NodeStanding & { standing: 'unreachable' } => ({
    standing: 'unreachable',
    blame: who,
    why: `${why} (${failure})`,
    ...(testimony === undefined ? {} : { testimony }),
  });
  if (testimony?.infrastructureFault) return blame('infrastructure', testimony.infrastructureFault);
  const isOn = (testimony?.power ?? power) === 'on';
  if (switchedOffByUs && !isOn)
    return blame('infrastructure', 'The controller itself switched the node off.');
  if (testimony !== undefined) return fromTestimony(testimony, blame);
  if (power === 'on') return blame('node', 'Its BMC says that it is on, but it does not answer.');
  if (power === 'off')
    return blame('unknown', 'Its BMC says that it is off, and who switched it off is not known.');
  return blame('unknown', silence ?? 'Nothing outside the node can tell how it stands.');
}

function fromTestimony<T>(
  testimony: Testimony,
  blame: (who: 'node' | 'infrastructure' | 'unknown', why: string) => T,
): T {
  if (testimony.power === 'on') {
    return testimony.initRunning === true
      ? blame('node', 'Its init is running, but it does not answer.')
      : blame('node', 'It is powered on, but does not come up.');
  }
  if (testimony.power === 'off') return blame('node', 'It went off without a fault of the testbed.');
  return blame('unknown', 'Its power state is not known.');
}
