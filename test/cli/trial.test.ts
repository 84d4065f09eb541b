// `infrabed trial` and `infrabed ledger`: what they print, where they look, and the exit status they ask for.
import { existsSync } from 'node:fs';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import yargs from 'yargs';
import { trialsAreElsewhere } from '../../src/cli/as-root.js';
import type { CliNoun, Face } from '../../src/cli/command.js';
import { ledgerNoun } from '../../src/cli/commands/ledger.js';
import { trialNoun } from '../../src/cli/commands/trial.js';
import { silentHost } from '../../src/core/io.js';
import { openStore } from '../../src/record/store/store.js';
import { trialScoreSchema } from '../../src/review/score/score.js';
import { look, makeBundle, manifest, startedAt, temporaryFolder, type Cleaner } from '../fixtures/bundle.js';
import { makeRichBundle } from '../fixtures/rich-bundle.js';

interface Ended {
  lines: string[];
  exitStatus: number;
}

async function infrabed(noun: CliNoun, ...argv: string[]): Promise<Ended> {
  const lines: string[] = [];
  const face: Face = {
    io: silentHost,
    print: (line) => void lines.push(line),
    printJson: (value) => void lines.push(JSON.stringify(value)),
    explain: () => undefined,
    signal: new AbortController().signal,
    onSecondInterrupt: () => undefined,
    columns: 100,
    interactive: false,
    exitStatus: 0,
  };
  let parser = yargs(argv)
    .strict()
    .exitProcess(false)
    .fail((message: string | null, error: Error | undefined) => {
      throw error ?? new Error(message ?? 'wrong usage');
    });
  for (const verb of noun.verbs(face)) parser = parser.command(verb);
  await parser.parseAsync();
  return { lines, exitStatus: face.exitStatus };
}

/** A state folder of its own, for the length of one test. */
async function ownState(test: Cleaner): Promise<string> {
  const before = process.env['INFRABED_STATE_DIR'];
  const state = join(await temporaryFolder(test), 'state');
  process.env['INFRABED_STATE_DIR'] = state;
  test.teardown(() => {
    if (before === undefined) delete process.env['INFRABED_STATE_DIR'];
    else process.env['INFRABED_STATE_DIR'] = before;
  });
  return state;
}

/** The task of the fixtures, judged by checkers that there really are. */
const toml = `schema_version = "1.1"
[task]
name = "infrabed/mtu"
description = "One of two nodes sends small frames."
[metadata]
layer = "L2"
stage = "maintain"
difficulty = "medium"
[agent]
timeout_sec = 900
[environment]
type = "container-cluster"
[[environment.nodes]]
name = "node0"
[[checks]]
id = "nodes-reachable"
gates = ["immediate", "reboot"]
uses = "nodes-reachable"
on = "node0"
weight = 1
class = "functional"
`;
const seen = (reachable: boolean) => ({
  evidence: { nodes: [{ node: 'node0', reachable, why: reachable ? null : 'no answer' }] },
});
const evidence = [
  look('nodes-reachable', 'immediate', seen(true)),
  look('nodes-reachable', 'reboot', seen(false)),
];

t.test('a site without trials says so, and looking makes no store', async (t) => {
  const state = await ownState(t);
  t.match((await infrabed(trialNoun, 'list')).lines[0], /No trial was run yet/);
  t.strictSame((await infrabed(trialNoun, 'list', '--json')).lines, []);
  await t.rejects(infrabed(trialNoun, 'show', 't-1'), { code: 'IB_TRIAL_UNKNOWN' });
  t.notOk(existsSync(state));
});

t.test(
  "trials that ran through sudo are looked for in root's state folder, and only where nothing nearer is",
  (t) => {
    const found = { isRoot: false, chosen: false, ownState: false, rootState: true, named: false };
    t.ok(trialsAreElsewhere(found));
    for (const nearer of ['isRoot', 'chosen', 'ownState', 'named']) {
      t.notOk(trialsAreElsewhere({ ...found, [nearer]: true }), nearer);
    }
    t.notOk(trialsAreElsewhere({ ...found, rootState: false }));
    t.end();
  },
);

t.test('trials are listed oldest first, one JSON object a line', async (t) => {
  const store = await openStore(await ownState(t));
  const base = {
    task: 'infrabed/mtu',
    attempt: 1,
    lease: null,
    controller: 'c',
    bundle: '/b',
    owner: 'ada',
    state: 'ended',
    ended_at: 1,
  };
  await store.db
    .insertInto('trials')
    .values([
      { ...base, id: 't-2', agent: 'noop\u001b[31m', outcome: 'failed', reward: 0, started_at: 2000 },
      { ...base, id: 't-1', agent: 'oracle', outcome: 'resolved', reward: 1, started_at: 1000 },
      { ...base, id: 't-3', agent: 'oracle', outcome: null, reward: null, started_at: 3000 },
    ])
    .execute();
  await store.close();
  const { lines } = await infrabed(trialNoun, 'list', '--json');
  t.strictSame(lines.map((line) => JSON.parse(line) as unknown)[0], {
    trial: 't-1',
    task: 'infrabed/mtu',
    agent: 'oracle',
    owner: 'ada',
    outcome: 'resolved',
    reward: 1,
    bundle: '/b',
  });
  t.strictSame(
    lines.map((line) => (JSON.parse(line) as { trial: string }).trial),
    ['t-1', 't-2', 't-3'],
  );
  const table = (await infrabed(trialNoun, 'list')).lines;
  t.match(table[2], /^t-2 +infrabed\/mtu +noop\?\[31m +failed +0$/);
  t.match(table[3], /^t-3 .* not ended +-$/);
});

t.test('a bundle from anywhere is shown, reported and graded again, with no store', async (t) => {
  await ownState(t);
  const made = await makeBundle(await temporaryFolder(t), { toml, evidence });
  const dir = join(await temporaryFolder(t), 'moved');
  await cp(made, dir, { recursive: true });
  const shown = trialScoreSchema.parse(
    JSON.parse((await infrabed(trialNoun, 'show', dir, '--json')).lines[0]!),
  );
  t.match(shown, { outcome: 'partial', reward: 0.5, bundle: dir });
  t.notOk(existsSync(join(dir, 'score.json')), 'showing writes nothing');
  const first = await infrabed(trialNoun, 'regrade', dir);
  t.match(first.lines.join('\n'), /PARTIAL {2}reward 0\.5/);
  t.equal(first.exitStatus, 0);
  t.match((await infrabed(trialNoun, 'regrade', dir)).lines.at(-1), /The same as graded before/);
  t.ok(existsSync(join(dir, 'report.html')));
  const json = (await infrabed(trialNoun, 'report', dir, '--format', 'json')).lines;
  t.match(JSON.parse(json[0]!), { reward: 0.5 });
  t.strictSame((await infrabed(trialNoun, 'report', dir, '--format', 'html')).lines, [
    join(dir, 'report.html'),
  ]);
  t.match((await infrabed(trialNoun, 'report', dir)).lines.join('\n'), /^nodes-reachable +1 +functional/m);
});

t.test(
  'grading again says what it was before, keeps an infrastructure error, and updates the store',
  async (t) => {
    const state = await ownState(t);
    const root = join(state, 'trials');
    const dir = await makeBundle(root, { toml, evidence });
    const store = await openStore(state);
    const id = manifest().trial;
    await store.db
      .insertInto('trials')
      .values({
        id,
        task: 'infrabed/mtu',
        agent: 'x',
        attempt: 1,
        lease: null,
        controller: 'c',
        bundle: dir,
        state: 'ended',
        outcome: 'resolved',
        reward: 1,
        started_at: startedAt,
        ended_at: startedAt,
      })
      .execute();
    await infrabed(trialNoun, 'regrade', id);
    const row = await store.db.selectFrom('trials').selectAll().executeTakeFirstOrThrow();
    t.match(row, { outcome: 'partial', reward: 0.5 });
    await store.close();
    const path = join(dir, 'score.json');
    const score = trialScoreSchema.parse(JSON.parse(await readFile(path, 'utf8')));
    await writeFile(
      path,
      JSON.stringify({ ...score, outcome: 'infra_error', reward: 1, timings: { clean: 77 } }),
    );
    const again = await infrabed(trialNoun, 'regrade', id);
    t.match(again.lines.at(-1), /Graded before: infra_error, reward 1/);
    t.match(trialScoreSchema.parse(JSON.parse(await readFile(path, 'utf8'))), {
      outcome: 'infra_error',
      reward: 0.5,
      timings: { clean: 77 },
    });
  },
);

t.test('ledger verify tells a whole record from a changed one, and whose key sealed it', async (t) => {
  await ownState(t);
  const root = await temporaryFolder(t);
  const dir = await makeRichBundle(root);
  const whole = await infrabed(ledgerNoun, 'verify', dir);
  t.equal(whole.exitStatus, 0);
  t.match(whole.lines, [/^ok: \d+ records of t-.*compared with none that is trusted/, /^ok: \d+ files/]);
  const key = join(root, 'state', 'keys', 'site.pub');
  t.match((await infrabed(ledgerNoun, 'verify', dir, '--public-key', key)).lines[0], /key that was given/);
  const other = join(root, 'other.pub');
  await writeFile(other, `${Buffer.alloc(32, 7).toString('base64')}\n`);
  const forged = await infrabed(ledgerNoun, 'verify', dir, '--public-key', other, '--json');
  t.equal(forged.exitStatus, 3);
  t.match(JSON.parse(forged.lines[0]!), {
    ok: false,
    trust: 'given',
    problems: [{ line: null, problem: /another key/ }],
  });
  await t.rejects(infrabed(ledgerNoun, 'verify', dir, '--public-key', join(dir, 'bundle.json')), {
    code: 'IB_USAGE',
  });
});

t.test('ledger verify names the changed line and the changed file, and ends with 3', async (t) => {
  await ownState(t);
  const dir = await makeRichBundle(await temporaryFolder(t));
  const console = join(dir, 'console', 'node1.log');
  const before = await readFile(console, 'utf8');
  await writeFile(console, before.replace('ssh', 'shh'));
  const file = await infrabed(ledgerNoun, 'verify', dir);
  t.equal(file.exitStatus, 3);
  t.match(file.lines[1], /file: console\/node1\.log was altered/);
  await writeFile(console, before);
  const manifestFile = join(dir, 'bundle.json');
  const manifestBefore = await readFile(manifestFile, 'utf8');
  await writeFile(manifestFile, manifestBefore.replace('"timedOut": false', '"timedOut": true'));
  t.match((await infrabed(ledgerNoun, 'verify', dir)).lines[1], /file: bundle\.json was altered/);
  await writeFile(manifestFile, manifestBefore);
  const ledger = join(dir, 'ledger.jsonl');
  await writeFile(ledger, (await readFile(ledger, 'utf8')).replace('mtu 9000', 'mtu 1500'));
  const line = await infrabed(ledgerNoun, 'verify', dir);
  t.equal(line.exitStatus, 3);
  t.match(line.lines[1], /^ {2}line \d+: altered/);
});

t.test("a trial of this site must be sealed with this site's key", async (t) => {
  const state = await ownState(t);
  // The fixture keeps its key beside the bundle; here that is not the site's.
  const dir = await makeBundle(join(state, 'trials'), { toml, evidence });
  t.match(
    (await infrabed(ledgerNoun, 'verify', dir)).lines[0],
    /compared with none/,
    'a site without a key trusts none',
  );
  await cp(join(state, 'trials', 'state', 'keys'), join(state, 'keys'), { recursive: true });
  t.match((await infrabed(ledgerNoun, 'verify', dir)).lines[0], /this site's key/);
});
