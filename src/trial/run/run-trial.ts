/** One trial from lease to release: the phases in their order, and an orderly end whatever happens in them. */
import { phaseNames, type PhaseName } from '../../record/bundle/schema.js';
import { begin } from './begin.js';
import { conclude, outcomeOf } from './conclude.js';
import { decommissionGate, immediateGate, rebootGate, runningGate } from './gates.js';
import { takeLease } from './lease.js';
import { beforeAgent, bootstrap, provisionCluster, recordBaseline } from './set-up.js';
import type { Trial, TrialEnvironment, TrialRequest, TrialResult } from './trial.js';
import { agentWindow, closeWindow } from './window.js';

/**
 * Runs a trial. Whatever happens in it is in the result; nothing is left running unless `keep` asks for it.
 * @throws InfrabedError only when not even a bundle could be begun (state folder, store, disk).
 */
export async function runTrial(environment: TrialEnvironment, request: TrialRequest): Promise<TrialResult> {
  const trial = await begin(environment, request);
  return conclude(trial, await outcomeOf(trial, () => gather(trial, 'lease')));
}

type Gathering = Exclude<PhaseName, 'seal' | 'clean' | 'release'>;

const steps: Readonly<Record<Gathering, (trial: Trial) => Promise<void>>> = {
  lease: takeLease,
  provision: provisionCluster,
  baseline: recordBaseline,
  async bootstrap(trial) {
    await bootstrap(trial);
    await beforeAgent(trial);
  },
  agent: agentWindow,
  close: closeWindow,
  immediate: immediateGate,
  running: runningGate,
  reboot: rebootGate,
  decommission: decommissionGate,
};

/** Everything from a phase up to the last gate. Gates are made whatever the ones before found. */
export async function gather(trial: Trial, from: PhaseName): Promise<void> {
  for (const phase of phaseNames.slice(phaseNames.indexOf(from))) {
    if (isGathering(phase)) await trial.phases.run(phase, () => steps[phase](trial));
  }
}

function isGathering(phase: PhaseName): phase is Gathering {
  return phase in steps;
}
