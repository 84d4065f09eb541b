// Going on with the bundle of a dead controller: its interrupted gate is set aside, and what it still has open is nobody's.
import { appendFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { writeFileOnce } from '../../src/core/disk.js';
import { disown, dropHalfFiles, lastLooks, setAside } from '../../src/record/bundle/interrupted.js';
import { BundleWriter } from '../../src/record/bundle/writer.js';
import { look, temporaryFolder } from '../fixtures/bundle.js';

const checksIn = async (path: string): Promise<string[]> =>
  (await readFile(path, 'utf8'))
    .split('\n')
    .filter(Boolean)
    .map((line) => (JSON.parse(line) as { check: string }).check);

void t.test('looks of an interrupted gate are kept apart, once, and the others stay', async (t) => {
  const dir = join(await temporaryFolder(t), 'bundle');
  const bundle = await BundleWriter.create(dir);
  for (const record of [
    look('a', 'immediate', true),
    look('b', 'running', true),
    look('c', 'running', false),
  ])
    bundle.evidence(record);
  bundle.close();
  await appendFile(join(dir, 'evidence.jsonl'), '{"check":"d","mom');
  const before = await readFile(join(dir, 'evidence.jsonl'));
  t.equal(await setAside(dir, 'running'), 2);
  t.same(await checksIn(join(dir, 'evidence.jsonl')), ['a']);
  t.same(await checksIn(join(dir, 'evidence-interrupted.jsonl')), ['b', 'c']);
  // A crash between the two writes: the looks stand in both files.
  await writeFile(join(dir, 'evidence.jsonl'), before);
  t.equal(await setAside(dir, 'running'), 2);
  t.same(await checksIn(join(dir, 'evidence-interrupted.jsonl')), ['b', 'c'], 'none is there twice');
  t.equal(await setAside(dir, 'running'), 0);
});

void t.test('the last look of each check is found', async (t) => {
  const dir = join(await temporaryFolder(t), 'bundle');
  const bundle = await BundleWriter.create(dir);
  for (const probe of [0, 1, 2])
    bundle.evidence({ ...look('a', 'window', true), probe, at: 1000 + probe, durationMs: 5 });
  bundle.evidence(look('b', 'immediate', true));
  bundle.close();
  t.same([...(await lastLooks(dir, 'window'))], [['a', { probe: 2, endedAt: 1007 }]]);
});

void t.test('what a writer that was stopped still writes, nobody sees', async (t) => {
  const dir = join(await temporaryFolder(t), 'bundle');
  const stopped = await BundleWriter.create(dir);
  stopped.evidence(look('a', 'immediate', true));
  await disown(dir);
  stopped.evidence(look('late', 'immediate', true));
  stopped.close();
  t.same(await checksIn(join(dir, 'evidence.jsonl')), ['a']);
});

void t.test('a file that is written once goes to the first of two writers', async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, 'bundle.json');
  await writeFileOnce(path, 'first');
  await t.rejects(writeFileOnce(path, 'second'), { code: 'IB_STATE_DIR' });
  t.equal(await readFile(path, 'utf8'), 'first');
  t.same(await readdir(folder), ['bundle.json'], 'and nothing is left of the other');
});

void t.test('half-written files go, those of the task stay', async (t) => {
  const dir = join(await temporaryFolder(t), 'bundle');
  (await BundleWriter.create(dir)).close();
  await writeFile(join(dir, 'bundle.json.0123abcd.tmp'), '{');
  await writeFile(join(dir, 'facts', 'note.tmp'), '');
  await dropHalfFiles(dir);
  t.notOk((await readdir(dir)).some((name) => name.endsWith('.tmp')));
  t.same(await readdir(join(dir, 'facts')), ['note.tmp']);
});
