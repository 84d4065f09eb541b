// The calendar as it looks in terminals of different widths, and in weeks whose clocks change.
import t from 'tap';
import { calendarPage, type CalendarBooking, type CalendarNode } from '../../src/cli/calendar-page.js';

const hour = 3_600_000;
/** Tuesday. */
const midnight = Date.parse('2026-12-01T00:00:00Z');

process.env['TZ'] = 'UTC';

const book = (lease: string, owner: string, from: number, to: number): CalendarBooking => ({
  lease,
  owner,
  purpose: 'compare two ways of replication under load',
  startMs: midnight + from * hour,
  endMs: midnight + to * hour,
  busyUntilMs: midnight + to * hour + hour / 6,
});

const week: CalendarNode[] = [
  { name: 'local/n01', state: 'active', bookings: [book('l-1', 'ada', 9, 33)] },
  { name: 'local/n02', state: 'leased', bookings: [book('l-1', 'ada', 9, 33), book('l-2', 'grace', 57, 58)] },
  { name: 'local/n03', state: 'available', bookings: [] },
  { name: 'local/n04', state: 'quarantined', bookings: [book('l-3', 'ada', 72, 160)] },
  { name: 'local/n05', state: 'maintenance', bookings: [] },
  { name: 'local/n06', state: 'enrolled', bookings: [] },
];
const nowMs = midnight + 10.5 * hour;

const weekAt80 = `
2026-12-01 to 2026-12-07, local time (UTC), one character is 3 h

    Tue 1    Wed 2    Thu 3    Fri 4    Sat 5    Sun 6    Mon 7
    0   12   0   12   0   12   0   12   0   12   0   12   0   12
       ▼ now
n01 ···AAAAA│AAA·····│········│········│········│········│········
n02 ···AAAAA│AAA·····│···b····│········│········│········│········
n03 ········│········│········│········│········│········│········
n04 ···!!!!!│!!!!!!!!│!!!!!!!!│CCCCCCCC│CCCCCCCC│CCCCCCCC│CCCCCc!!
n05 ···xxxxx│xxxxxxxx│xxxxxxxx│xxxxxxxx│xxxxxxxx│xxxxxxxx│xxxxxxxx
n06 ···?????│????????│????????│????????│????????│????????│????????

A  l-1  ada    Tue 12-01 09:00 - Wed 12-02 09:00  compare two ways of replicati…
B  l-2  grace  Thu 12-03 09:00 - Thu 12-03 10:00  compare two ways of replicati…
C  l-3  ada    Fri 12-04 00:00 - Mon 12-07 16:00  compare two ways of replicati…

· free, a small letter: less than half of that time, ! quarantined
x maintenance, ? not clean yet
`;

const weekAt120 = `
2026-12-01 to 2026-12-07, local time (UTC), one character is 2 h

    Tue 1        Wed 2        Thu 3        Fri 4        Sat 5        Sun 6        Mon 7
    0  6  12 18  0  6  12 18  0  6  12 18  0  6  12 18  0  6  12 18  0  6  12 18  0  6  12 18
         ▼ now
n01 ····AAAAAAAA│AAAAA·······│············│············│············│············│············
n02 ····AAAAAAAA│AAAAA·······│····B·······│············│············│············│············
n03 ············│············│············│············│············│············│············
n04 ·····!!!!!!!│!!!!!!!!!!!!│!!!!!!!!!!!!│CCCCCCCCCCCC│CCCCCCCCCCCC│CCCCCCCCCCCC│CCCCCCCC!!!!
n05 ·····xxxxxxx│xxxxxxxxxxxx│xxxxxxxxxxxx│xxxxxxxxxxxx│xxxxxxxxxxxx│xxxxxxxxxxxx│xxxxxxxxxxxx
n06 ·····???????│????????????│????????????│????????????│????????????│????????????│????????????

A  l-1  ada    Tue 12-01 09:00 - Wed 12-02 09:00  compare two ways of replication under load
B  l-2  grace  Thu 12-03 09:00 - Thu 12-03 10:00  compare two ways of replication under load
C  l-3  ada    Fri 12-04 00:00 - Mon 12-07 16:00  compare two ways of replication under load

· free, ! quarantined, x maintenance, ? not clean yet
`;

t.test('a week at 80 columns', (t) => {
  const lines = calendarPage(week, { fromMs: nowMs, days: 7, nowMs, width: 80 });
  t.ok(lines.every((line) => line.length <= 80));
  t.equal(`\n${lines.join('\n')}\n`, weekAt80);
  t.end();
});

t.test('a week at 120 columns', (t) => {
  const lines = calendarPage(week, { fromMs: nowMs, days: 7, nowMs, width: 120 });
  t.ok(lines.every((line) => line.length <= 120));
  t.equal(`\n${lines.join('\n')}\n`, weekAt120);
  t.end();
});

t.test('a day by the half hour, and a month by the day', (t) => {
  const day = calendarPage(week, { fromMs: nowMs, days: 1, nowMs, width: 80 });
  t.match(day[0], /one character is 30 min/);
  t.equal(day[4], `${' '.repeat(4 + 21)}▼ now`);
  t.equal(day[5], `n01 ${'·'.repeat(18)}${'A'.repeat(30)}`);
  const month = calendarPage(week, { fromMs: nowMs, days: 31, nowMs, width: 80 });
  t.equal(month[2], `${' '.repeat(4 + 18)}1 1 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 2 2 3 3`);
  t.match(month[5], /^n01 A│a(│·){29}$/);
  t.end();
});

/** The calendar of one node. */
const one = (bookings: readonly CalendarBooking[]): CalendarNode[] => [
  { name: 'local/n01', state: 'available', bookings },
];

t.test('a short lease and one that only touches a cell are both to be seen', (t) => {
  const calendar = one([book('l-1', 'ada', 1, 1.25), book('l-2', 'grace', 8.9, 9)]);
  const row = calendarPage(calendar, { fromMs: midnight, days: 7, nowMs: 0, width: 80 }).find((line) =>
    line.startsWith('n01'),
  );
  t.equal(row?.slice(4, 12), 'a·b·····');
  t.end();
});

t.test('where clocks change the hours still stand under one another', (t) => {
  process.env['TZ'] = 'Europe/Berlin';
  t.teardown(() => {
    process.env['TZ'] = 'UTC';
  });
  for (const [sunday, hours] of [
    ['2026-03-29', 23],
    ['2026-10-25', 25],
  ] as const) {
    const fromMs = new Date(`${sunday}T00:00`).getTime();
    const endMs = fromMs + hours * hour;
    const whole = { ...book('l-1', 'ada', 0, 1), startMs: fromMs, endMs, busyUntilMs: endMs };
    const lines = calendarPage(one([whole]), { fromMs, days: 2, nowMs: 0, width: 80 });
    const row = lines.find((line) => line.startsWith('n01')) ?? '';
    t.equal(row.slice(4), `${'A'.repeat(24)}│${'·'.repeat(24)}`, sunday);
  }
  t.end();
});

t.test('what came from people cannot move the cursor', (t) => {
  const booking = { ...book('l-1', 'ada\u001b[2J', 1, 9), purpose: 'x\ny\u001b]0;title\u0007' };
  const text = calendarPage(one([booking]), { fromMs: midnight, days: 1, nowMs, width: 80 }).join('\n');
  // eslint-disable-next-line no-control-regex
  t.notMatch(text, /[\u0000-\u0009\u000b-\u001f]/);
  t.match(text, /x y/);
  t.end();
});

t.test('more leases than letters are counted', (t) => {
  const many = Array.from({ length: 30 }, (_, index) =>
    book(`l-${String(index).padStart(2, '0')}`, 'ada', index * 4, index * 4 + 3),
  );
  const lines = calendarPage(one(many), { fromMs: midnight, days: 7, nowMs, width: 120 });
  t.match(lines.join('\n'), /# {2}5 more leases/);
  t.notMatch(
    lines.find((line) => line.startsWith('n01')),
    /[xX]/,
    'x is for maintenance',
  );
  t.end();
});
