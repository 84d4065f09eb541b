/** Everything a page shows of one trial, read from its bundle and capped, before any of it becomes HTML. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, isInfrabedError } from '../../core/errors.js';
import { verifyBundleFiles, type FileCheck } from '../../record/bundle/files.js';
import { readBundle } from '../../record/bundle/reader.js';
import {
  bundleFiles,
  type DriftFile,
  type EvidenceRecord,
  type Manifest,
} from '../../record/bundle/schema.js';
import { verifyLedger, type Verification } from '../../record/ledger/verify.js';
import { effectiveChecks } from '../../trial/task/effective-checks.js';
import { loadTask } from '../../trial/task/load.js';
import type { CheckDefinition, TaskDefinition } from '../../trial/task/schema.js';
import type { TrialScore } from '../score/score.js';
import { readActivity, type Activity } from './activity.js';
import { Budget, readPart } from './excerpt.js';

export interface Recording {
  name: string;
  /** asciicast v2 */
  cast: string;
  cut: boolean;
}

export interface Log {
  name: string;
  tail: string;
}

export interface ReportContent {
  score: TrialScore;
  manifest: Manifest;
  task: TaskDefinition;
  instruction: string;
  checks: ReadonlyMap<string, CheckDefinition>;
  evidence: readonly EvidenceRecord[];
  drift: DriftFile | null;
  activity: Activity;
  recordings: Recording[];
  /** Recordings that are in the bundle but not on the page. */
  recordingsLeftOut: number;
  consoles: Log[];
  agentLogs: Log[];
  /** null when there is no ledger that can be read. */
  ledger: Verification | null;
  files: FileCheck | null;
}

const castBytes = 1024 * 1024;
const allCastBytes = 6 * 1024 * 1024;
const logBytes = 16 * 1024;

/** @throws InfrabedError IB_BUNDLE_INVALID or IB_TASK_INVALID. */
export async function readContent(bundleDir: string, score: TrialScore): Promise<ReportContent> {
  const bundle = await readBundle(bundleDir);
  const task = await loadTask(join(bundle.dir, bundleFiles.task));
  const path = (...parts: string[]): string => join(bundle.dir, ...parts);
  const recordings = await readRecordings(path(bundleFiles.sessions));
  const ledger = await ledgerState(bundle.dir);
  return {
    score,
    manifest: bundle.manifest,
    task: task.definition,
    instruction: task.instruction,
    checks: new Map(effectiveChecks(task.definition).map((check) => [check.id, check])),
    evidence: bundle.evidence,
    drift: bundle.drift,
    activity: await readActivity(bundle.dir),
    ...recordings,
    consoles: await readLogs(path(bundleFiles.console), /\.log$/),
    agentLogs: await readLogs(path(bundleFiles.agent), /\.log$/),
    ledger,
    files: ledger?.ok === true ? await verifyBundleFiles(bundle.dir) : null,
  };
}

/** A report is made of a damaged record too: its state is among what it shows. */
async function ledgerState(dir: string): Promise<Verification | null> {
  try {
    return await verifyLedger(dir);
  } catch (error) {
    if (isInfrabedError(error, 'IB_BUNDLE_INVALID')) return null;
    throw error;
  }
}

async function readRecordings(
  folder: string,
): Promise<Pick<ReportContent, 'recordings' | 'recordingsLeftOut'>> {
  const budget = new Budget(allCastBytes);
  const recordings: Recording[] = [];
  let recordingsLeftOut = 0;
  for (const name of await namesIn(folder, /\.cast$/)) {
    const content = await readPart(join(folder, name), 'start', castBytes);
    if (content === undefined || !budget.take(content.length)) {
      recordingsLeftOut += 1;
      continue;
    }
    const cut = content.length === castBytes;
    // The player takes whole lines only.
    const cast = cut ? content.subarray(0, content.lastIndexOf(0x0a) + 1) : content;
    recordings.push({ name, cast: cast.toString('utf8'), cut });
  }
  return { recordings, recordingsLeftOut };
}

async function readLogs(folder: string, wanted: RegExp): Promise<Log[]> {
  const logs: Log[] = [];
  for (const name of await namesIn(folder, wanted)) {
    const tail = await readPart(join(folder, name), 'end', logBytes);
    if (tail !== undefined && tail.length > 0) logs.push({ name, tail: tail.toString('utf8') });
  }
  return logs;
}

async function namesIn(folder: string, wanted: RegExp): Promise<string[]> {
  try {
    return (await readdir(folder)).filter((name) => wanted.test(name)).sort();
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}
