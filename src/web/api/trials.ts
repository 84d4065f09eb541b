/** Operations on trials: run one, see what was run, read a score and a report. */
import { realpathSync } from 'node:fs';
import { sep } from 'node:path';
import { z } from 'zod';
import type { Actor } from '../../core/actor.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { reporters } from '../../review/report/index.js';
import { gradeBundle, loadScore } from '../../review/score/grade.js';
import { trialScoreSchema, type TrialScore } from '../../review/score/score.js';
import { loadAdmission } from '../../study/admission/admission-file.js';
import { runAttempt } from '../../study/attempt/attempt.js';
import { parseAgent } from '../../trial/agent/agent.js';
import { hostBackendNames } from '../../testbed/driver/index.js';
import { backendFor } from '../../trial/run/backend-choice.js';
import { imageLayers } from '../../trial/run/set-up.js';
import { findTask, taskFolders } from '../../trial/task/find.js';
import { operation, type AnyOperation, type Desk } from './operation.js';

const errorShape = z.object({ code: z.string(), message: z.string(), hint: z.string().optional() });

export const trialRun = operation({
  name: 'trial.run',
  method: 'POST',
  path: '/v1/trials',
  summary: 'Run an agent at a task once, and judge what it left behind',
  role: 'user',
  slow: true,
  input: z.strictObject({
    task: z.string().min(1).describe('name of a task of the server'),
    agent: z.string().min(1).describe('as --agent of "infrabed run" takes it'),
    attempt: z.number().int().min(1).default(1),
    network: z.enum(['none', 'host']).default('none'),
    keep: z.boolean().default(false).describe('leave the cluster running afterwards'),
    lease: z.string().min(1).optional().describe('whose nodes to use; left out: a short one is taken'),
    agentPaths: z.array(z.string().min(1)).default([]).describe('shown to the agent, read-only'),
    backend: z
      .enum(hostBackendNames)
      .optional()
      .describe('what its nodes are made by; left out: the cheapest that has what the task needs'),
  }),
  output: z.object({
    score: trialScoreSchema,
    error: errorShape.nullable().describe('why it did not complete, or could not be graded'),
  }),
  async handle(desk, input, actor) {
    const { task: name, agent, attempt, network, keep, lease, agentPaths, backend } = input;
    assertMayRun(desk, input, actor);
    const { checkers } = desk;
    const task = await findTask(name, taskFolders(), { checkers });
    const environment = await desk.trials(actor, desk.io, backend ?? backendFor(task));
    parseAgent(agent, task);
    const imageHash = await environment.backend.prepareImage(imageLayers(task), desk.io, desk.signal);
    const { admitted } = await loadAdmission(task, imageHash);
    const { score, error } = await runAttempt(environment, {
      task,
      admitted,
      agent,
      attempt,
      network,
      keep,
      agentPaths,
      signal: desk.signal,
      ...(lease === undefined ? {} : { lease }),
    });
    return { score, error: error === undefined ? null : asShape(error) };
  },
});

function asShape(error: unknown): z.output<typeof errorShape> {
  if (!isInfrabedError(error)) return { code: 'IB_INTERNAL', message: messageOf(error) };
  const { code, message, hint } = error;
  return hint === undefined ? { code, message } : { code, message, hint };
}

/**
 * An agent's program and folders are shown to it by root. What a user names must therefore lie where the operator has
 * put programs for users, or it would be a way to read any file of the machine.
 * @throws InfrabedError IB_NOT_ALLOWED.
 */
export function assertMayRun(
  { settings }: Pick<Desk, 'settings'>,
  asked: { task: string; agent: string; network: 'none' | 'host'; agentPaths: readonly string[] },
  actor: Actor,
): void {
  if (actor.role === 'operator') return;
  const refuse = (what: string, hint: string): InfrabedError =>
    new InfrabedError('IB_NOT_ALLOWED', `${what} is the operator's to allow.`, { hint });
  if (asked.network === 'host') throw refuse("The host's network for an agent", 'Leave out --network host.');
  if (asked.task.includes('/'))
    throw refuse(`A task from the folder ${asked.task}`, 'Name a task that the server has.');
  const [kind = '', ...rest] = asked.agent.split(':');
  const program = rest.join(':').trim().split(/\s+/)[0] ?? '';
  const named = ['command', 'script'].includes(kind) ? [program, ...asked.agentPaths] : asked.agentPaths;
  const outside = named.find((path) => !liesIn(path, settings.agents.folders));
  if (outside === undefined) return;
  throw refuse(
    `An agent from ${outside}`,
    `Programs of users lie in ${settings.agents.folders.join(', ')} (agents.folders of settings.yaml).`,
  );
}

function liesIn(path: string, folders: readonly string[]): boolean {
  try {
    const real = realpathSync(path);
    return folders.some((folder) => real === folder || real.startsWith(folder + sep));
  } catch {
    // What is not there lies nowhere.
    return false;
  }
}

const listedShape = z.object({
  trial: z.string(),
  task: z.string(),
  agent: z.string(),
  owner: z.string(),
  outcome: z.string().nullable().describe('null while it runs'),
  reward: z.number().nullable(),
  bundle: z.string().describe("folder on the server's machine"),
});
export type ListedTrial = z.output<typeof listedShape>;

export const trialList = operation({
  name: 'trial.list',
  method: 'GET',
  path: '/v1/trials',
  summary: 'The trials of this site, oldest first',
  role: 'user',
  input: z.strictObject({}),
  output: z.object({ trials: z.array(listedShape) }),
  async handle({ store }) {
    const trials = await store.db
      .selectFrom('trials')
      .select(['id as trial', 'task', 'agent', 'owner', 'outcome', 'reward', 'bundle'])
      .orderBy('started_at')
      .orderBy('id')
      .execute();
    return { trials };
  },
});

export const trialReport = operation({
  name: 'trial.report',
  method: 'GET',
  path: '/v1/trials/:trial/report',
  summary: 'The report of a trial',
  role: 'user',
  input: z.strictObject({
    trial: z.string().min(1),
    format: z.enum(['terminal', 'json', 'html']).default('html'),
    columns: z.number().int().min(40).max(500).default(100),
    colour: z.boolean().default(false),
  }),
  output: z.object({ text: z.string() }),
  async handle(desk, { trial, format, columns, colour }) {
    const row = await desk.store.db
      .selectFrom('trials')
      .select('bundle')
      .where('id', '=', trial)
      .executeTakeFirst();
    if (row === undefined) {
      throw new InfrabedError('IB_TRIAL_UNKNOWN', `There is no trial "${trial}".`, {
        hint: 'Run "infrabed trial list" to see the trials there are.',
      });
    }
    const score = await scoreOf(desk, row.bundle);
    return { text: await reporters[format].render(score, { colour, columns }) };
  },
});

/** The score that was kept; a bundle that was never graded is graded now, without writing into it. */
async function scoreOf(desk: Desk, bundle: string): Promise<TrialScore> {
  return (await loadScore(bundle)) ?? (await gradeBundle(bundle, desk.checkers));
}

export const trialOperations: readonly AnyOperation[] = [trialList, trialReport, trialRun];
