/** A process of its own for tests and benchmarks: makes reservations as fast as it can, and prints the slowest one's time. */
import { systemClock } from '../../src/core/clock.js';
import { defaultSettings } from '../../src/core/settings.js';
import { openStore } from '../../src/record/store/store.js';
import { reserve } from '../../src/testbed/lease/reserve.js';

const [stateDir = '', site = 'local', count = '1'] = process.argv.slice(2);
const store = await openStore(stateDir);
const ground = { store, settings: defaultSettings, clock: systemClock };
const hour = 3_600_000;
let slowestMs = 0;
for (let done = 0; done < Number(count); done++) {
  const begun = performance.now();
  const startsAt = Date.now() + hour + Math.floor(Math.random() * 300 * 24) * hour;
  const request = { site, nodes: { count: 1 + (done % 2) }, startsAt, durationMs: hour, purpose: 'race' };
  await reserve(ground, request, { name: `user-${String(process.pid)}`, role: 'user' });
  slowestMs = Math.max(slowestMs, performance.now() - begun);
}
await store.close();
process.stdout.write(JSON.stringify({ slowestMs }));
