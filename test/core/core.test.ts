import { execFileSync } from 'node:child_process';
import fc from 'fast-check';
import t from 'tap';
import { deadline, systemClock, waitFor } from '../../src/core/clock.js';
import { lastLines, run, shellQuote } from '../../src/core/exec.js';
import { canonicalJson, newId } from '../../src/core/ids.js';
import { Redactor } from '../../src/core/log.js';
import { stateDir } from '../../src/core/paths.js';

t.test('a quoted word arrives at a shell as it was', (t) => {
  fc.assert(
    fc.property(
      fc.array(
        fc.string({ unit: 'grapheme' }).map((word) => word.replaceAll('\0', '')),
        { maxLength: 5 },
      ),
      (words) => {
        const out = execFileSync('sh', ['-c', `printf '%s\\0' ${words.map(shellQuote).join(' ')}`], {
          encoding: 'utf8',
        });
        const expected = words.length === 0 ? '\0' : words.map((word) => `${word}\0`).join('');
        return out === expected;
      },
    ),
    { numRuns: 60 },
  );
  t.throws(() => shellQuote('a\0b'), { code: 'IB_USAGE' });
  t.end();
});

t.test('a program that fails gives command, status and last lines', async (t) => {
  await t.rejects(run('sh', ['-c', 'echo one >&2; echo two >&2; exit 3']), {
    code: 'IB_PROGRAM_FAILED',
    message: /ended with status 3: one \| two/,
    details: { exitCode: 3, signal: null },
  });
  await t.rejects(run('sh', ['-c', 'kill -9 $$']), { code: 'IB_PROGRAM_FAILED', message: /SIGKILL/ });
  await t.rejects(run('no-such-program', []), { code: 'IB_PROGRAM_MISSING' });
  await t.rejects(run('sleep', ['10'], { timeoutMs: 100 }), { code: 'IB_TIMEOUT' });
  await t.rejects(run('sleep', ['10'], { signal: AbortSignal.timeout(100) }), { code: 'IB_CANCELLED' });
  await t.rejects(run('head', ['-c', '5000', '/dev/zero'], { maxOutputBytes: 1000 }), {
    code: 'IB_OUTPUT_LIMIT',
  });
  t.match(await run('sh', ['-c', 'exit 4'], { allowFailure: true }), { exitCode: 4 });
});

t.test('lines arrive one by one, and the whole output is there at the end', async (t) => {
  const lines: string[] = [];
  const result = await run('printf', ['a\\nb\\nc'], { onLine: (line) => lines.push(line) });
  t.same(lines, ['a', 'b', 'c']);
  t.equal(result.stdout, 'a\nb\nc');
});

t.test('secrets are redacted by value and by shape, at any depth', (t) => {
  const redactor = new Redactor();
  redactor.add('hunter2hunter2');
  redactor.add('ab');
  t.same(redactor.redactDeep({ a: ['x hunter2hunter2 y', { b: 'api_key=abcdefghijk' }], n: 1 }), {
    a: ['x [redacted] y', { b: 'api_key=[redacted]' }],
    n: 1,
  });
  t.equal(redactor.redact('about'), 'about', 'a short value would eat text');
  t.match(
    redactor.redact('-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----'),
    /^\[redacted\]$/,
  );
  t.end();
});

t.test('equal values have one canonical form, whatever the order of their keys', (t) => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (value) => {
      const shuffled = Object.fromEntries(Object.entries(value).reverse());
      return canonicalJson(value) === canonicalJson(shuffled);
    }),
  );
  t.end();
});

t.test('ids sort by time', (t) => {
  t.ok(newId('t', 1_000_000_000_000) < newId('t', 1_000_000_001_000));
  t.match(newId('t', Date.UTC(2026, 0, 2, 3, 4, 5)), /^t-20260102-030405-[0-9a-f]{4}$/);
  t.end();
});

t.test(
  'waiting ends with the value, with a time-out that names what was awaited, or with the signal',
  async (t) => {
    let count = 0;
    t.equal(
      await waitFor('three', () => (++count === 3 ? count : undefined), { timeoutMs: 1000, intervalMs: 1 }),
      3,
    );
    await t.rejects(
      waitFor('Godot', () => undefined, { timeoutMs: 20, intervalMs: 5 }),
      {
        code: 'IB_TIMEOUT',
        message: /Godot/,
      },
    );
    await t.rejects(systemClock.sleep(10_000, AbortSignal.timeout(10)), { code: 'IB_CANCELLED' });
    const limit = deadline(10, 'the step');
    await t.rejects(systemClock.sleep(10_000, limit.signal), { code: 'IB_TIMEOUT', message: /the step/ });
    limit.clear();
  },
);

t.test('the state folder follows the environment', (t) => {
  t.equal(stateDir({ INFRABED_STATE_DIR: '/x/y' }), '/x/y');
  if (process.getuid?.() === 0) t.equal(stateDir({}), '/var/lib/infrabed');
  else t.equal(stateDir({ XDG_STATE_HOME: '/s' }), '/s/infrabed');
  t.equal(lastLines('a\n\nb\n', 1), 'b');
  t.end();
});
