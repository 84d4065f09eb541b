// Content kept by hash: what is kept of short and of long content, and that memory and disk stay bounded.
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { ObjectStore } from '../../src/record/bundle/objects.js';

const MiB = 1024 * 1024;

async function store(test: Test, limits = {}): Promise<ObjectStore> {
  const dir = await mkdtemp(join(tmpdir(), 'infrabed-objects-'));
  test.teardown(() => rm(dir, { recursive: true, force: true }));
  return ObjectStore.open(dir, limits);
}

t.test('content up to 2 MiB is kept whole under its hash, however it arrives', async (test) => {
  const objects = await store(test);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 200_000 }), { maxLength: 8 }), async (chunks) => {
      const whole = Buffer.concat(chunks);
      const sink = objects.stream();
      for (const chunk of chunks) sink.write(chunk);
      const stored = await sink.end();
      test.equal(stored.sha256, createHash('sha256').update(whole).digest('hex'));
      test.equal(stored.truncated, false);
      if (whole.length > 0) test.ok(whole.equals(await readFile(join(objects.dir, stored.sha256))));
    }),
    { numRuns: 30 },
  );
  await objects.flush();
});

t.test('of longer content the first and last MiB are kept, and the hash of all', async (test) => {
  const objects = await store(test);
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 2 * MiB + 1, max: 7 * MiB }),
      fc.integer({ min: 1000, max: 300_000 }),
      async (sizeBytes, chunkBytes) => {
        const whole = randomBytes(sizeBytes);
        const sink = objects.stream();
        for (let at = 0; at < sizeBytes; at += chunkBytes) sink.write(whole.subarray(at, at + chunkBytes));
        const stored = await sink.end();
        test.equal(stored.sizeBytes, sizeBytes);
        test.equal(stored.truncated, true);
        const file = (end: string): Promise<Buffer> => readFile(join(objects.dir, `${stored.sha256}.${end}`));
        test.ok(whole.subarray(0, MiB).equals(await file('head')));
        test.ok(whole.subarray(-MiB).equals(await file('tail')));
      },
    ),
    { numRuns: 10 },
  );
});

t.test('a gibibyte leaves two MiB on disk and takes little memory', async (test) => {
  const objects = await store(test);
  const sink = objects.stream();
  const before = process.memoryUsage().rss;
  const chunk = randomBytes(64 * 1024);
  for (let index = 0; index < 16 * 1024; index += 1) sink.write(chunk);
  const stored = await sink.end();
  test.equal(stored.sizeBytes, 1024 * MiB);
  test.ok(process.memoryUsage().rss - before < 80 * MiB, 'memory is bounded');
  test.equal((await readdir(objects.dir)).length, 2, 'no partial file is left');
});

t.test('beyond the total only hashes are kept, and that is said', async (test) => {
  const objects = await store(test, { totalBytes: 10 });
  test.equal((await objects.put(Buffer.from('12345678'))).truncated, false);
  const second = await objects.put(Buffer.from('abcdefgh'));
  test.match(second, { truncated: true, storedHeadBytes: 0, sizeBytes: 8 });
  test.equal((await objects.put(Buffer.from('12345678'))).truncated, false, 'known content costs nothing');
});
