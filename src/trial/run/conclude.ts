/** The end of every trial, whatever happened in it: everything stopped, the record sealed, nodes cleaned and given back. */
import { isInfrabedError, messageOf } from '../../core/errors.js';
import type { Manifest } from '../../record/bundle/schema.js';
import { clearAway, removalProofs } from '../../testbed/lease/kept-cluster.js';
import { giveBack } from './lease.js';
import { seal, type Ending } from './seal.js';
import { takenOver } from './phase-runner.js';
import { clusterIdOf, heldCluster, membersOf } from './set-up.js';
import type { Trial, TrialResult } from './trial.js';

/** How gathering ended. */
export async function outcomeOf(trial: Trial, gather: () => Promise<void>): Promise<Ending> {
  try {
    await gather();
    return { ending: 'completed', error: undefined };
  } catch (error) {
    return { ending: endingOf(error, trial.request.signal), error };
  }
}

/** Ends the trial in order; what goes wrong with that is in the result too. */
export async function conclude(trial: Trial, outcome: Ending): Promise<TrialResult> {
  trial.outcome = outcome;
  await stopEverything(trial, outcome);
  if (!(await trial.phases.isOurs())) return abandon(trial, outcome);
  const manifest = await attempt(trial, outcome, () => trial.phases.run('seal', () => seal(trial, outcome)));
  if (manifest === undefined) trial.bundle.close();
  const cleaned = await attempt(trial, outcome, () => trial.phases.run('clean', () => clean(trial)));
  // A lease whose nodes could not be cleaned is not given back as if they were: recovery quarantines them.
  if (cleaned !== undefined)
    await attempt(trial, outcome, () => trial.phases.run('release', () => giveBack(trial)));
  return resultOf(trial, outcome, manifest);
}

function resultOf(trial: Trial, outcome: Ending, manifest: Manifest | undefined): TrialResult {
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

/** Another controller has the trial: neither its nodes nor its record are ours to touch any more. */
async function abandon(trial: Trial, outcome: Ending): Promise<TrialResult> {
  outcome.error = takenOver(trial.id);
  outcome.ending = 'infra_error';
  trial.bundle.close();
  // What was not synced yet is of a file that counts no more.
  await trial.ledger.close().catch((error: unknown) => warn(trial, messageOf(error)));
  await trial.owned?.cluster.close();
  trial.environment.held.delete(heldCluster(trial));
  return resultOf(trial, outcome, undefined);
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
  } else warn(trial, message);
}

function warn(trial: Trial, message: string): void {
  trial.environment.io.notify({ type: 'warning', message });
}

/** What the trial stood on is removed, and read back that it is: only then is it proven that its nodes are clean. */
async function clean(trial: Trial): Promise<true> {
  const { owned, request, environment, lease } = trial;
  const { store, backend, held } = environment;
  if (request.keep && owned !== undefined) {
    await store.db.updateTable('clusters').set({ kept: 1 }).where('id', '=', owned.cluster.id).execute();
    await owned.cluster.close();
    held.delete(heldCluster(trial));
    environment.io.notify({
      type: 'info',
      message: `The cluster ${owned.cluster.id} is kept: "infrabed cluster ssh NODE", then "infrabed cluster down".`,
    });
    return true;
  }
  const id = clusterIdOf(trial);
  // One that could not be made may have left something: the lease is given back on proof that it has not.
  if (owned !== undefined) await owned.destroy();
  else if (lease !== undefined) await clearAway(environment, id);
  held.delete(heldCluster(trial));
  if (lease === undefined) return true;
  if (trial.clusterBegun) {
    const { generation } = lease;
    trial.proofs = await removalProofs(backend, { id, nodes: membersOf(trial), generation });
  }
  return true;
}
