/** `infrabed trial`: the trials of this site, and the score and report of any bundle. */
import { verifyBundleFiles } from '../../record/bundle/files.js';
import { verifyLedger } from '../../record/ledger/verify.js';
import { InfrabedError } from '../../core/errors.js';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { stateDir } from '../../core/paths.js';
import { printable } from '../../core/printable.js';
import { openStore } from '../../record/store/store.js';
import { reporters, terminalReport, writeHtmlReport } from '../../review/report/index.js';
import { gradeBundle, loadScore, saveScore } from '../../review/score/grade.js';
import type { TrialScore } from '../../review/score/score.js';
import { checkers } from '../../../checkers/index.js';
import { trialList, trialReport, type ListedTrial } from '../../web/api/trials.js';
import { asRootToLook } from '../as-root.js';
import { namedBundle } from '../bundle-argument.js';
import { perform, serverNamed } from '../perform.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';

interface ListArguments {
  json: boolean;
}

const list: CliCommand<ListArguments> = {
  command: 'list',
  describe: 'the trials of this site, oldest first',
  builder: (yargs) =>
    yargs
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a trial' })
      .example('$0 trial list --json', 'for other programs'),
  handler: async ({ json }, face) => {
    const isElsewhere = serverNamed() !== undefined;
    if (!isElsewhere && asRootToLook(face)) return;
    const trials = isElsewhere ? (await perform(face, trialList, {})).trials : await storedTrials(stateDir());
    if (json) for (const trial of trials) face.printJson(trial);
    else for (const line of listing(trials)) face.print(line);
  },
};

/** Looking makes no store. */
async function storedTrials(state: string): Promise<ListedTrial[]> {
  if (!existsSync(join(state, 'store.sqlite'))) return [];
  const store = await openStore(state);
  try {
    return await store.db
      .selectFrom('trials')
      .select(['id as trial', 'task', 'agent', 'owner', 'outcome', 'reward', 'bundle'])
      .orderBy('started_at')
      .orderBy('id')
      .execute();
  } finally {
    await store.close();
  }
}

function listing(trials: readonly ListedTrial[]): string[] {
  if (trials.length === 0) return ['No trial was run yet; "infrabed run TASK" runs one.'];
  const rows = trials.map((trial) => [
    trial.trial,
    printable(trial.task),
    printable(trial.agent),
    trial.outcome ?? 'not ended',
    trial.reward === null ? '-' : String(Math.round(trial.reward * 1000) / 1000),
  ]);
  const all = [['TRIAL', 'TASK', 'AGENT', 'OUTCOME', 'REWARD'], ...rows];
  const widths = all[0]?.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0))) ?? [];
  return all.map((row) =>
    row
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

interface ShowArguments {
  trial: string;
  json: boolean;
}

const trialArgument = {
  type: 'string',
  demandOption: true,
  describe: 'id of a trial, or folder of a bundle',
} as const;

const show: CliCommand<ShowArguments> = {
  command: 'show <trial>',
  describe: 'the scorecard of a trial',
  builder: (yargs) =>
    yargs
      .positional('trial', trialArgument)
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object' })
      .example('$0 trial show t-20260115-093000-abcd', 'what it achieved, and where it failed'),
  handler: async (args, face) => {
    if (serverNamed() !== undefined) {
      face.print(await reportFromServer(args.trial, args.json ? 'json' : 'terminal', face));
      return;
    }
    if (asRootToLook(face, args.trial)) return;
    const { dir } = await namedBundle(args.trial);
    present(await scoreOf(dir), args.json, face);
  },
};

/** The text of a report whose bundle lies on the server's machine. */
async function reportFromServer(trial: string, format: keyof typeof reporters, face: Face): Promise<string> {
  const asked = { trial, format, columns: face.columns, colour: face.interactive };
  return (await perform(face, trialReport, asked)).text.trimEnd();
}

/** The score that was kept; a bundle that was never graded is graded now, without writing into it. */
async function scoreOf(dir: string): Promise<TrialScore> {
  return (await loadScore(dir)) ?? (await gradeBundle(dir, checkers));
}

function present(score: TrialScore, json: boolean, face: Face): void {
  if (json) face.printJson(score);
  else
    for (const line of terminalReport(score, { colour: face.interactive, columns: face.columns }))
      face.print(line);
}

interface ReportArguments {
  trial: string;
  format: keyof typeof reporters;
}

const report: CliCommand<ReportArguments> = {
  command: 'report <trial>',
  describe:
    'report on a trial; html is written into its bundle, and its path printed (through a server: the page itself)',
  builder: (yargs) =>
    yargs
      .positional('trial', trialArgument)
      .option('format', {
        choices: ['terminal', 'json', 'html'] as const,
        default: 'terminal' as const,
        describe: 'which report',
      })
      .example('$0 trial report t-20260115-093000-abcd --format html', 'one page to open in a browser'),
  handler: async ({ trial, format }, face) => {
    if (serverNamed() !== undefined) {
      face.print(await reportFromServer(trial, format, face));
      return;
    }
    if (asRootToLook(face, trial)) return;
    const { dir } = await namedBundle(trial);
    const score = await scoreOf(dir);
    if (format === 'html') face.print(await writeHtmlReport(dir, score));
    else {
      const text = await reporters[format].render(score, { colour: face.interactive, columns: face.columns });
      face.print(text.trimEnd());
    }
  },
};

const regrade: CliCommand<ShowArguments & { unverified: boolean }> = {
  command: 'regrade <trial>',
  describe: 'judge the evidence of a bundle anew with the checkers of today; needs no cluster',
  builder: (yargs) =>
    yargs
      .positional('trial', trialArgument)
      .option('unverified', {
        type: 'boolean',
        default: false,
        describe: 'grade it although its record does not verify',
      })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object' })
      .example('$0 trial regrade ./bundle', 'a bundle from anywhere'),
  handler: async (args, face) => {
    if (asRootToLook(face, args.trial)) return;
    const { dir, ours } = await namedBundle(args.trial);
    if (!args.unverified) await assertUntouched(dir);
    const before = await loadScore(dir);
    const score = carryOver(before, await gradeBundle(dir, checkers));
    await saveScore(dir, score);
    await writeHtmlReport(dir, score);
    if (ours) await remember(score);
    present(score, args.json, face);
    if (before !== undefined && !args.json) face.print(comparison(before, score));
  },
};

/** A grade of evidence that was changed since is worth nothing. @throws InfrabedError IB_LEDGER_INVALID. */
async function assertUntouched(dir: string): Promise<void> {
  const { ok, problems } = await verifyLedger(dir);
  const found = ok ? (await verifyBundleFiles(dir)).problems : problems.map(({ problem }) => problem);
  if (found.length === 0) return;
  throw new InfrabedError('IB_LEDGER_INVALID', `The record of ${dir} does not verify: ${found[0] ?? ''}`, {
    hint: 'Run "infrabed ledger verify" for all of it; --unverified grades it all the same.',
  });
}

/** Cleaning and release came after the bundle was closed: only the score made then knows how they went. */
function carryOver(before: TrialScore | undefined, graded: TrialScore): TrialScore {
  if (before === undefined) return graded;
  const outcome = before.outcome === 'infra_error' ? before.outcome : graded.outcome;
  return { ...graded, outcome, timings: before.timings };
}

/** The store shows what the bundle says. */
async function remember(score: TrialScore): Promise<void> {
  if (!existsSync(join(stateDir(), 'store.sqlite'))) return;
  const store = await openStore(stateDir());
  try {
    await store.db
      .updateTable('trials')
      .set({ outcome: score.outcome, reward: score.reward })
      .where('id', '=', score.trial)
      .execute();
  } finally {
    await store.close();
  }
}

function comparison(before: TrialScore, after: TrialScore): string {
  const verdicts = (score: TrialScore): string =>
    JSON.stringify([
      score.outcome,
      score.reward,
      score.checks.map(({ id, gate, verdict }) => [id, gate, verdict]),
    ]);
  if (verdicts(before) === verdicts(after)) return 'The same as graded before.';
  return `Graded before: ${before.outcome}, reward ${String(before.reward)}.`;
}

export const trialNoun: CliNoun = {
  noun: 'trial',
  describe: 'trials that were run, their scores and reports',
  verbs: (face) => [toYargs(list, face), toYargs(show, face), toYargs(report, face), toYargs(regrade, face)],
};
