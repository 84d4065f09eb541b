/** Grades a bundle from its own files alone: its copy of the task, its evidence, and the checkers handed down. */
import { join } from 'node:path';
import { InfrabedError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/disk.js';
import { readBundle, readJson } from '../../record/bundle/reader.js';
import { bundleFiles } from '../../record/bundle/schema.js';
import { loadLocalChecker } from '../../trial/gate/local-checker.js';
import type { Checker, CheckerMap } from '../../trial/gate/checker.js';
import { effectiveChecks } from '../../trial/task/effective-checks.js';
import { loadTask } from '../../trial/task/load.js';
import { scoreTrial } from './aggregate.js';
import { judgeRecord, type Probe } from './probes.js';
import { trialScoreSchema, type TrialScore } from './score.js';

/**
 * The score of the trial that left this bundle; the same however often and wherever it is made.
 * @throws InfrabedError IB_BUNDLE_INVALID, or IB_TASK_INVALID for the bundle's copy of the task.
 */
export async function gradeBundle(dir: string, checkers: CheckerMap): Promise<TrialScore> {
  const bundle = await readBundle(dir);
  const taskDir = join(bundle.dir, bundleFiles.task);
  const { definition } = await loadTask(taskDir);
  const checks = effectiveChecks(definition);
  const byId = new Map(checks.map((check) => [check.id, check]));
  const checkerOf = checkerSource(taskDir, checkers);
  const probes: Probe[] = [];
  for (const record of bundle.evidence) {
    const check = byId.get(record.check);
    if (check === undefined) {
      throw new InfrabedError(
        'IB_BUNDLE_INVALID',
        `The evidence names the check "${record.check}", which the bundle's task does not have.`,
        {
          hint: `Its checks are: ${[...byId.keys()].join(', ')}.`,
        },
      );
    }
    probes.push(await judgeRecord(record, check, checkerOf));
  }
  return scoreTrial(bundle.manifest, checks, probes, bundle.dir);
}

/** Checkers by `uses`: from the map, or the task's own, each loaded once. */
function checkerSource(taskDir: string, checkers: CheckerMap): (uses: string) => Promise<Checker> {
  const local = new Map<string, Promise<Checker>>();
  return async (uses) => {
    const known = checkers.get(uses);
    if (known !== undefined) return known;
    if (!uses.startsWith('./')) {
      throw new InfrabedError('IB_CHECKER_UNKNOWN', `There is no checker "${uses}".`, {
        hint: `There are: ${[...checkers.keys()].join(', ')}.`,
      });
    }
    const loading = local.get(uses) ?? Promise.resolve(loadLocalChecker(join(taskDir, uses)));
    local.set(uses, loading);
    return loading;
  };
}

/** Keeps a score beside the evidence that it was made from. */
export async function saveScore(dir: string, score: TrialScore): Promise<void> {
  await writeFileAtomic(join(dir, bundleFiles.score), `${JSON.stringify(score, null, 2)}\n`);
}

/** The score that was kept, with the bundle where it lies now; undefined where none was. @throws IB_BUNDLE_INVALID. */
export async function loadScore(dir: string): Promise<TrialScore | undefined> {
  const score = await readJson(join(dir, bundleFiles.score), trialScoreSchema, 'optional');
  return score === undefined ? undefined : { ...score, bundle: dir };
}
