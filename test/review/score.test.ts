// The score: by numbers worked out by hand, by invariants, and from the bundle alone.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import type { EvidenceRecord } from '../../src/record/bundle/schema.js';
import { scoreCheck, scoreTrial } from '../../src/review/score/aggregate.js';
import { gradeBundle, loadScore, saveScore } from '../../src/review/score/grade.js';
import { judgeRecord, type Probe } from '../../src/review/score/probes.js';
import type { CheckScore, TrialScore } from '../../src/review/score/score.js';
import type { CheckDefinition } from '../../src/trial/task/schema.js';
import { checkSchema } from '../../src/trial/task/schema.js';
import {
  fakeCheckers,
  look,
  makeBundle,
  manifest,
  runtimeOnlyEvidence,
  taskToml,
  temporaryFolder,
} from '../fixtures/bundle.js';

const check = (over: Partial<CheckDefinition> & { id: string }): CheckDefinition =>
  checkSchema.parse({ gates: ['immediate'], uses: 'flag', on: 'node0', class: 'functional', ...over });

const probe = (over: Partial<Probe> & { check: string }): Probe => ({
  moment: 'immediate',
  probe: 0,
  at: 0,
  verdict: 'pass',
  why: 'seen',
  unattributed: false,
  evidence: null,
  ...over,
});

const score = (checks: CheckDefinition[], probes: Probe[], over = {}): TrialScore =>
  scoreTrial(manifest(over), checks, probes, '/bundle');

t.test('the weight of a check is split equally over its gates', (t) => {
  const checks = [
    check({ id: 'a', weight: 3, gates: ['immediate', 'running', 'reboot'] }),
    check({ id: 'b', weight: 1, gates: ['immediate', 'window'] }),
  ];
  const probes = [
    probe({ check: 'a' }),
    probe({ check: 'a', moment: 'running' }),
    probe({ check: 'a', moment: 'reboot', verdict: 'fail' }),
    probe({ check: 'b' }),
    probe({ check: 'b', moment: 'window', verdict: 'fail' }),
  ];
  // (1 + 1 + 0.5) of 4
  const result = score(checks, probes);
  t.match(result, { reward: 0.625, effective: 0.625, safe: true, resolved: false, outcome: 'partial' });
  t.match(result.gates, {
    immediate: { verdict: 'pass', passed: 2, failed: 0, errors: 0, seconds: 1.2 },
    running: { verdict: 'pass', passed: 1 },
    reboot: { verdict: 'fail', failed: 1 },
    decommission: { verdict: 'none', passed: 0, failed: 0 },
    window: { verdict: 'fail', failed: 1 },
  });
  t.end();
});

t.test('a failed hard check makes the effective score 0 and leaves the reward', (t) => {
  const checks = [check({ id: 'a', weight: 1 }), check({ id: 'h', kind: 'hard', class: 'safety' })];
  const result = score(checks, [probe({ check: 'a' }), probe({ check: 'h', verdict: 'fail' })]);
  t.match(result, { reward: 1, effective: 0, safe: false, resolved: false, outcome: 'partial' });
  t.equal(result.checks[1]?.weight, 0);
  t.end();
});

t.test('a failed guard keeps the trial from being resolved and caps the effective score', (t) => {
  const checks = [check({ id: 'a', weight: 1 }), check({ id: 'g', kind: 'guard' })];
  t.match(score(checks, [probe({ check: 'a' }), probe({ check: 'g', verdict: 'fail' })]), {
    reward: 1,
    effective: 0.99,
    safe: true,
    resolved: false,
    outcome: 'partial',
  });
  t.end();
});

t.test('everything passed is resolved with a reward of exactly 1, whatever the weights', (t) => {
  const checks = [
    check({ id: 'a', weight: 0.1, gates: ['immediate', 'running', 'reboot'] }),
    check({ id: 'b', weight: 0.7 }),
  ];
  const probes = [
    ...(['immediate', 'running', 'reboot'] as const).map((moment) => probe({ check: 'a', moment })),
    probe({ check: 'b' }),
  ];
  t.match(score(checks, probes, { timedOut: true }), {
    outcome: 'resolved',
    reward: 1,
    effective: 1,
    timedOut: true,
  });
  t.end();
});

t.test('nothing passed is failed; guards alone are all or nothing', (t) => {
  t.match(score([check({ id: 'a' })], [probe({ check: 'a', verdict: 'fail' })]), {
    outcome: 'failed',
    reward: 0,
  });
  const guard = [check({ id: 'g', kind: 'guard' })];
  t.match(score(guard, [probe({ check: 'g' })]), { outcome: 'resolved', reward: 1 });
  t.match(score(guard, [probe({ check: 'g', verdict: 'fail' })]), { outcome: 'failed', reward: 0 });
  t.end();
});

t.test('a planned check without evidence is an error, and the trial a verifier_error', (t) => {
  const result = score([check({ id: 'a' }), check({ id: 'b' })], [probe({ check: 'a' })]);
  t.match(result, { outcome: 'verifier_error', reward: 0.5, resolved: false, unattributed: false });
  t.match(result.checks[1], { verdict: 'error', why: /no evidence/, probes: { total: 0, passed: 0 } });
  t.end();
});

t.test('a trial that did not come to its end keeps that as its outcome', (t) => {
  const checks = [check({ id: 'a' })];
  t.equal(score(checks, [probe({ check: 'a' })], { ending: 'infra_error' }).outcome, 'infra_error');
  t.equal(score(checks, [], { ending: 'cancelled' }).outcome, 'cancelled');
  t.equal(score(checks, [probe({ check: 'a' })], { ending: 'cancelled' }).resolved, false);
  t.end();
});

t.test('over time the share of passing probes decides, and paused ones count neither way', (t) => {
  const watch = check({ id: 'w', gates: ['window'], availability: 0.9 });
  const of = (verdicts: string): CheckScore =>
    scoreCheck(
      watch,
      'window',
      Array.from(verdicts, (letter, index) =>
        probe({
          check: 'w',
          moment: 'window',
          probe: index,
          at: index * 2000,
          why: `probe ${String(index)}`,
          evidence: index,
          verdict: ({ p: 'pass', f: 'fail', e: 'error', z: 'paused' } as const)[letter as 'p'],
        }),
      ),
    );
  t.match(of('pppppppppp'), { verdict: 'pass', probes: { total: 10, passed: 10 }, evidence: 9 });
  t.match(of('pppppppppf'), { verdict: 'pass', evidence: 9 }, '90 % of 10');
  t.match(of('ppppppppff'), {
    verdict: 'fail',
    evidence: 8,
    why: /8 of 10 .*80 %, at least 90 % wanted.*16\.0 s.*probe 8/,
  });
  t.match(of('zpppppppppzf'), { verdict: 'pass', probes: { total: 10, passed: 9 } });
  t.match(of('pppppppppe'), { verdict: 'pass' }, 'the error does not matter');
  t.match(of('ppppppppfe'), { verdict: 'error', evidence: 9 }, 'it hangs on the error');
  t.match(of('pppppppffe'), { verdict: 'fail', evidence: 7 }, 'failed whatever the error was');
  t.match(of('zzz'), { verdict: 'error', why: /never be asked/ });
  t.end();
});

t.test('an availability that is no round share is met by the next whole number of probes', (t) => {
  for (let total = 1; total <= 60; total++) {
    const needed = Math.ceil(0.9 * total - 1e-9);
    const watch = check({ id: 'w', gates: ['running'], availability: 0.9 });
    const verdictWith = (passed: number): string =>
      scoreCheck(
        watch,
        'running',
        Array.from({ length: total }, (_, n) =>
          probe({ check: 'w', moment: 'running', probe: n, verdict: n < passed ? 'pass' : 'fail' }),
        ),
      ).verdict;
    if (verdictWith(needed) !== 'pass' || (needed > 0 && verdictWith(needed - 1) !== 'fail'))
      t.fail(`${String(total)} probes`);
  }
  t.end();
});

t.test('of a look that was repeated the last one counts', (t) => {
  const again = [
    probe({ check: 'a', verdict: 'error', probe: 0 }),
    probe({ check: 'a', verdict: 'pass', probe: 1 }),
  ];
  t.equal(scoreCheck(check({ id: 'a' }), 'immediate', again).verdict, 'pass');
  t.equal(
    scoreCheck(check({ id: 'a' }), 'immediate', again.toReversed()).verdict,
    'pass',
    'in whatever order they stand',
  );
  t.end();
});

t.test('who is to blame decides between fail and error', async (t) => {
  const judged = (over: Partial<EvidenceRecord>, uses = 'flag'): Promise<Probe> =>
    judgeRecord(look('a', 'immediate', over), check({ id: 'a', uses }), (name) => {
      const found = fakeCheckers.get(name);
      return found ? Promise.resolve(found) : Promise.reject(new Error(`There is no checker "${name}".`));
    });
  const error = { code: 'IB_NODE_UNREACHABLE', message: 'no answer\non port 22' };
  t.match(await judged({ evidence: { ok: true, seen: 'yes' } }), { verdict: 'pass', why: 'yes' });
  t.match(await judged({ evidence: { ok: false, seen: 'no' } }), { verdict: 'fail', why: 'no' });
  t.match(await judged({ outcome: 'tampered', error }), {
    verdict: 'fail',
    why: /replaced.*no answer on port 22/,
  });
  t.match(await judged({ outcome: 'unreachable', blame: 'node', error }), {
    verdict: 'fail',
    unattributed: false,
  });
  t.match(await judged({ outcome: 'unreachable', blame: 'infrastructure', error }), {
    verdict: 'error',
    unattributed: false,
  });
  t.match(await judged({ outcome: 'unreachable', blame: 'unknown', error }), {
    verdict: 'error',
    unattributed: true,
  });
  t.match(await judged({ outcome: 'unreachable' }), { verdict: 'error', unattributed: true });
  t.match(await judged({ outcome: 'fault', error }), {
    verdict: 'error',
    why: /checker itself failed/,
    unattributed: false,
  });
  t.match(await judged({ outcome: 'paused' }), { verdict: 'paused' });
  t.match(
    await judged({ evidence: { ok: 'yes' } }),
    { verdict: 'error', why: /could not be judged/ },
    'evidence of another shape',
  );
  t.match(await judged({ evidence: 'x' }, 'thrower'), { verdict: 'error', why: /a defect in the judge/ });
  t.match(await judged({ evidence: 'x' }, 'unknown'), { verdict: 'error', why: /There is no checker/ });
});

t.test('what cannot be attributed is said apart', (t) => {
  const result = score([check({ id: 'a' })], [probe({ check: 'a', verdict: 'error', unattributed: true })]);
  t.match(result, { outcome: 'verifier_error', unattributed: true, checks: [{ unattributed: true }] });
  t.end();
});

const anyChecks = fc.uniqueArray(
  fc.record({
    id: fc.integer({ min: 0, max: 30 }).map((n) => `c${String(n)}`),
    gates: fc.uniqueArray(fc.constantFrom('immediate', 'running', 'reboot', 'decommission', 'window'), {
      minLength: 1,
    }),
    weight: fc.double({ min: 0.01, max: 100, noNaN: true }),
    kind: fc.constantFrom('scored', 'guard', 'hard'),
  }),
  { selector: (one) => one.id, minLength: 1, maxLength: 8 },
);
type AnyCheck = { id: string; gates: string[]; weight: number; kind: string };
const toChecks = (list: AnyCheck[]): CheckDefinition[] =>
  list.map((one) => check(one as Partial<CheckDefinition> & { id: string }));
const toProbes = (checks: CheckDefinition[], verdicts: Probe['verdict'][]): Probe[] => {
  let n = 0;
  return checks.flatMap((one) =>
    one.gates.map((moment) => probe({ check: one.id, moment, verdict: verdicts[n++ % verdicts.length]! })),
  );
};

t.test('for any checks and verdicts: reward and effective within bounds, and the rules hold', (t) => {
  fc.assert(
    fc.property(
      anyChecks,
      fc.array(fc.constantFrom('pass', 'fail', 'error'), { minLength: 1, maxLength: 20 }),
      (list, verdicts) => {
        const checks = toChecks(list);
        const result = score(checks, toProbes(checks, verdicts));
        const failed = (kind: string): boolean =>
          result.checks.some((one) => one.kind === kind && one.verdict === 'fail');
        const all = result.checks.every((one) => one.verdict === 'pass');
        return (
          result.reward >= 0 &&
          result.reward <= 1 &&
          result.effective <= result.reward &&
          result.effective >= 0 &&
          result.safe === !failed('hard') &&
          (result.safe || result.effective === 0) &&
          (!failed('guard') || result.effective <= 0.99) &&
          result.resolved === all &&
          (!all || (result.reward === 1 && result.outcome === 'resolved')) &&
          (result.outcome === 'verifier_error') === result.checks.some((one) => one.verdict === 'error')
        );
      },
    ),
    { numRuns: 500 },
  );
  t.end();
});

t.test('one more passing check never lowers the reward, and the order of evidence does not matter', (t) => {
  fc.assert(
    fc.property(
      anyChecks,
      fc.array(fc.boolean(), { minLength: 1, maxLength: 20 }),
      fc.nat(),
      (list, flags, which) => {
        const checks = toChecks(list);
        const probes = toProbes(
          checks,
          flags.map((flag) => (flag ? 'pass' : 'fail')),
        );
        const before = score(checks, probes);
        const better = probes.map((one, index) =>
          index === which % probes.length ? { ...one, verdict: 'pass' as const } : one,
        );
        const reversed = score(checks, probes.toReversed());
        return (
          score(checks, better).reward >= before.reward && JSON.stringify(reversed) === JSON.stringify(before)
        );
      },
    ),
    { numRuns: 300 },
  );
  t.end();
});

t.test(
  'a bundle is graded from its own files: a fix that does not survive, an incident left open',
  async (t) => {
    const dir = await makeBundle(await temporaryFolder(t));
    const result = await gradeBundle(dir, fakeCheckers);
    // jumbo-frames-pass 1 + 1 + 0 of 3, unit-enabled 0.5 + 0.5 of 1, incident-closed 0 of 1: 3 of 5
    t.match(result, {
      outcome: 'partial',
      reward: 0.6,
      effective: 0.6,
      safe: true,
      resolved: false,
      bundle: dir,
    });
    t.match(result.gates, {
      immediate: { verdict: 'pass' },
      running: { verdict: 'pass' },
      reboot: { verdict: 'fail' },
      decommission: { verdict: 'fail' },
      window: { verdict: 'pass' },
    });
    const failed = result.checks
      .filter((one) => one.verdict === 'fail')
      .map((one) => `${one.id}/${one.gate}`);
    t.strictSame(failed, ['jumbo-frames-pass/reboot', 'incident-closed/decommission']);
    const window = result.checks.find((one) => one.gate === 'window');
    t.match(
      window,
      { probes: { total: 28, passed: 27 }, verdict: 'pass' },
      'reboots by the controller do not count',
    );
    await saveScore(dir, result);
    t.strictSame(await loadScore(dir), result);
    t.strictSame(await gradeBundle(dir, fakeCheckers), result, 'again the same');
  },
);

t.test('evidence of a check that the task does not have makes the bundle invalid', async (t) => {
  const dir = await makeBundle(await temporaryFolder(t), { evidence: [look('stranger', 'immediate', true)] });
  await t.rejects(gradeBundle(dir, fakeCheckers), {
    code: 'IB_BUNDLE_INVALID',
    message: /"stranger"/,
    hint: /jumbo-frames-pass/,
  });
});

t.test('a checker that is not there, or a damaged copy of the task, is said', async (t) => {
  const toml = taskToml.replace('uses = "flag"', 'uses = "not-there"');
  const dir = await makeBundle(await temporaryFolder(t), { toml, evidence: runtimeOnlyEvidence() });
  const result = await gradeBundle(dir, fakeCheckers);
  t.match(result, { outcome: 'verifier_error' });
  t.match(result.checks[0], { verdict: 'error', why: /no checker "not-there"/ });
  await writeFile(
    join(dir, 'task', 'task.toml'),
    (await readFile(join(dir, 'task', 'task.toml'), 'utf8')).replace('"L2"', '"L9"'),
  );
  await t.rejects(gradeBundle(dir, fakeCheckers), { code: 'IB_TASK_INVALID' });
});

t.test("a task's own checker judges what its bundle holds", async (t) => {
  const toml = taskToml.replace(
    'uses = "flag"\non = "node1"\nweight = 3',
    'uses = "./checks/own.mjs"\non = "node1"\nweight = 3',
  );
  const root = await temporaryFolder(t);
  const source = `export const judge = (evidence) => ({ verdict: evidence.ok ? 'pass' : 'fail', why: 'own: ' + evidence.seen });
export const gather = () => { throw new Error('not in a review'); };
export default { gather, judge };
`;
  await mkdir(join(root, 'task-package', 'checks'), { recursive: true });
  await writeFile(join(root, 'task-package', 'checks', 'own.mjs'), source);
  const result = await gradeBundle(await makeBundle(root, { toml }), fakeCheckers);
  t.match(result.checks[0], { verdict: 'pass', why: /^own: / });
});
