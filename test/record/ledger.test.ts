// The ledger: written in order, continued after a crash, sealed, and any later change of it found and named.
import { constants } from 'node:fs';
import { appendFile, chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import type { Clock } from '../../src/core/clock.js';
import type { InfrabedError } from '../../src/core/errors.js';
import { Redactor } from '../../src/core/log.js';
import { linesOf } from '../../src/record/ledger/lines.js';
import { readLedger } from '../../src/record/ledger/reader.js';
import { loadSiteKey, sitePublicKey } from '../../src/record/ledger/site-key.js';
import { verifyLedger, type Verification } from '../../src/record/ledger/verify.js';
import { LedgerWriter, type LedgerOptions } from '../../src/record/ledger/writer.js';

interface Cleaner {
  teardown(action: () => unknown): void;
}

async function folder(test: Cleaner): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'infrabed-ledger-'));
  test.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

const tickingClock = (): Clock => {
  let now = 1_790_000_000_000;
  return { now: () => (now += 7), sleep: () => Promise.resolve() };
};

const options = (over: Partial<LedgerOptions> = {}): LedgerOptions => ({
  trial: 't-1',
  clock: tickingClock(),
  redactor: new Redactor(),
  ...over,
});

const entry = (n: number) => ({
  kind: 'node.exec',
  actor: 'agent',
  node: 'node0',
  payload: { command: `ip link show # ${String(n)}`, n, nested: { z: 1, a: ['é', '\n', null] } },
});

async function sealed(test: Cleaner, records: number): Promise<string> {
  const dir = await folder(test);
  const writer = await LedgerWriter.open(join(dir, 'ledger.jsonl'), options());
  for (let n = 0; n < records; n++) writer.record(entry(n));
  await writer.seal(await loadSiteKey(dir));
  return dir;
}

async function change(dir: string, edit: (lines: string[]) => string[]): Promise<Verification> {
  const file = join(dir, 'ledger.jsonl');
  const lines = (await readFile(file, 'utf8')).split('\n').slice(0, -1);
  await writeFile(
    file,
    edit(lines)
      .map((line) => `${line}\n`)
      .join(''),
  );
  return verifyLedger(dir);
}

t.test('what was recorded is read back in order, and verifies', async (t) => {
  const dir = await sealed(t, 25);
  const records = [];
  for await (const record of readLedger(join(dir, 'ledger.jsonl'))) records.push(record);
  t.strictSame(
    records.map((record) => record.seq),
    Array.from({ length: 25 }, (_, n) => n),
  );
  t.strictSame(records[3]?.payload, entry(3).payload);
  const verification = await verifyLedger(dir, { publicKey: (await sitePublicKey(dir))! });
  t.match(verification, { ok: true, count: 25, trial: 't-1', sealed: true, problems: [], problemCount: 0 });
});

t.test('an empty ledger can be sealed and verifies', async (t) => {
  const dir = await sealed(t, 0);
  t.match(await verifyLedger(dir), { ok: true, count: 0 });
});

t.test('a record is in the file when record() returns, and on disk after flush()', async (t) => {
  const file = join(await folder(t), 'ledger.jsonl');
  const writer = await LedgerWriter.open(file, options());
  writer.record(entry(0));
  t.match(await readFile(file, 'utf8'), /ip link show # 0/);
  await writer.flush();
  await writer.close();
  await writer.close();
  t.throws(() => writer.record(entry(1)), { code: 'IB_LEDGER_INVALID' });
});

t.test('secrets do not reach the file', async (t) => {
  const file = join(await folder(t), 'ledger.jsonl');
  const redactor = new Redactor();
  redactor.add('hunter2-secret');
  const writer = await LedgerWriter.open(file, options({ redactor }));
  writer.record({
    ...entry(0),
    payload: {
      a: ['x hunter2-secret y'],
      key: '-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----',
    },
  });
  await writer.close();
  const text = await readFile(file, 'utf8');
  t.notMatch(text, /hunter2|abc/);
  t.match(text, /x \[redacted\] y/);
});

t.test('a payload that is no JSON is refused, and the ledger stays whole', async (t) => {
  const dir = await folder(t);
  const writer = await LedgerWriter.open(join(dir, 'ledger.jsonl'), options());
  writer.record(entry(0));
  t.throws(() => writer.record({ ...entry(1), payload: { big: 1n } }), {
    code: 'IB_INTERNAL',
    message: /node\.exec/,
  });
  writer.record(entry(1));
  await writer.seal(await loadSiteKey(dir));
  t.match(await verifyLedger(dir), { ok: true, count: 2 });
});

t.test('a ledger is continued where it ended', async (t) => {
  const dir = await folder(t);
  const file = join(dir, 'ledger.jsonl');
  for (let n = 0; n < 5; n++) {
    const writer = await LedgerWriter.open(file, options());
    t.equal(writer.length, n);
    writer.record({ ...entry(n), payload: { long: 'x'.repeat(n * 70_000) } });
    await writer.close();
  }
  const writer = await LedgerWriter.open(file, options());
  await writer.seal(await loadSiteKey(dir));
  t.match(await verifyLedger(dir), { ok: true, count: 5 });
  await t.rejects(LedgerWriter.open(file, options()), { code: 'IB_LEDGER_INVALID', message: /is sealed/ });
});

t.test('a torn last line is dropped at the next opening, and that is on record', async (t) => {
  for (const torn of ['{"actor":"agent","at":17900', 'x'.repeat(200_000)]) {
    const dir = await folder(t);
    const file = join(dir, 'ledger.jsonl');
    const first = await LedgerWriter.open(file, options());
    first.record(entry(0));
    await first.close();
    await appendFile(file, torn);
    const found = await verifyLedger(dir);
    t.match(found.problems, [
      { line: 2, problem: /^torn/ },
      { line: null, problem: /no seal/ },
    ]);
    const writer = await LedgerWriter.open(file, options());
    writer.record(entry(1));
    await writer.seal(await loadSiteKey(dir));
    const records = [];
    for await (const record of readLedger(file)) records.push(record);
    t.match(records[1], { kind: 'ledger.torn', actor: 'controller', payload: { droppedBytes: torn.length } });
    t.match(await verifyLedger(dir), { ok: true, count: 3 });
  }
});

t.test('a ledger that is torn in its first line begins anew', async (t) => {
  const dir = await folder(t);
  await writeFile(join(dir, 'ledger.jsonl'), '{"act');
  const writer = await LedgerWriter.open(join(dir, 'ledger.jsonl'), options());
  await writer.seal(await loadSiteKey(dir));
  t.match(await verifyLedger(dir), { ok: true, count: 1 });
});

t.test('a damaged end, and the ledger of another trial, are not continued', async (t) => {
  const dir = await folder(t);
  const file = join(dir, 'ledger.jsonl');
  const writer = await LedgerWriter.open(file, options());
  writer.record(entry(0));
  await writer.close();
  await t.rejects(LedgerWriter.open(file, options({ trial: 't-2' })), {
    code: 'IB_LEDGER_INVALID',
    message: /t-1, not of t-2/,
  });
  await writeFile(file, (await readFile(file, 'utf8')).replace('link', 'lonk'));
  await t.rejects(LedgerWriter.open(file, options()), { code: 'IB_LEDGER_INVALID', hint: /ledger verify/ });
});

t.test('a full disk surfaces at record(), and what was written stays whole', async (t) => {
  const full = await LedgerWriter.open('/dev/full', options()).catch(
    (error: unknown) => error as InfrabedError,
  );
  if (full instanceof LedgerWriter) {
    t.throws(() => full.record(entry(0)), { code: 'IB_DISK_FULL', hint: /Free space/ });
    t.equal(full.length, 0);
  } else {
    t.match(full, { code: 'IB_STATE_DIR' });
  }
});

t.test('each kind of change is named with its line', async (t) => {
  const cases: [
    string,
    (lines: string[]) => string[],
    Partial<{ line: number; seq: number; problem: RegExp }>,
  ][] = [
    [
      'altered payload',
      (l) => l.with(3, l[3]!.replace('# 3', '# 9')),
      { line: 4, seq: 3, problem: /^altered/ },
    ],
    [
      'a blank slipped in',
      (l) => l.with(3, l[3]!.replace('{', '{ ')),
      { line: 4, seq: 3, problem: /^altered/ },
    ],
    [
      'a key said twice',
      (l) => l.with(3, l[3]!.replace('{', '{"kind":"x",')),
      { line: 4, seq: 3, problem: /^altered/ },
    ],
    ['not JSON', (l) => l.with(3, 'hello'), { line: 4, problem: /^altered/ }],
    ['a missing line', (l) => l.toSpliced(3, 1), { line: 4, seq: 3, problem: /^missing: record 3 is not/ }],
    [
      'several missing lines',
      (l) => l.toSpliced(3, 3),
      { line: 4, seq: 3, problem: /^missing: records 3 to 5/ },
    ],
    [
      'two lines swapped',
      (l) => l.with(3, l[4]!).with(4, l[3]!),
      { line: 5, seq: 3, problem: /^reordered: record 3 stands behind record 4/ },
    ],
    ['a line repeated', (l) => l.toSpliced(4, 0, l[3]!), { line: 5, seq: 3, problem: /^repeated/ }],
    [
      'the end cut off',
      (l) => l.slice(0, -2),
      { problem: /^the seal counts 10 records, there are 8: 2 records/ },
    ],
    ['all lines gone', () => [], { problem: /^the seal counts 10/ }],
  ];
  for (const [name, edit, expected] of cases) {
    const dir = await sealed(t, 10);
    const verification = await change(dir, edit);
    t.equal(verification.ok, false, name);
    t.match(
      verification.problems.find((problem) => expected.problem!.test(problem.problem)),
      expected,
      name,
    );
  }
});

t.test('one altered record is one problem, and swapped lines are not also called missing', async (t) => {
  const one = await change(await sealed(t, 10), (l) => l.with(3, l[3]!.replace('# 3', '# 9')));
  t.equal(one.problemCount, 1);
  const two = await change(await sealed(t, 10), (l) => l.with(3, l[4]!).with(4, l[3]!));
  t.equal(two.problemCount, 1);
});

t.test('a chain written anew is told by the seal, and a forged seal by the trusted key', async (t) => {
  const dir = await sealed(t, 5);
  const trusted = (await sitePublicKey(dir))!;
  const other = await folder(t);
  const forger = await LedgerWriter.open(join(other, 'ledger.jsonl'), options());
  for (let n = 0; n < 5; n++) forger.record(entry(n === 2 ? 99 : n));
  await forger.seal(await loadSiteKey(other));
  await writeFile(join(dir, 'ledger.jsonl'), await readFile(join(other, 'ledger.jsonl')));
  t.match((await verifyLedger(dir)).problems, [{ line: null, problem: /chain was written anew/ }]);
  await writeFile(join(dir, 'ledger.seal.json'), await readFile(join(other, 'ledger.seal.json')));
  t.equal((await verifyLedger(dir)).ok, true, 'nothing tells without the key');
  t.match((await verifyLedger(dir, { publicKey: trusted })).problems, [{ problem: /another key/ }]);
});

t.test('a seal that was altered, damaged or of another trial is found', async (t) => {
  const dir = await sealed(t, 5);
  const file = join(dir, 'ledger.seal.json');
  const seal = JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>;
  await writeFile(file, JSON.stringify({ ...seal, count: 4 }));
  t.match((await verifyLedger(dir)).problems, [{ problem: /signature/ }, { problem: /added after it/ }]);
  await writeFile(file, JSON.stringify({ ...seal, publicKey: 'AAAA' }));
  t.match((await verifyLedger(dir)).problems, [{ problem: /signature/ }]);
  await writeFile(file, '{');
  t.match((await verifyLedger(dir)).problems, [{ problem: /damaged/ }]);
  t.match((await verifyLedger(dir, { trial: 't-other' })).problems[0], { problem: /^foreign/ });
});

t.test('any change of one byte is found', async (t) => {
  const dir = await sealed(t, 6);
  const whole = await readFile(join(dir, 'ledger.jsonl'));
  await fc.assert(
    fc.asyncProperty(fc.nat(whole.length - 1), fc.integer({ min: 1, max: 255 }), async (at, mask) => {
      const changed = Buffer.from(whole);
      changed[at] = changed[at]! ^ mask;
      await writeFile(join(dir, 'ledger.jsonl'), changed);
      return !(await verifyLedger(dir)).ok;
    }),
    { numRuns: 400 },
  );
});

t.test('any removal, repetition or other order of lines is found', async (t) => {
  const dir = await sealed(t, 8);
  const lines = (await readFile(join(dir, 'ledger.jsonl'), 'utf8')).split('\n').slice(0, -1);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(7), { maxLength: 10 }), async (order) => {
      await writeFile(join(dir, 'ledger.jsonl'), order.map((n) => `${lines[n]!}\n`).join(''));
      const inOrder = order.length === 8 && order.every((n, index) => n === index);
      return (await verifyLedger(dir)).ok === inOrder;
    }),
    { numRuns: 300, examples: [[[0, 1, 2, 3, 4, 5, 6, 7]]] },
  );
});

t.test('any truncation is found', async (t) => {
  const dir = await sealed(t, 5);
  const whole = await readFile(join(dir, 'ledger.jsonl'));
  await fc.assert(
    fc.asyncProperty(fc.nat(whole.length - 1), async (length) => {
      await writeFile(join(dir, 'ledger.jsonl'), whole.subarray(0, length));
      return !(await verifyLedger(dir)).ok;
    }),
    { numRuns: 200 },
  );
});

t.test('lines come out whole, wherever the chunks of the file end', async (t) => {
  const file = join(await folder(t), 'lines');
  const long = ['a'.repeat(1024 * 1024), '', 'b'.repeat(1024 * 1024 - 2), 'c'.repeat(3_000_000), 'torn'];
  await writeFile(file, long.join('\n'));
  const seen: string[] = [];
  for await (const lines of linesOf(file)) seen.push(...lines.map((line) => line.bytes.toString()));
  t.ok(seen.length === long.length && seen.every((line, index) => line === long[index]));
});

t.test(
  "the site's key is made once, is its owner's alone, and is not used when others may read it",
  async (t) => {
    const dir = await folder(t);
    t.equal(await sitePublicKey(dir), undefined, 'looking makes none');
    const keys = await Promise.all(Array.from({ length: 4 }, () => loadSiteKey(dir)));
    t.equal(new Set(keys.map((key) => key.publicKey)).size, 1);
    const path = join(dir, 'keys', 'site.key');
    t.equal((await stat(path)).mode & 0o777, 0o600);
    t.equal((await readFile(join(dir, 'keys', 'site.pub'), 'utf8')).trim(), await sitePublicKey(dir));
    await chmod(path, constants.S_IRUSR | constants.S_IROTH);
    await t.rejects(loadSiteKey(dir), { code: 'IB_STATE_DIR', hint: /chmod 600/ });
    await chmod(path, 0o600);
    await writeFile(path, 'not a key');
    await t.rejects(loadSiteKey(dir), { code: 'IB_STATE_DIR', message: /not an Ed25519 private key/ });
  },
);

t.test('a folder without a ledger is IB_BUNDLE_INVALID', async (t) => {
  await t.rejects(verifyLedger(await folder(t)), {
    code: 'IB_BUNDLE_INVALID',
    message: /has no ledger\.jsonl/,
  });
});
