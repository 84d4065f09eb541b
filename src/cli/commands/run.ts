/** `infrabed run`: one task, one agent, some attempts; the scorecard of each. */
import { InfrabedError } from '../../core/errors.js';
import { terminalReport } from '../../review/report/index.js';
import { runAttempt, reportPath } from '../../study/attempt/attempt.js';
import { loadAdmission } from '../../study/admission/admission-file.js';
import { parseAgent } from '../../trial/agent/agent.js';
import { findTask, taskFolders } from '../../trial/task/find.js';
import { checkers } from '../../../checkers/index.js';
import type { CliCommand } from '../command.js';
import { openController } from '../controller.js';
import { asRoot } from '../as-root.js';

interface RunArguments {
  task: string;
  agent: string;
  attempts: number;
  keep: boolean;
  network: 'none' | 'host';
  'agent-path': string[];
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
        default: 'oracle',
        describe: 'oracle, oracle:alternative, noop, mutant:NAME, script:PATH or command:CMD',
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
        default: [] as string[],
        describe: "further folders that the agent's program needs, shown to it read-only",
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
      throw new InfrabedError(
        'IB_USAGE',
        `--attempts takes a whole number from 1, not ${String(args.attempts)}.`,
      );
    }
    const task = await findTask(args.task, taskFolders(), { checkers });
    parseAgent(args.agent, task);
    if (asRoot(face)) return;
    const { admitted } = await loadAdmission(task);
    const controller = await openController(face, checkers);
    try {
      for (let attempt = 1; attempt <= args.attempts && !face.signal.aborted; attempt++) {
        const { score, error } = await runAttempt(controller.environment, {
          task,
          admitted,
          agent: args.agent,
          attempt,
          network: args.network,
          keep: args.keep,
          agentPaths: args['agent-path'],
          signal: face.signal,
        });
        if (args.json) face.printJson(score);
        else {
          for (const line of terminalReport(score, { colour: face.interactive })) face.print(line);
          face.print(`report: ${reportPath(score.bundle)}`);
        }
        if (['infra_error', 'verifier_error', 'cancelled'].includes(score.outcome)) face.exitStatus = 3;
        if (error !== undefined) face.explain(error);
      }
    } finally {
      await controller.close();
    }
  },
};
