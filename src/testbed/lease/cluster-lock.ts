/** The lock between writing down a new cluster and looking for leftovers, so that the one is never taken for the other. */
import { join } from 'node:path';
import { withLock, type LockOptions } from '../../core/lock.js';

/**
 * Held while a row of `clusters` is written, and from the reading of those rows to the end of a sweep: whatever a
 * sweep finds on the machine was then either written down before, or is nobody's.
 * @throws InfrabedError as withLock.
 */
export function withClusterLock<T>(
  stateDir: string,
  work: () => Promise<T>,
  options: LockOptions = {},
): Promise<T> {
  return withLock(join(stateDir, 'recover.lock'), work, options);
}
