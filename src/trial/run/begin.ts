/** The beginning of a trial: its row in the store, its bundle and its ledger. */
import { randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { newId } from '../../core/ids.js';
import { SwitchedJournal } from '../../core/journal.js';
import { redactor } from '../../core/log.js';
import { runtimeDir } from '../../core/paths.js';
import { BundleWriter } from '../../record/bundle/writer.js';
import { LedgerWriter } from '../../record/ledger/writer.js';
import { PhaseRunner } from './phase-runner.js';
import { progressText, requestText, type Progress } from './progress.js';
import { describe } from './seal.js';
import { labelOf, type Trial, type TrialEnvironment, type TrialRequest } from './trial.js';

/** @throws InfrabedError when not even a bundle could be begun (state folder, store, disk). */
export async function begin(environment: TrialEnvironment, asked: TrialRequest): Promise<Trial> {
  const { stateDir, store, clock, controller, actor } = environment;
  const startedAt = clock.now();
  const id = newId('t', startedAt);
  const nonce = randomBytes(8).toString('hex');
  await mkdir(join(stateDir, 'trials'), { recursive: true, mode: 0o700 });
  const bundle = await BundleWriter.create(join(stateDir, 'trials', id));
  const task = asked.task.definition.task.name;
  const agent = labelOf(asked);
  const { attempt } = asked;
  await store.db
    .insertInto('trials')
    .values({
      id,
      task,
      agent,
      attempt,
      lease: null,
      controller,
      bundle: bundle.dir,
      state: 'running',
      outcome: null,
      reward: null,
      started_at: startedAt,
      ended_at: null,
      owner: actor.name,
      request: requestText(asked, nonce, environment.backend.name),
      progress: null,
    })
    .execute();
  const trial = await trialOf(environment, asked, {
    id,
    nonce,
    backendName: environment.backend.name,
    startedAt,
    bundle,
  });
  trial.ledger.record({
    kind: 'trial.begin',
    actor: 'controller',
    node: null,
    payload: {
      task,
      taskHash: asked.task.hash,
      agent,
      attempt,
      network: asked.network,
      control: asked.control,
    },
  });
  await bundle.task(asked.task.dir);
  return trial;
}

/** The trial in the hands of this process: a new one, or one that another controller left with this progress. */
export async function trialOf(
  environment: TrialEnvironment,
  asked: TrialRequest,
  identity: Pick<Trial, 'id' | 'nonce' | 'backendName' | 'startedAt' | 'bundle'>,
  progress?: Progress,
): Promise<Trial> {
  const { store, clock, io, controller, stateDir } = environment;
  const { id, bundle } = identity;
  const ledger = await LedgerWriter.open(bundle.ledgerFile, { trial: id, clock, redactor });
  const journal = new SwitchedJournal();
  journal.switchTo(ledger);
  const leaseOver = new AbortController();
  const phases: PhaseRunner = new PhaseRunner(
    {
      trial: id,
      controller,
      store,
      io,
      clock,
      journal,
      snapshot: () => ({ lease: trial.lease?.id ?? null, progress: progressText(trial, describe) }),
    },
    { ...progress?.timings },
  );
  const trial: Trial = {
    ...identity,
    environment,
    request: { ...asked, signal: AbortSignal.any([asked.signal, leaseOver.signal]) },
    leaseOver,
    phases,
    ledger,
    journal,
    agentNodes: asked.task.definition.environment.nodes.filter((node) => node.agent).map((node) => node.name),
    nodes: progress?.nodes ?? [],
    baseline: new Map(),
    units: new Map(Object.entries(progress?.units ?? {})),
    drift: progress?.drift ?? { gates: {}, control: [], controlRecorded: false },
    gateSeconds: { ...progress?.gateSeconds },
    timedOut: progress?.timedOut ?? false,
    agentExit: progress?.agentExit ?? null,
    coverage: [...(progress?.coverage ?? [])],
    cleanups: [],
  };
  for (const [what, folder] of [
    ['work folder', join(stateDir, 'work', id)],
    ['sockets', join(runtimeDir, id)],
  ] as const) {
    trial.cleanups.push({ what, end: () => rm(folder, { recursive: true, force: true }) });
  }
  return trial;
}
