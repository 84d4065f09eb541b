/** A controller process of its own for the tests: takes nodes one at a time until none is left, and prints them. */
import { isInfrabedError } from '../../src/core/errors.js';
import { systemClock } from '../../src/core/clock.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import { takeNodes } from '../../src/testbed/lease/lease.js';

const store = await openStore(process.argv[2]!);
const controller = await registerController(store, systemClock);
const taken: { nodes: readonly string[]; generation: number }[] = [];
try {
  for (;;) {
    const { nodes, generation } = await takeNodes(store, {
      nodes: { count: 1 },
      owner: 'test',
      durationMs: 3_600_000,
      purpose: 'race',
      controller,
    });
    taken.push({ nodes, generation });
  }
} catch (error) {
  if (!isInfrabedError(error, 'IB_NOT_ENOUGH_NODES')) throw error;
}
process.stdout.write(JSON.stringify(taken));
await store.close();
