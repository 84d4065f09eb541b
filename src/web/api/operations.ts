/** Everything that can be asked: the explicit list behind the server, its description and its client. */
import { clusterOperations } from './clusters.js';
import { leaseOperations } from './leases.js';
import { nodeOperations } from './nodes.js';
import type { AnyOperation } from './operation.js';
import { siteOperations } from './sites.js';
import { trialOperations } from './trials.js';
import { userOperations } from './users.js';

export const operations: readonly AnyOperation[] = [
  ...clusterOperations,
  ...leaseOperations,
  ...nodeOperations,
  ...siteOperations,
  ...trialOperations,
  ...userOperations,
];
