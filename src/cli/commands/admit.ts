/** `infrabed task admit`: is a task fit to count? */
import { checkers } from '../../../checkers/index.js';
import { InfrabedError } from '../../core/errors.js';
import { admit } from '../../study/admission/admit.js';
import { hostBackendNames, type HostBackend } from '../../testbed/driver/index.js';
import { backendFor } from '../../trial/run/backend-choice.js';
import { findTask, taskFolders } from '../../trial/task/find.js';
import { asRoot } from '../as-root.js';
import type { CliCommand } from '../command.js';
import { openController } from '../controller.js';

interface AdmitArguments {
  task: string;
  repeat: number;
  parallel: number;
  backend: HostBackend | undefined;
  json: boolean;
}

export const admitCommand: CliCommand<AdmitArguments> = {
  command: 'admit <task>',
  describe: 'run reference solutions, idle run and mutants, and write admission.json',
  builder: (yargs) =>
    yargs
      .positional('task', { type: 'string', demandOption: true, describe: 'name or folder of the task' })
      .option('repeat', { type: 'number', default: 5, describe: 'runs of the reference solution' })
      .option('parallel', { type: 'number', default: 2, describe: 'trials side by side' })
      .option('backend', {
        choices: hostBackendNames,
        describe: 'what the nodes are made by; left out: the cheapest that has what the task needs',
      })
      .option('json', { type: 'boolean', default: false, describe: 'the admission as one JSON object' })
      .example('$0 task admit storage-mtu-drift', 'about twelve trials, on fresh nodes each time'),
  handler: async (args, face) => {
    for (const [name, value] of Object.entries({ repeat: args.repeat, parallel: args.parallel })) {
      if (Number.isInteger(value) && value >= 1) continue;
      throw new InfrabedError('IB_USAGE', `--${name} takes a whole number from 1.`);
    }
    const task = await findTask(args.task, taskFolders(), { checkers });
    if (asRoot(face)) return;
    const controller = await openController(face, args.backend ?? backendFor(task));
    try {
      const { admission, path } = await admit({
        environment: controller.environment,
        task,
        repeat: args.repeat,
        parallel: args.parallel,
        signal: face.signal,
        onRun: (run, done, total) => {
          const failed = run.failed.map(({ id, gate }) => `${id}@${gate}`).join(', ');
          face.io.notify({
            type: 'info',
            message: `${String(done).padStart(3)}/${String(total)} ${run.agent}: ${run.outcome}, reward ${run.reward.toFixed(2)}, ${String(run.seconds)} s${failed ? `; failed ${failed}` : ''}`,
          });
        },
      });
      if (args.json) face.printJson({ ...admission, path });
      else {
        face.print(
          `${admission.task}: ${admission.admitted ? 'admitted' : 'NOT admitted'}, flake rate ${String(admission.flakeRate)}`,
        );
        for (const problem of admission.problems) face.print(`  ${problem}`);
        face.print(`written: ${path}`);
      }
      if (!admission.admitted) face.exitStatus = 3;
    } finally {
      await controller.close();
    }
  },
};
