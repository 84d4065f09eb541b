/** `infrabed run`: one task, one agent, some attempts; the scorecard of each. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { InfrabedError, isErrorCode } from '../../core/errors.js';
import { comparisonLines, writeComparison } from '../../review/report/index.js';
import type { TrialScore } from '../../review/score/score.js';
import { hostBackendNames, type HostBackend } from '../../testbed/driver/index.js';
import { runAttempt } from '../../study/attempt/attempt.js';
import { ensureControl } from '../../study/attempt/control.js';
import { loadAdmission } from '../../study/admission/admission-file.js';
import { parseAgent } from '../../trial/agent/agent.js';
import { findTask, taskFolders } from '../../trial/task/find.js';
import { checkers } from '../../../checkers/index.js';
import { backendFor } from '../../trial/run/backend-choice.js';
import { imageLayers } from '../../trial/run/set-up.js';
import type { CliCommand, Face } from '../command.js';
import { openController } from '../controller.js';
import { trialRun } from '../../web/api/trials.js';
import { asRoot } from '../as-root.js';
import { perform, serverNamed } from '../perform.js';
import { goOnWithLeft } from '../go-on.js';
import { showScore } from '../show-score.js';

interface RunArguments {
  task: string;
  agent: string[];
  attempts: number;
  keep: boolean;
  network: 'none' | 'host';
  'agent-path': string[];
  lease: string | undefined;
  backend: HostBackend | undefined;
  scorecard: string | undefined;
  json: boolean;
}

export const runCommand: CliCommand<RunArguments> = {
  command: 'run <task>',
  describe: 'run an agent at a task and judge what it left behind',
  builder: (yargs) =>
    yargs
      .positional('task', { type: 'string', demandOption: true, describe: 'name or folder of the task' })
      .option('agent', {
        type: 'string',
        array: true,
        default: ['oracle'],
        nargs: 1,
        describe:
          'oracle, oracle:alternative, noop, mutant:NAME, script:PATH or command:CMD; may be repeated',
      })
      .option('attempts', { type: 'number', default: 1, describe: 'how many trials, one after the other' })
      .option('keep', { type: 'boolean', default: false, describe: 'leave the cluster running afterwards' })
      .option('network', {
        choices: ['none', 'host'] as const,
        default: 'none' as const,
        describe: "the agent's network beside the gateway: none (closed book), or the host's",
      })
      .option('agent-path', {
        type: 'string',
        array: true,
        nargs: 1,
        default: [] as string[],
        describe: "further folders that the agent's program needs, shown to it read-only",
      })
      .option('lease', {
        type: 'string',
        describe: 'a lease of yours whose nodes to use, instead of a short one taken for each trial',
      })
      .option('backend', {
        choices: hostBackendNames,
        describe: 'what the nodes are made by; left out: the cheapest that has what the task needs',
      })
      .option('scorecard', {
        type: 'string',
        describe: 'write a page that sets the trials side by side to this file',
      })
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'one JSON object a trial on standard output',
      })
      .example('$0 run storage-mtu-drift --agent oracle', 'the reference solution')
      .example(
        '$0 run storage-mtu-drift --agent command:"my-agent --headless" --attempts 3',
        'a program of yours',
      ),
  handler: async (args, face) => {
    if (!Number.isInteger(args.attempts) || args.attempts < 1) {
      throw new InfrabedError('IB_USAGE', '--attempts takes a whole number from 1.');
    }
    if (serverNamed() !== undefined) return runOnServer(args, face);
    const task = await findTask(args.task, taskFolders(), { checkers });
    for (const agent of args.agent) parseAgent(agent, task);
    const agentPaths = args['agent-path'].map(agentPath);
    if (asRoot(face)) return;
    const controller = await openController(face, args.backend ?? backendFor(task));
    const scores: TrialScore[] = [];
    try {
      const { backend } = controller.environment;
      await goOnWithLeft(controller.environment, face);
      const imageHash = await backend.prepareImage(imageLayers(task), face.io, face.signal);
      const { admitted } = await loadAdmission(task, imageHash);
      await ensureControl(controller.environment, { task, admitted, signal: face.signal });
      for (const { agent, attempt } of plan(args)) {
        if (face.signal.aborted) break;
        face.io.notify({ type: 'info', message: `${task.definition.task.name}, agent ${agent}` });
        const { score, error } = await runAttempt(controller.environment, {
          task,
          admitted,
          agent,
          attempt,
          network: args.network,
          keep: args.keep,
          agentPaths,
          signal: face.signal,
          ...(args.lease === undefined ? {} : { lease: args.lease }),
        });
        scores.push(score);
        showScore(score, args.json, face);
        if (error !== undefined) face.explain(error);
      }
      await compare(scores, args, face);
    } finally {
      await controller.close();
    }
  },
};

/** The same trials one after the other on the server, which looks at all of it: tasks and agents are its own. */
async function runOnServer(args: RunArguments, face: Face): Promise<void> {
  const { task, network, keep, lease, backend } = args;
  const scores: TrialScore[] = [];
  for (const { agent, attempt } of plan(args)) {
    if (face.signal.aborted) break;
    face.io.notify({ type: 'info', message: `${task}, agent ${agent}` });
    const { score, error } = await perform(face, trialRun, {
      task,
      agent,
      attempt,
      network,
      keep,
      agentPaths: args['agent-path'],
      ...(lease === undefined ? {} : { lease }),
      ...(backend === undefined ? {} : { backend }),
    });
    scores.push(score);
    showScore(score, args.json, face, { onServer: true });
    if (error !== null) {
      const { code, message, hint } = error;
      const options = hint === undefined ? {} : { hint };
      face.explain(new InfrabedError(isErrorCode(code) ? code : 'IB_SERVER', message, options));
    }
  }
  await compare(scores, args, face);
}

async function compare(
  scores: readonly TrialScore[],
  { json, scorecard }: Pick<RunArguments, 'json' | 'scorecard'>,
  face: Face,
): Promise<void> {
  if (!json && scores.length > 1) for (const line of comparisonLines(scores)) face.print(line);
  if (scorecard === undefined) return;
  await writeComparison(scorecard, scores);
  face.io.notify({ type: 'info', message: `scorecard: ${resolve(scorecard)}` });
}

/** A folder to be shown to the agent. @throws InfrabedError IB_USAGE before anything is built for it in vain. */
function agentPath(path: string): string {
  const full = resolve(path);
  if (full === '/') {
    throw new InfrabedError('IB_USAGE', '--agent-path / would show the whole machine to the agent.', {
      hint: "Name the folders that the agent's program needs.",
    });
  }
  if (!existsSync(full)) throw new InfrabedError('IB_USAGE', `--agent-path ${full} does not exist.`);
  return full;
}

/** Every agent in turn before the next attempt, so that a slow hour hits all alike. */
function plan(args: Pick<RunArguments, 'agent' | 'attempts'>): { agent: string; attempt: number }[] {
  return Array.from({ length: args.attempts }, (_, index) =>
    args.agent.map((agent) => ({ agent, attempt: index + 1 })),
  ).flat();
}
