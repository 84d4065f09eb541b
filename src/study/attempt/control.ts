/** The fault-free control trial, run once a task and image: what changes on the nodes by itself. */
import { InfrabedError, messageOf } from '../../core/errors.js';
import { readControl, writeControl } from '../../trial/drift/control.js';
import { endTrial } from '../../trial/run/end-trial.js';
import { runTrial } from '../../trial/run/run-trial.js';
import { imageLayers } from '../../trial/run/set-up.js';
import type { TrialEnvironment, TrialRequest } from '../../trial/run/trial.js';

/**
 * Sees to it that the control of this task and image is recorded, where one of its checks subtracts it.
 * @throws InfrabedError when the control trial did not complete.
 */
export async function ensureControl(
  environment: TrialEnvironment,
  request: Pick<TrialRequest, 'task' | 'signal' | 'admitted'>,
): Promise<void> {
  const { task, signal, admitted } = request;
  if (!task.definition.checks.some((check) => check.uses === 'no-drift')) return;
  const { backend, io, stateDir, clock } = environment;
  const imageHash = await backend.prepareImage(imageLayers(task), io, signal);
  const key = { taskHash: task.hash, imageHash };
  if ((await readControl(stateDir, key)) !== undefined) return;
  io.notify({
    type: 'info',
    message: `First trial of ${task.definition.task.name} on this image: a fault-free control trial records what changes by itself.`,
  });
  const result = await runTrial(environment, {
    task,
    admitted,
    agent: 'noop',
    attempt: 1,
    network: 'none',
    keep: false,
    control: true,
    agentPaths: [],
    signal,
  });
  const outcome = result.ending === 'completed' ? 'control' : result.ending;
  await endTrial(
    environment,
    result.trial,
    { outcome, reward: null },
    { controller: environment.controller },
  );
  if (result.ending !== 'completed') {
    throw result.error instanceof InfrabedError
      ? result.error
      : new InfrabedError('IB_NODE_FAILED', `The control trial failed: ${messageOf(result.error)}`, {
          cause: result.error,
        });
  }
  await writeControl(stateDir, key, result.changes, clock.now());
}
