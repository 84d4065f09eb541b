// The bundle: written with its manifest last, read back checked, and clear about what is wrong with a damaged one.
import { appendFile, mkdir, readdir, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { run } from '../../src/core/exec.js';
import { packageRoot } from '../../src/core/paths.js';
import { readBundle } from '../../src/record/bundle/reader.js';
import { BundleWriter } from '../../src/record/bundle/writer.js';
import {
  look,
  makeBundle,
  manifest,
  runtimeOnlyEvidence,
  temporaryFolder,
  writeTask,
} from '../fixtures/bundle.js';

t.test('what was written is read back', async (t) => {
  const dir = await makeBundle(await temporaryFolder(t), {
    fill: async (bundle) => {
      await bundle.facts('baseline', 'node0', { users: ['root'] });
      await bundle.drift({ gates: { immediate: [] }, control: [], controlRecorded: true });
    },
  });
  const bundle = await readBundle(dir);
  t.strictSame(bundle.manifest, manifest());
  t.strictSame(bundle.evidence, runtimeOnlyEvidence());
  t.match(bundle.drift, { controlRecorded: true });
  t.match(JSON.parse(await readFile(join(dir, 'facts/baseline/node0.json'), 'utf8')), { users: ['root'] });
  t.ok((await readdir(join(dir, 'task'))).includes('task.toml'), 'it holds its own copy of the task');
});

t.test('a folder that holds something already is not taken for a bundle', async (t) => {
  const dir = await temporaryFolder(t);
  await writeFile(join(dir, 'something'), '');
  await t.rejects(BundleWriter.create(dir), { code: 'IB_STATE_DIR', message: /not empty/ });
});

t.test('without its manifest a bundle is not whole', async (t) => {
  const dir = await makeBundle(await temporaryFolder(t));
  await rm(join(dir, 'bundle.json'));
  await t.rejects(readBundle(dir), {
    code: 'IB_BUNDLE_INVALID',
    message: /no bundle\.json/,
    hint: /trial list/,
  });
});

t.test('evidence after a kill -9 is continued without the torn line', async (t) => {
  const dir = join(await temporaryFolder(t), 'bundle');
  const first = await BundleWriter.create(dir);
  first.evidence(look('a', 'immediate', true));
  first.close();
  await appendFile(join(dir, 'evidence.jsonl'), '{"check":"b","mom');
  const second = await BundleWriter.resume(dir);
  second.evidence(look('c', 'running', true));
  await second.finish(manifest());
  t.strictSame(
    (await readBundle(dir)).evidence.map((record) => record.check),
    ['a', 'c'],
  );
  await t.rejects(BundleWriter.resume(dir), { code: 'IB_BUNDLE_INVALID', message: /complete/ });
});

t.test('damage is named by file, line, key and what was expected', async (t) => {
  const cases: [string, (text: string) => string, RegExp][] = [
    ['bundle.json', (text) => text.slice(0, 40), /bundle\.json: .*JSON/],
    [
      'bundle.json',
      (text) => text.replace('"attempt": 1', '"attempt": 0'),
      /bundle\.json: attempt: .*>=\s?1/,
    ],
    [
      'bundle.json',
      (text) => text.replace('"version": 1', '"version": 2'),
      /bundle\.json: version: .*expected 1/,
    ],
    [
      'evidence.jsonl',
      (text) => text.replace('"moment":"running"', '"moment":"later"'),
      /evidence\.jsonl:3: moment: /,
    ],
    ['evidence.jsonl', (text) => `${text}{"check"`, /evidence\.jsonl:46: the line has no end/],
    ['evidence.jsonl', (text) => text.replace('\n', '\nnot json\n'), /evidence\.jsonl:2: .*JSON/],
  ];
  for (const [file, edit, message] of cases) {
    const dir = await makeBundle(await temporaryFolder(t));
    const path = join(dir, file);
    await writeFile(path, edit(await readFile(path, 'utf8')));
    await t.rejects(readBundle(dir), { code: 'IB_BUNDLE_INVALID', message }, String(message));
  }
});

t.test('missing evidence is not an empty list', async (t) => {
  const dir = await makeBundle(await temporaryFolder(t));
  await rm(join(dir, 'evidence.jsonl'));
  await t.rejects(readBundle(dir), {
    code: 'IB_BUNDLE_INVALID',
    message: /evidence\.jsonl: this file of the bundle is missing/,
  });
});

t.test('a record of a wrong shape is refused before it is written', async (t) => {
  const dir = join(await temporaryFolder(t), 'bundle');
  const bundle = await BundleWriter.create(dir);
  t.throws(() => bundle.evidence({ ...look('a', 'immediate', true), probe: -1 }));
  bundle.close();
  bundle.close();
  t.equal(await readFile(join(dir, 'evidence.jsonl'), 'utf8'), '');
  t.throws(() => bundle.evidence(look('a', 'immediate', true)), { code: 'IB_INTERNAL' });
});

t.test('of a long console the end is kept', async (t) => {
  const root = await temporaryFolder(t);
  const bundle = await BundleWriter.create(join(root, 'bundle'));
  await writeFile(join(root, 'console.log'), `${'x'.repeat(5 * 1024 * 1024)}the end`);
  await bundle.console('node0', join(root, 'console.log'));
  const kept = await readFile(join(root, 'bundle/console/node0.log'), 'utf8');
  t.equal(kept.length, 4 * 1024 * 1024);
  t.ok(kept.endsWith('the end'));
  bundle.close();
});

t.test('the task is copied with its links as they are, never through them', async (t) => {
  const root = await temporaryFolder(t);
  const task = await writeTask(root);
  await mkdir(join(task, 'checks'));
  await symlink('/etc/passwd', join(task, 'checks', 'link'));
  const bundle = await BundleWriter.create(join(root, 'bundle'));
  await bundle.task(task);
  t.equal(await readlink(join(root, 'bundle/task/checks/link')), '/etc/passwd');
  bundle.close();
});

const unprivileged = process.getuid?.() === 0 ? false : 'needs root, for a small disk of its own';

t.test(
  'a full disk is said by every writer, and what was written stays whole',
  { skip: unprivileged },
  async (t) => {
    const disk = await temporaryFolder(t);
    const script = 'mount -t tmpfs -o size=768k none "$1" && exec "$2" --import=tsx "$3" "$1"';
    const filler = join(packageRoot, 'test/fixtures/fill-disk.ts');
    // The mount lives in a namespace that ends with its process.
    const args = ['--mount', '--', 'sh', '-c', script, 'sh', disk, process.execPath, filler];
    const { stdout } = await run('unshare', args, { cwd: packageRoot, timeoutMs: 60_000 });
    t.strictSame(JSON.parse(stdout), {
      ledger: 'IB_DISK_FULL',
      evidence: 'IB_DISK_FULL',
      objects: 'IB_DISK_FULL',
      json: 'IB_DISK_FULL',
      manifest: 'IB_DISK_FULL',
      verified: true,
      lastEvidence: 'after',
    });
  },
);
