/** Reservations from several processes at once on one store: no error, no overlap. The full size runs in bench/calendar.ts. */
import t from 'tap';
import { systemClock } from '../../src/core/clock.js';
import { run } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { defaultSettings } from '../../src/core/settings.js';
import { openStore } from '../../src/record/store/store.js';
import { findSlots } from '../../src/testbed/lease/slots.js';

t.setTimeout(300_000);

t.test('many processes that reserve at once get what they asked for, and nobody shares a node', async (t) => {
  const stateDir = t.testdir();
  const store = await openStore(stateDir);
  t.teardown(() => store.close());
  const ground = { store, settings: defaultSettings, clock: systemClock };
  await findSlots(ground, { nodes: { count: 1 }, durationMs: 3_600_000 });
  const [processes, each] = [4, 8];
  const child = [asset('test/testbed/reserve-child.ts'), stateDir, 'local', String(each)];
  await Promise.all(
    Array.from({ length: processes }, () =>
      run(process.execPath, ['--import=tsx', ...child], { timeoutMs: 240_000 }),
    ),
  );
  const leases = await store.db.selectFrom('leases').selectAll().execute();
  t.equal(leases.length, processes * each);
  t.equal(new Set(leases.map((lease) => lease.generation)).size, leases.length);
  const bookings = await store.db
    .selectFrom('bookings')
    .selectAll()
    .orderBy('node')
    .orderBy('starts_at')
    .execute();
  t.equal(bookings.length, (processes * each * 3) / 2, 'every second one is of two nodes');
  const overlap = bookings.find((one, index) => {
    const next = bookings[index + 1];
    return next?.node === one.node && next.starts_at < one.busy_until;
  });
  t.equal(overlap, undefined);
  // What the others wrote is in this process's calendar at its next look.
  const [slot] = await findSlots(ground, { nodes: { count: 8 }, durationMs: 24 * 3_600_000, limit: 1 });
  const inTheWay = bookings.filter(
    (one) => one.starts_at < slot!.endsAt + 600_000 && slot!.startsAt < one.busy_until,
  );
  t.strictSame(inTheWay, []);
});
