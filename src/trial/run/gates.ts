/** The four gates of a trial: each gathers its evidence, then the drift of the nodes at that moment. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { throwIfAborted } from '../../core/clock.js';
import { messageOf } from '../../core/errors.js';
import type { EvidenceRecord } from '../../record/bundle/schema.js';
import { gatherFacts } from '../../testbed/facts/facts.js';
import { diffFacts } from '../drift/diff.js';
import type { DriftChange } from '../drift/drift.js';
import type { Moment } from '../gate/checker.js';
import { runGate } from '../gate/gate.js';
import type { GateOptions } from '../gate/look.js';
import { rebootNodes, type RebootResult } from '../gate/reboot.js';
import { runRunningGate } from '../gate/running.js';
import { effectiveChecks, rebootNodeNames } from '../task/effective-checks.js';
import type { CheckDefinition } from '../task/schema.js';
import { clusterOf, type Trial } from './trial.js';

/** What a gate or the window is given. Facts for drift are gathered at most once a gate. */
export function gateOptions(trial: Trial, moment: Moment): GateOptions {
  const { environment, request } = trial;
  let changes: Promise<DriftChange[]> | undefined;
  return {
    checks: effectiveChecks(request.task.definition),
    cluster: clusterOf(trial),
    checkers: environment.checkers,
    taskDir: request.task.dir,
    clock: environment.clock,
    signal: request.signal,
    onEvidence: (record: EvidenceRecord) => trial.bundle.evidence(record),
    ...(trial.guard === undefined ? {} : { guard: trial.guard }),
    drift: async () => ({
      changes: await (changes ??= gatherDrift(trial, moment)),
      control: trial.drift.control,
      controlRecorded: trial.drift.controlRecorded,
    }),
  };
}

/**
 * Facts of every node now against the baseline, kept in the bundle.
 * @throws what gatherFacts throws for the first node that could not be asked; the others' facts are kept all the same.
 */
async function gatherDrift(trial: Trial, moment: Moment): Promise<DriftChange[]> {
  const cluster = clusterOf(trial);
  const found = await Promise.allSettled(
    [...trial.baseline].map(async ([node, before]) => {
      const now = await gatherFacts(cluster, node, { signal: trial.request.signal });
      await trial.bundle.facts(moment, node, now);
      return diffFacts(before, now);
    }),
  );
  const changes = found.flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
  trial.drift.gates[moment] = changes;
  const failed = found.find((one) => one.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  return changes;
}

/** Runs a gate, times it, and sees to it that drift was gathered whether or not a check asked for it. */
async function gate(
  trial: Trial,
  moment: Exclude<Moment, 'window'>,
  work: (options: GateOptions) => Promise<void>,
): Promise<void> {
  const startedAt = trial.environment.clock.now();
  const options = gateOptions(trial, moment);
  await work(options);
  try {
    await options.drift();
  } catch (error) {
    throwIfAborted(trial.request.signal);
    // The drift of a node that is gone cannot be told; the checks that need it have said so themselves.
    trial.journal.record({
      kind: 'drift.incomplete',
      actor: 'controller',
      node: null,
      payload: { moment, why: messageOf(error) },
    });
  }
  trial.gateSeconds[moment] = (trial.environment.clock.now() - startedAt) / 1000;
}

export async function immediateGate(trial: Trial): Promise<void> {
  await gate(trial, 'immediate', (options) => runGate({ ...options, moment: 'immediate' }));
}

export async function runningGate(trial: Trial): Promise<void> {
  const { running } = trial.request.task.definition.lifecycle;
  await gate(trial, 'running', (options) =>
    runRunningGate({
      ...options,
      durationMs: running.duration_sec * 1000,
      intervalMs: running.interval_sec * 1000,
    }),
  );
}

export async function rebootGate(trial: Trial): Promise<void> {
  const { background } = trial;
  if (background === undefined) throw new Error('nothing watches the window');
  const nodes = rebootNodeNames(trial.request.task.definition);
  await gate(trial, 'reboot', async (options) => {
    background.window.pause(nodes, 'the controller power-cycles nodes');
    const rebooted =
      trial.rebooted === undefined ? await cycle(trial, nodes) : await settled(trial, trial.rebooted);
    for (const { node, outcome } of rebooted)
      if (outcome === 'booted') await background.workloads.restart(node);
    background.window.resume();
    await runGate({ ...options, moment: 'reboot', rebooted });
  });
}

async function cycle(trial: Trial, nodes: readonly string[]): Promise<RebootResult[]> {
  const { environment, request, journal } = trial;
  const { reboot } = request.task.definition.lifecycle;
  return rebootNodes({
    cluster: clusterOf(trial),
    nodes,
    order: reboot.order,
    times: reboot.times,
    // What a task gives its nodes is meant for those of the usual backend; a slower one is never short of its own time.
    timeoutMs: Math.max(reboot.timeout_sec * 1000, environment.backend.readyTimeoutMs ?? 0),
    settleMs: reboot.settle_sec * 1000,
    clock: environment.clock,
    signal: request.signal,
    onResult: ({ node, ...payload }) =>
      journal.record({ kind: 'node.rebooted', actor: 'controller', node, payload: { ...payload } }),
  });
}

/** A controller that died had cycled the nodes; the settling time begins anew, since nobody saw how much of it is over. */
async function settled(trial: Trial, rebooted: readonly RebootResult[]): Promise<readonly RebootResult[]> {
  const { environment, request } = trial;
  await environment.clock.sleep(request.task.definition.lifecycle.reboot.settle_sec * 1000, request.signal);
  return rebooted;
}

/** Residue first; then the task's own teardown, and what is asked after it. */
export async function decommissionGate(trial: Trial): Promise<void> {
  await gate(trial, 'decommission', async (options) => {
    const late = (check: CheckDefinition): boolean => check.after_teardown;
    await runGate({
      ...options,
      moment: 'decommission',
      checks: options.checks.filter((check) => !late(check)),
    });
    await teardown(trial);
    await runGate({ ...options, moment: 'decommission', checks: options.checks.filter(late) });
  });
}

/** Kind of the record that the task's teardown is about to run. */
export const teardownKind = 'task.teardown';

async function teardown(trial: Trial): Promise<void> {
  const path = join(trial.request.task.dir, 'environment', 'teardown.sh');
  if (!existsSync(path)) return;
  const script = await readFile(path, 'utf8');
  // On record before it acts: a controller that goes on with the trial does not run it a second time.
  trial.journal.record({ kind: teardownKind, actor: 'controller', node: null, payload: {} });
  for (const { name } of clusterOf(trial).nodes) {
    const result = await clusterOf(trial).setUp(name, {
      argv: ['/bin/bash', '-s'],
      stdin: script,
      env: { NODE: name, NONCE: trial.nonce },
      timeoutMs: 300_000,
      signal: trial.request.signal,
    });
    trial.journal.record({
      kind: 'node.teardown',
      actor: 'controller',
      node: name,
      payload: { exitCode: result.exitCode, stderr: result.stderr.slice(-2000) },
    });
  }
}
