/** Goes on with a trial whose controller died in a phase that another one can make again. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, isErrorCode } from '../../core/errors.js';
import { disown, lastLooks, setAside } from '../../record/bundle/interrupted.js';
import { bundleFiles, momentSchema } from '../../record/bundle/schema.js';
import { BundleWriter } from '../../record/bundle/writer.js';
import { openExistingCluster } from '../../testbed/cluster/create.js';
import { nodeFactsSchema, type NodeFacts } from '../../testbed/facts/facts.js';
import { adoptLease } from '../../testbed/lease/lease.js';
import { removeEmptyRooms } from '../agent/limits.js';
import type { WindowGap } from '../gate/window.js';
import { loadTask } from '../task/load.js';
import { trialOf } from './begin.js';
import { conclude, outcomeOf } from './conclude.js';
import { interruptionOf, type InterruptedTrial, type Interruption } from './interrupted.js';
import { followLease } from './lease.js';
import { takenOver } from './phase-runner.js';
import { storedProgress, storedRequest, type Progress, type StoredRequest } from './progress.js';
import { gather } from './run-trial.js';
import type { Ending } from './seal.js';
import { clusterIdOf, heldCluster, startBackground } from './set-up.js';
import type { Trial, TrialEnvironment, TrialResult } from './trial.js';

/** What the new controller knows of the old one's trial. */
interface Left {
  row: InterruptedTrial;
  interruption: Interruption;
  request: StoredRequest;
  progress: Progress;
}

/**
 * Takes the trial over and goes on with it to its end, as `runTrial`.
 * @throws InfrabedError IB_LEASE_CONFLICT when another controller was faster, IB_INTERRUPTED when it cannot be resumed.
 */
export async function resumeTrial(
  environment: TrialEnvironment,
  row: InterruptedTrial,
  signal: AbortSignal,
): Promise<TrialResult> {
  const interruption = await interruptionOf(environment.store, row);
  if (interruption.what !== 'resume') {
    throw new InfrabedError('IB_INTERRUPTED', `The trial ${row.id} cannot be gone on with.`, {
      hint: 'Run "infrabed sweep": it ends what cannot be resumed.',
    });
  }
  const left: Left = { row, interruption, request: storedRequest(row), progress: storedProgress(row) };
  await claimTrial(environment, row);
  const { trial, setAsideCount } = await reopen(environment, left, signal);
  const outcome = await outcomeOf(trial, () => goOn(trial, left, setAsideCount));
  return conclude(trial, outcome.error === undefined ? storedOutcome(left) : outcome);
}

/** Exactly one of those who saw the trial abandoned gets it. */
export async function claimTrial(
  { store, controller }: Pick<TrialEnvironment, 'store' | 'controller'>,
  row: InterruptedTrial,
): Promise<void> {
  const { numUpdatedRows } = await store.db
    .updateTable('trials')
    .set({ controller })
    .where('id', '=', row.id)
    .where('controller', '=', row.controller)
    .where('state', '=', row.state)
    .where('outcome', 'is', null)
    .executeTakeFirst();
  if (numUpdatedRows !== 1n) throw takenOver(row.id);
}

async function reopen(
  environment: TrialEnvironment,
  { row, interruption, request, progress }: Left,
  signal: AbortSignal,
): Promise<{ trial: Trial; setAsideCount: number }> {
  await disown(row.bundle);
  const moment = momentSchema.safeParse(interruption.from);
  const setAsideCount = moment.success ? await setAside(row.bundle, moment.data) : 0;
  const bundle = await BundleWriter.resume(row.bundle);
  const task = await loadTask(join(row.bundle, bundleFiles.task), { checkers: environment.checkers });
  const { lease, agentPaths, admitted, agent, attempt, network, keep, control } = request;
  const asked = { task, admitted, agent, attempt, network, keep, control, agentPaths, signal };
  const identity = {
    id: row.id,
    nonce: request.nonce,
    backendName: request.backend,
    startedAt: row.started_at,
    bundle,
  };
  const trial = await trialOf(environment, lease === null ? asked : { ...asked, lease }, identity, progress);
  trial.cleanups.push({
    what: "agent's limits",
    end: () => removeEmptyRooms((room) => room !== row.id).then(() => undefined),
  });
  return { trial, setAsideCount };
}

async function goOn(trial: Trial, left: Left, setAsideCount: number): Promise<void> {
  const { from, rebooted } = left.interruption;
  trial.journal.record({
    kind: 'trial.resumed',
    actor: 'controller',
    node: null,
    payload: { diedIn: left.interruption.phase, from, setAside: setAsideCount },
  });
  await trial.ledger.flush();
  await takeInHand(trial, left.row);
  if (from === 'seal') return;
  assertWhole(trial, left);
  await assertStanding(trial);
  for (const node of trial.agentNodes) trial.baseline.set(node, await baselineOf(trial, node));
  const last = await lastLooks(trial.bundle.dir, 'window');
  trial.coverage.push(...explain(left, setAsideCount));
  await startBackground(trial, left.progress.windowOpenedAt ?? trial.startedAt, gap(last));
  if (rebooted !== undefined) trial.rebooted = rebooted;
  await gather(trial, from);
}

/** Lease and cluster change hands before anything is done to a node: whoever had them before can do nothing any more. */
async function takeInHand(trial: Trial, row: InterruptedTrial): Promise<void> {
  const { environment, request } = trial;
  const { store, clock, controller, backend, stateDir, held } = environment;
  if (row.lease === null) throw new InfrabedError('IB_INTERRUPTED', `The trial ${row.id} has no lease.`);
  trial.lease = await adoptLease(store, row.lease, controller, { clock });
  trial.clusterBegun = true;
  followLease(trial);
  const id = clusterIdOf(trial);
  held.add(heldCluster(trial));
  await backend.fence(id, trial.lease.generation);
  trial.owned = await openExistingCluster({
    backend,
    id,
    nodes: request.task.definition.environment.nodes.map(({ name, roles }) => ({ name, roles })),
    stateDir,
    journal: trial.journal,
    clock,
  });
}

/** @throws InfrabedError IB_INTERRUPTED when the record lacks something that the gates need. */
function assertWhole({ request }: Trial, { request: asked, progress }: Left): void {
  const lack = (what: string): InfrabedError =>
    new InfrabedError('IB_INTERRUPTED', `The trial cannot be gone on with: ${what}.`);
  if (request.task.hash !== asked.taskHash)
    throw lack("the bundle's copy of the task is not the task that was begun");
  if (progress.guarded)
    throw lack('how the tools of the nodes were at the opening of the window is not known');
}

/** A node may be off by what the agent did; but what the testbed itself lost since cannot be judged any more. */
async function assertStanding(trial: Trial): Promise<void> {
  for (const { name, witness } of trial.owned?.driverCluster.nodes ?? []) {
    const fault = (await witness?.testify(trial.request.signal))?.infrastructureFault;
    if (fault === undefined || fault === null) continue;
    throw new InfrabedError('IB_INTERRUPTED', `${name} did not outlive its controller: ${fault}`);
  }
}

async function baselineOf(trial: Trial, node: string): Promise<NodeFacts> {
  const text = await readFile(trial.bundle.path(bundleFiles.facts, 'baseline', `${node}.json`), 'utf8');
  return nodeFactsSchema.parse(JSON.parse(text));
}

function gap(last: WindowGap['last']): WindowGap {
  return { why: 'the controller was restarted', last };
}

/** For readers of the report. */
function explain({ interruption }: Left, setAsideCount: number): string[] {
  const { from, phase } = interruption;
  const again =
    setAsideCount === 0
      ? ''
      : ` The ${from} gate was made again from its start; the ${String(setAsideCount)} looks of the interrupted pass lie in ${bundleFiles.interrupted} and count for nothing.`;
  return [
    `The controller died in the phase ${phase}, and another one went on: nobody watched meanwhile, which is marked in the window's evidence.${again}`,
  ];
}

/** A trial that died while it was sealed had ended before, in this way. */
function storedOutcome({ progress }: Left): Ending {
  const { outcome } = progress;
  if (outcome === null) return { ending: 'completed', error: undefined };
  const { ending, error } = outcome;
  if (error === null) return { ending, error: undefined };
  return { ending, error: restored(error) };
}

function restored({
  code,
  message,
  hint,
}: NonNullable<NonNullable<Progress['outcome']>['error']>): InfrabedError {
  const known = isErrorCode(code) ? code : 'IB_INTERNAL';
  return new InfrabedError(known, message, hint === undefined ? {} : { hint });
}
