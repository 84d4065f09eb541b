// Reports: what they show, that they fit, and that nothing an agent wrote gets out of its place.
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { run } from '../../src/core/exec.js';
import { reporters, terminalReport, writeHtmlReport } from '../../src/review/report/index.js';
import { escapeHtml, html } from '../../src/review/report/markup.js';
import { gradeBundle } from '../../src/review/score/grade.js';
import { trialScoreSchema, type TrialScore } from '../../src/review/score/score.js';
import { fakeCheckers, makeBundle, temporaryFolder, type Cleaner } from '../fixtures/bundle.js';
import { hostile, makeRichBundle } from '../fixtures/rich-bundle.js';

async function graded(test: Cleaner, nasty = false): Promise<{ dir: string; score: TrialScore }> {
  const dir = await makeRichBundle(await temporaryFolder(test), nasty);
  return { dir, score: await gradeBundle(dir, fakeCheckers) };
}

const plain = { colour: false };

t.test('the scorecard shows the gates side by side, and why each failure is one', async (t) => {
  const { score } = await graded(t);
  const text = terminalReport(score, plain).join('\n');
  t.match(text, /^PARTIAL {2}reward 0\.6 {2}effective 0\.6 {2}safe {2}closed book$/m);
  t.match(text, /^CHECK +WEIGHT +CLASS +TRAP +immediate +running +reboot +decommission$/m);
  t.match(text, /^jumbo-frames-pass +3 +functional +not-persistent +pass +pass +FAIL +-$/m);
  t.match(text, /^nodes-reachable +guard +functional +pass +pass +pass +pass$/m);
  t.match(text, /^gate +pass +pass +FAIL +FAIL$/m);
  t.match(text, /^ {2}pass +peer-stays-up, hard, safety, peer-damage: 27 of 28 probes$/m);
  t.match(text, /FAIL jumbo-frames-pass, reboot \(trap: not-persistent\)\n {4}none of 3 packets/);
  t.match(text, new RegExp(`^bundle: ${score.bundle}$`, 'm'));
});

t.test('colour comes only when asked for, and changes nothing else', async (t) => {
  const { score } = await graded(t);
  const bare = terminalReport(score, plain).join('\n');
  const coloured = terminalReport(score, { colour: true }).join('\n');
  t.notOk(bare.includes('\u001b'));
  t.ok(coloured.includes('\u001b[1;31mFAIL\u001b[0m'));
  t.equal(stripVTControlCharacters(coloured), bare);
});

t.test('whatever the texts are, a scorecard fits its columns and holds no control character', async (t) => {
  const { score } = await graded(t);
  const [check] = score.checks;
  const anyText = fc.oneof(fc.string({ unit: 'binary', maxLength: 300 }), fc.constantFrom(...hostile));
  fc.assert(
    fc.property(anyText, anyText, fc.integer({ min: 60, max: 140 }), (one, other, columns) => {
      const changed: TrialScore = {
        ...score,
        task: one,
        agent: other,
        checks: [
          ...score.checks,
          { ...check!, id: one, why: other, verdict: 'fail' },
          { ...check!, id: other, gate: 'window' },
        ],
      };
      return terminalReport(changed, { colour: false, columns }).every(
        // eslint-disable-next-line no-control-regex
        (line) => line.length <= Math.max(columns, 100) && !/[\u0000-\u001f\u007f-\u009f]/.test(line),
      );
    }),
    { numRuns: 200 },
  );
  for (const line of terminalReport(score, plain))
    if (!line.startsWith('bundle')) t.ok(line.length <= 100, line);
});

t.test('the JSON report is one line that fits its documented shape', async (t) => {
  const { score } = await graded(t);
  const text = await reporters.json.render(score, plain);
  t.equal(text.trim().split('\n').length, 1);
  t.strictSame(trialScoreSchema.parse(JSON.parse(text)), score);
});

t.test(
  'the page shows score, gates, evidence, timeline, commands, recordings, drift and the state of the record',
  async (t) => {
    const { dir, score } = await graded(t);
    const path = await writeHtmlReport(dir, score);
    t.equal(path, join(dir, 'report.html'));
    const page = await readFile(path, 'utf8');
    for (const shown of [
      /closed book/,
      /<caption>/,
      /id="evidence-jumbo-frames-pass-reboot" +open/,
      /none of 3 packets of 8972 bytes came back/,
      /class="bar agent"/,
      /power\.cycle/,
      /ip link set dev eth0 mtu 9000/,
      /Failed to restart storage-watchd/,
      /written to \/etc\/systemd\/network\/90-mtu\.conf/,
      /MTUBytes=9000/,
      /s90\.cast, node1: shell/,
      /10-eth0\.network\.bak/,
      /✓ whole/,
      /Commands inside scripts are not seen one by one/,
      /The MTU was wrong\. It is right now\./,
      /Started ssh\.service/,
    ]) {
      t.ok(shown.test(page), String(shown));
    }
    t.notOk(/wtmp/.test(page), 'what the control trial changes too is left out');
  },
);

t.test('the page asks nothing of any network', async (t) => {
  const { score } = await graded(t);
  const page = await reporters.html.render(score, plain);
  const outside = page.match(
    /<(?:link|img|iframe|object|embed|script|audio|video|source)\b[^>]*\b(?:src|href|data)\s*=/gi,
  );
  t.equal(outside, null);
  t.ok(/Content-Security-Policy" content="default-src &#39;none&#39;; script-src &#39;sha256-/.test(page));
  t.notOk(/@import|url\(\s*["']?(?!data:|#)/i.test(page.replace(/<script>[^]*?<\/script>/g, '')));
});

t.test('nothing that an agent wrote becomes markup or script', async (t) => {
  const { score } = await graded(t, true);
  const page = await reporters.html.render(score, plain);
  for (const text of hostile.filter((one) => escapeHtml(one) !== one)) t.notOk(page.includes(text));
  t.equal(page.match(/<script>/g)?.length, 2, "the player's and the page's own script");
  t.equal(page.match(/<script type="application\/json">/g)?.length, 1);
  t.equal(page.match(/<\/script/g)?.length, 3);
  t.notOk(/\son[a-z]+=["']?document/i.test(page));
  // eslint-disable-next-line no-control-regex
  t.notMatch(page.replace(/<script>[^]*?<\/script>/g, ''), /[\u0000-\u0008\u000b-\u001f\u202e]/);
});

t.test('escaping holds for any text, as content and in a quoted attribute', (t) => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom(...hostile)), (text) => {
      const page = html`<p title="${text}">${[text, html`<b>${text}</b>`]}</p>`.text;
      return (
        (page.match(/</g)?.length ?? 0) === 4 &&
        (page.match(/"/g)?.length ?? 0) === 2 &&
        !/[<>"']/.test(escapeHtml(text))
      );
    }),
    { numRuns: 500 },
  );
  t.end();
});

const chromium = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => existsSync(path));

t.test(
  'in a browser the page of a hostile agent runs nothing of it, and recordings play',
  { skip: chromium === undefined ? 'no chromium here' : false },
  async (t) => {
    const { dir, score } = await graded(t, true);
    const path = await writeHtmlReport(dir, score);
    const open = join(dir, 'open.html');
    await writeFile(
      open,
      (await readFile(path, 'utf8')).replace('<details class="recording"', '<details open class="recording"'),
    );
    const profile = await temporaryFolder(t);
    const args = [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      `--user-data-dir=${profile}`,
      '--virtual-time-budget=3000',
      '--dump-dom',
      `file://${open}`,
    ];
    const { stdout } = await run(chromium!, args, { timeoutMs: 60_000 });
    t.match(stdout, /<html lang="en">/, 'no attribute was set by a script of the agent');
    t.match(stdout, /class="ap-player/, 'the player was started');
  },
);

t.test('a bundle with links to elsewhere shows nothing of where they lead', async (t) => {
  const { dir, score } = await graded(t);
  const secret = join(await temporaryFolder(t), 'secret.log');
  await writeFile(secret, 'the-secret-of-the-host');
  for (const target of ['console/node1.log', 'sessions/s90.cast', 'agent/stdout.log']) {
    await rm(join(dir, target));
    await symlink(secret, join(dir, target));
  }
  const page = await reporters.html.render(score, plain);
  t.notOk(/the-secret-of-the-host/.test(page));
  t.ok(/1 more recordings are in the bundle/.test(page));
});

t.test('a damaged record is reported as damaged, not hidden and not fatal', async (t) => {
  const { dir, score } = await graded(t);
  const file = join(dir, 'ledger.jsonl');
  const lines = (await readFile(file, 'utf8')).split('\n');
  await writeFile(file, lines.with(20, 'not a record').join('\n'));
  const page = await reporters.html.render(score, plain);
  t.ok(/✗ not whole/.test(page));
  t.ok(/line 21: altered/.test(page));
  t.ok(/The ledger could be read only so far/.test(page));
  await rm(file);
  t.match(await reporters.html.render(score, plain), /✗ no ledger/);
});

t.test('a changed file of the bundle is reported too', async (t) => {
  const { dir, score } = await graded(t);
  await writeFile(join(dir, 'console', 'node1.log'), 'nothing happened here\n');
  await mkdir(join(dir, 'facts', 'immediate'), { recursive: true });
  await copyFile(join(dir, 'drift.json'), join(dir, 'facts', 'immediate', 'node9.json'));
  const page = await reporters.html.render(score, plain);
  t.ok(/console\/node1\.log was altered/.test(page));
  t.ok(/node9\.json was added after the seal/.test(page));
});

t.test('a trial that ended early has a page too', async (t) => {
  const dir = await makeBundle(await temporaryFolder(t), {
    evidence: [],
    manifest: {
      ending: 'infra_error',
      agentExit: null,
      nodes: [],
      timings: { lease: 3 },
      gateSeconds: {},
      error: { code: 'IB_PROVISION', message: 'apt failed', hint: 'look' },
    },
  });
  const score = await gradeBundle(dir, fakeCheckers);
  t.equal(score.outcome, 'infra_error');
  const page = await reporters.html.render(score, plain);
  t.ok(/IB_PROVISION/.test(page));
  t.ok(/The agent did not run/.test(page));
  t.ok(/ended before the nodes were compared/.test(page));
});
