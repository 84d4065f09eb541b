/**
 * Every failpoint of one trial: `make crashtest`. POINTS=regex chooses, EVERY=n takes each nth, FROM=n begins with the nth
 * of these (0 is the first), JOBS=n that many side by side, SECOND=n kills the controller that goes on too, at each nth of
 * its own points. Exit status 1 when anything is wrong.
 */
import pLimit from 'p-limit';
import { removeStateDir } from '../e2e/trial-harness.js';
import { killAndResume, undisturbed, type Killed } from './kill-and-resume.js';

const number = (name: string, otherwise: number): number => Number(process.env[name] ?? otherwise);
const chosen = new RegExp(process.env['POINTS'] ?? '');
const every = number('EVERY', 1);
const from = number('FROM', 0);
const jobs = number('JOBS', 3);
const second = number('SECOND', 0);

const say = (line: string): void => void process.stdout.write(`${line}\n`);

const { points, verdicts } = await undisturbed();
const wanted = points
  .filter((point) => chosen.test(point))
  .filter((_point, index) => index % every === 0)
  .slice(from);
say(`${String(points.length)} points in one trial, ${String(wanted.length)} of them now`);

const startedAt = Date.now();
const limit = pLimit(jobs);
const all: Killed[] = [];
let planned = wanted.length;

function tell(killed: Killed): void {
  all.push(killed);
  const leftMin = (((Date.now() - startedAt) / all.length) * (planned - all.length)) / 60_000;
  const how = !killed.reached
    ? 'not reached'
    : `${killed.diedIn ?? 'before the trial'} -> ${killed.outcome ?? 'no trial'}`;
  say(
    `${String(all.length)}/${String(planned)}  ${killed.problems.length === 0 ? 'ok  ' : 'FAIL'}  ${killed.point}  ${how}  (${leftMin.toFixed(0)} min left)`,
  );
  for (const problem of killed.problems) say(`      ${problem}`);
  if (killed.problems.length === 0) removeStateDir(killed.stateDir);
  else say(`      kept: ${killed.stateDir}`);
}

async function one(point: string): Promise<void> {
  const first = await killAndResume(point, verdicts);
  tell(first);
  if (second === 0 || !first.reached) return;
  const again = first.pointsAfter.filter((_point, index) => index % second === 0);
  planned += again.length;
  for (const next of again) tell(await killAndResume(point, verdicts, next));
}

await Promise.all(wanted.map((point) => limit(() => one(point))));
const failed = all.filter(({ problems }) => problems.length > 0);
const missed = all.filter(({ reached }) => !reached).length;
say(
  `${String(all.length)} kills in ${((Date.now() - startedAt) / 60_000).toFixed(1)} min: ${String(all.length - failed.length)} ok, ${String(failed.length)} wrong; ${String(missed)} points were not passed that time`,
);
for (const { point, stateDir } of failed) say(`wrong: ${point} (${stateDir})`);
process.exitCode = failed.length === 0 ? 0 : 1;
