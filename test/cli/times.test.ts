// Durations and times of the command line, in zones whose clocks go forward and back.
import t from 'tap';
import fc from 'fast-check';
import {
  formatDuration,
  formatShort,
  formatTime,
  iso,
  isoLocal,
  parseDuration,
  parseTime,
  startOfDay,
} from '../../src/cli/times.js';

const hour = 3_600_000;
const day = 24 * hour;

/** Runs with another local zone; Node.js reads TZ anew at each assignment. */
function inZone(zone: string, work: () => void): void {
  const before = process.env['TZ'];
  process.env['TZ'] = zone;
  try {
    work();
  } finally {
    if (before === undefined) delete process.env['TZ'];
    else process.env['TZ'] = before;
  }
}

const at = (text: string): number => {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) throw new Error(`no time: ${text}`);
  return ms;
};

t.test('durations are units from the largest down', (t) => {
  const table: [string, number][] = [
    ['90m', 90 * 60_000],
    ['4h', 4 * hour],
    ['2d', 2 * day],
    ['1h30m', 1.5 * hour],
    ['1w', 7 * day],
    ['1d2h3m4s', day + 2 * hour + 184_000],
    [' 4h ', 4 * hour],
    ['0h', 0],
    ['-0h', 0],
    ['-4h', -4 * hour],
  ];
  for (const [text, ms] of table) t.equal(parseDuration(text, '--for'), ms, text);
  for (const text of ['', '4', 'h', '4 h', '30m1h', '1h1h', '1.5h', '4hours', '4H', '+4h', '1e3h', '٤h']) {
    t.throws(
      () => parseDuration(text, '--for'),
      { code: 'IB_USAGE', message: /--for .*is no duration/ },
      text,
    );
  }
  t.throws(() => parseDuration('99999999999999999999h', '--for'), { message: /longer than ten years/ });
  t.end();
});

t.test('a duration that is written is read as the same', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: -3650 * 86_400, max: 3650 * 86_400 }), (seconds) => {
      t.equal(parseDuration(formatDuration(seconds * 1000), '--for'), seconds * 1000);
    }),
  );
  t.equal(formatDuration(90 * 60_000), '1h30m');
  t.equal(formatDuration(0), '0m');
  t.end();
});

t.test('times with a zone mean the same everywhere', (t) => {
  for (const zone of ['UTC', 'America/New_York', 'Asia/Kolkata']) {
    inZone(zone, () => {
      const table: [string, string][] = [
        ['2026-12-01T09:00Z', '2026-12-01T09:00:00Z'],
        ['2026-12-01 09:00 UTC', '2026-12-01T09:00:00Z'],
        ['2026-12-01T09:00:30.5+01:00', '2026-12-01T08:00:30.500Z'],
        ['2026-12-01T09:00+0530', '2026-12-01T03:30:00Z'],
        ['2026-12-01 09:00 -05:00', '2026-12-01T14:00:00Z'],
        ['2028-02-29T00:00Z', '2028-02-29T00:00:00Z'],
      ];
      for (const [text, want] of table) t.equal(parseTime(text, '--at', 0), at(want), `${text} in ${zone}`);
    });
  }
  t.end();
});

t.test('times without a zone are local, and words are next to now', (t) => {
  inZone('Europe/Berlin', () => {
    const now = at('2026-11-30T20:00:00Z');
    const table: [string, string][] = [
      ['2026-12-01T09:00', '2026-12-01T08:00:00Z'],
      ['2026-12-01 09:00', '2026-12-01T08:00:00Z'],
      ['2026-07-01', '2026-06-30T22:00:00Z'],
      ['22:30', '2026-11-30T21:30:00Z'],
      ['21:00', '2026-12-01T20:00:00Z'],
      ['9:00', '2026-12-01T08:00:00Z'],
      ['today 9:00', '2026-11-30T08:00:00Z'],
      ['tomorrow', '2026-11-30T23:00:00Z'],
      ['tomorrow 09:00', '2026-12-01T08:00:00Z'],
      ['Tomorrow 09:00', '2026-12-01T08:00:00Z'],
      ['+2h', '2026-11-30T22:00:00Z'],
      ['+1h30m', '2026-11-30T21:30:00Z'],
      ['-1d', '2026-11-29T20:00:00Z'],
      ['now', '2026-11-30T20:00:00Z'],
    ];
    for (const [text, want] of table) t.equal(iso(parseTime(text, '--at', now)), iso(at(want)), text);
  });
  t.end();
});

t.test('what is no time is refused with how to write one', (t) => {
  const wrong = [
    '',
    'noon',
    '24:00',
    '2026-12-01T24:00',
    '09:60',
    '9',
    '2026-02-30',
    '2027-02-29T10:00Z',
    '2026-13-01',
    '2026-00-10',
    '12/01/2026',
    '2026-12-01T09:00+25:00',
    '2026-12-01T09:00+01:99',
    '2026-12-01T09:00 Mars',
    'tomorrow noon',
    'yesterday',
    '+2',
    '1764579600000',
    '2026-12-01 09:00 10:00',
  ];
  for (const text of wrong)
    t.throws(() => parseTime(text, '--at', 0), { code: 'IB_USAGE', hint: /\S/ }, text);
  t.throws(() => parseTime('24:00', '--at', 0), { code: 'IB_USAGE', hint: /00:00 of the next day/ });
  t.throws(() => parseTime('2026-02-30', '--at', 0), { message: /there is no 2026-02-30/ });
  t.end();
});

t.test('where clocks go forward an hour does not exist, and where they go back one comes twice', (t) => {
  inZone('Europe/Berlin', () => {
    t.throws(() => parseTime('2026-03-29T02:30', '--at', 0), { message: /does not exist in Europe\/Berlin/ });
    t.equal(parseTime('2026-03-29T03:00', '--at', 0), at('2026-03-29T01:00:00Z'));
    t.throws(() => parseTime('2026-10-25T02:30', '--at', 0), {
      message: /comes twice/,
      hint: 'Say which: 2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00.',
    });
    t.equal(parseTime('2026-10-25T02:30+01:00', '--at', 0), at('2026-10-25T01:30:00Z'));
    t.equal(parseTime('2026-10-25T03:00', '--at', 0), at('2026-10-25T02:00:00Z'));
    const nightBefore = at('2026-10-24T20:00:00Z');
    t.equal(parseTime('tomorrow 09:00', '--at', nightBefore), at('2026-10-25T08:00:00Z'), 'in winter time');
    t.equal(startOfDay(nightBefore, 2) - startOfDay(nightBefore, 1), 25 * hour, 'a day of 25 hours');
  });
  inZone('Australia/Lord_Howe', () => {
    t.throws(() => parseTime('2026-10-04T02:15', '--at', 0), { message: /does not exist/ }, 'half an hour');
  });
  inZone('America/Havana', () => {
    t.equal(new Date(startOfDay(at('2026-03-08T18:00:00Z'))).getHours(), 1, 'a day without a midnight');
  });
  t.end();
});

t.test('a time that is shown can be pasted and means the same', (t) => {
  for (const zone of ['UTC', 'Europe/Berlin', 'America/St_Johns', 'Australia/Lord_Howe']) {
    inZone(zone, () => {
      fc.assert(
        fc.property(fc.integer({ min: at('2026-01-01'), max: at('2030-01-01') }), (ms) => {
          t.equal(parseTime(isoLocal(ms), '--at', 0), ms);
          t.equal(parseTime(iso(ms), '--at', 0), ms);
          t.equal(parseTime(formatTime(ms), '--at', 0), ms - (ms % 60_000));
        }),
        { numRuns: 200 },
      );
    });
  }
  inZone('Europe/Berlin', () => {
    const ms = at('2026-12-01T08:00:00Z');
    t.equal(formatTime(ms), '2026-12-01 09:00 +01:00');
    t.equal(isoLocal(ms), '2026-12-01T09:00+01:00');
    t.equal(isoLocal(ms + 5000), '2026-12-01T09:00:05+01:00');
    t.equal(formatShort(ms, ms), 'Tue 12-01 09:00');
    t.equal(formatShort(ms, at('2027-06-01T00:00:00Z')), '2026-12-01 09:00');
  });
  inZone('UTC', () => t.equal(formatTime(at('2026-12-01T08:00:00Z')), '2026-12-01 08:00 UTC'));
  t.end();
});
