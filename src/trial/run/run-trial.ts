/** One trial from lease to release: the phases in their order, and an orderly end whatever happens in them. */
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isInfrabedError, messageOf } from '../../core/errors.js';
import { newId } from '../../core/ids.js';
import { SwitchedJournal } from '../../core/journal.js';
import { redactor } from '../../core/log.js';
import { BundleWriter } from '../../record/bundle/writer.js';
import { LedgerWriter } from '../../record/ledger/writer.js';
import { clearAway } from '../../testbed/lease/kept-cluster.js';
import { releaseLease } from '../../testbed/lease/lease.js';
import { decommissionGate, immediateGate, rebootGate, runningGate } from './gates.js';
import { PhaseRunner } from './phase-runner.js';
import { seal, type Ending } from './seal.js';
import {
  beforeAgent,
  bootstrap,
  clusterIdOf,
  heldCluster,
  provisionCluster,
  recordBaseline,
  takeLease,
} from './set-up.js';
import { labelOf, type Trial, type TrialEnvironment, type TrialRequest, type TrialResult } from './trial.js';
import { agentWindow, closeWindow } from './window.js';

/**
 * Runs a trial. Whatever happens in it is in the result; nothing is left running unless `keep` asks for it.
 * @throws InfrabedError only when not even a bundle could be begun (state folder, store, disk).
 */
export async function runTrial(environment: TrialEnvironment, request: TrialRequest): Promise<TrialResult> {
  const trial = await begin(environment, request);
  const outcome: Ending = { ending: 'completed', error: undefined };
  try {
    await gather(trial);
  } catch (error) {
    outcome.error = error;
    outcome.ending = endingOf(error, request.signal);
  }
  await stopEverything(trial, outcome);
  const manifest = await attempt(trial, outcome, () => trial.phases.run('seal', () => seal(trial, outcome)));
  if (manifest === undefined) trial.bundle.close();
  const cleaned = await attempt(trial, outcome, () => trial.phases.run('clean', () => clean(trial)));
  // A lease whose nodes could not be cleaned is not given back as if they were: recovery quarantines them.
  if (cleaned !== undefined)
    await attempt(trial, outcome, () => trial.phases.run('release', () => release(trial)));
  return {
    trial: trial.id,
    bundle: trial.bundle.dir,
    manifest,
    ending: outcome.ending,
    error: outcome.error,
    timings: trial.phases.timings,
    changes: Object.values(trial.drift.gates).flat(),
  };
}

function endingOf(error: unknown, signal: AbortSignal): Ending['ending'] {
  return signal.aborted || isInfrabedError(error, 'IB_CANCELLED') ? 'cancelled' : 'infra_error';
}

async function begin(environment: TrialEnvironment, request: TrialRequest): Promise<Trial> {
  const { stateDir, store, clock, io } = environment;
  const startedAt = clock.now();
  const id = newId('t', startedAt);
  await mkdir(join(stateDir, 'trials'), { recursive: true, mode: 0o700 });
  const bundle = await BundleWriter.create(join(stateDir, 'trials', id));
  await store.db
    .insertInto('trials')
    .values({
      id,
      task: request.task.definition.task.name,
      agent: labelOf(request),
      attempt: request.attempt,
      lease: null,
      controller: environment.controller,
      bundle: bundle.dir,
      state: 'running',
      outcome: null,
      reward: null,
      started_at: startedAt,
      ended_at: null,
    })
    .execute();
  const ledger = await LedgerWriter.open(bundle.ledgerFile, { trial: id, clock, redactor });
  const journal = new SwitchedJournal();
  journal.switchTo(ledger);
  const phases = new PhaseRunner(id, store, io, clock, journal);
  ledger.record({
    kind: 'trial.begin',
    actor: 'controller',
    node: null,
    payload: {
      task: request.task.definition.task.name,
      taskHash: request.task.hash,
      agent: labelOf(request),
      attempt: request.attempt,
      network: request.network,
      control: request.control,
    },
  });
  await bundle.task(request.task.dir);
  return {
    id,
    nonce: randomBytes(8).toString('hex'),
    startedAt,
    environment,
    request,
    phases,
    bundle,
    ledger,
    journal,
    agentNodes: request.task.definition.environment.nodes
      .filter((node) => node.agent)
      .map((node) => node.name),
    baseline: new Map(),
    units: new Map(),
    drift: { gates: {}, control: [], controlRecorded: false },
    gateSeconds: {},
    timedOut: false,
    agentExit: null,
    coverage: [],
    cleanups: [
      { what: 'work folder', end: () => rm(join(stateDir, 'work', id), { recursive: true, force: true }) },
    ],
  };
}

/** Everything up to the last gate. Gates are made whatever the ones before found. */
async function gather(trial: Trial): Promise<void> {
  const { phases } = trial;
  await phases.run('lease', () => takeLease(trial));
  await trial.environment.store.db
    .updateTable('trials')
    .set({ lease: trial.lease?.id ?? null })
    .where('id', '=', trial.id)
    .execute();
  await phases.run('provision', () => provisionCluster(trial));
  await phases.run('baseline', () => recordBaseline(trial));
  const background = await phases.run('bootstrap', () => bootstrap(trial));
  await beforeAgent(trial);
  await phases.run('agent', () => agentWindow(trial));
  await phases.run('close', () => closeWindow(trial));
  await phases.run('immediate', () => immediateGate(trial));
  await phases.run('running', () => runningGate(trial));
  await phases.run('reboot', () => rebootGate(trial, background));
  await phases.run('decommission', () => decommissionGate(trial));
}

/** Ends watches, workloads, gateway and folders, the youngest first; one that fails does not keep the others. */
async function stopEverything(trial: Trial, outcome: Ending): Promise<void> {
  for (const { what, end } of trial.cleanups.reverse()) {
    try {
      await end();
    } catch (error) {
      note(trial, outcome, error, `Stopping the ${what} failed: ${messageOf(error)}`);
    }
  }
}

/** Runs a step of the end; its failure becomes the trial's, unless there is one already. */
async function attempt<T>(trial: Trial, outcome: Ending, step: () => Promise<T>): Promise<T | undefined> {
  try {
    return await step();
  } catch (error) {
    note(trial, outcome, error, messageOf(error));
    return undefined;
  }
}

function note(trial: Trial, outcome: Ending, error: unknown, message: string): void {
  if (outcome.error === undefined) {
    outcome.error = error;
    outcome.ending = 'infra_error';
  } else {
    trial.environment.io.notify({ type: 'warning', message });
  }
}

async function clean(trial: Trial): Promise<true> {
  const { owned, request, environment } = trial;
  if (request.keep && owned !== undefined) {
    await environment.store.db
      .updateTable('clusters')
      .set({ kept: 1 })
      .where('id', '=', owned.cluster.id)
      .execute();
    await owned.cluster.close();
    environment.held.delete(heldCluster(trial));
    environment.io.notify({
      type: 'info',
      message: `The cluster ${owned.cluster.id} is kept: "infrabed cluster ssh NODE", then "infrabed cluster down".`,
    });
    return true;
  }
  // One that could not be made may have left something: the lease is given back on proof that it has not.
  if (owned !== undefined) await owned.destroy();
  else if (trial.lease !== undefined) await clearAway(environment, clusterIdOf(trial));
  environment.held.delete(heldCluster(trial));
  await environment.store.db
    .deleteFrom('clusters')
    .where('lease', '=', trial.lease?.id ?? '')
    .execute();
  return true;
}

async function release(trial: Trial): Promise<true> {
  const kept = trial.request.keep && trial.owned !== undefined;
  if (trial.lease !== undefined && !kept) {
    await releaseLease(trial.environment.store, trial.lease, { clock: trial.environment.clock });
  }
  return true;
}
