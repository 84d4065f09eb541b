/** Everything that can be asked: the explicit list behind the server, its description and its client. */
import type { AnyOperation } from './operation.js';
import { userOperations } from './users.js';

export const operations: readonly AnyOperation[] = [...userOperations];
