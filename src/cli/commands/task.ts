/** `infrabed task list | show | lint | new`: for people who choose and write tasks. `admit` has a file of its own. */
import { existsSync } from 'node:fs';
import { relative } from 'node:path';
import { checkers } from '../../../checkers/index.js';
import { InfrabedError } from '../../core/errors.js';
import { printable } from '../../core/printable.js';
import { loadAdmission } from '../../study/admission/admission-file.js';
import { findTask, listTasks, taskFolders } from '../../trial/task/find.js';
import { lintTask, type LintFinding } from '../../trial/task/lint.js';
import { newTask } from '../../trial/task/new.js';
import type { TaskPackage } from '../../trial/task/schema.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';
import { describeTask } from '../describe-task.js';
import { admitCommand } from './admit.js';

const json = { type: 'boolean', default: false } as const;

const taskList: CliCommand<{ json: boolean }> = {
  command: 'list',
  describe: 'the tasks there are',
  builder: (yargs) =>
    yargs
      .option('json', { ...json, describe: 'one JSON object a task' })
      .example('$0 task list', 'those of ./tasks, of INFRABED_TASKS and those that come with infrabed'),
  async handler(args, face) {
    const { tasks, broken } = await listTasks(taskFolders(), { checkers });
    for (const { error } of broken) face.io.notify({ type: 'warning', message: error });
    const lines = await Promise.all(tasks.map(summary));
    if (args.json) for (const line of lines) face.printJson(line);
    else if (lines.length === 0) face.print('There are no tasks. "infrabed task new" makes one.');
    else printTable(face, lines);
  },
};

type Summary = Awaited<ReturnType<typeof summary>>;

async function summary(task: TaskPackage) {
  const { metadata, task: about, environment } = task.definition;
  const { admitted } = await loadAdmission(task);
  return {
    task: task.shortName,
    name: about.name,
    layer: metadata.layer,
    stage: metadata.stage,
    difficulty: metadata.difficulty,
    nodes: environment.nodes.length,
    admitted,
    description: about.description,
    dir: task.dir,
    hash: task.hash,
  };
}

function printTable(face: Face, lines: readonly Summary[]): void {
  const width = Math.max(4, ...lines.map(({ task }) => task.length));
  face.print(`${'TASK'.padEnd(width)}  LAYER  STAGE         NODES  ADMITTED  DESCRIPTION`);
  for (const line of lines) {
    const cells = [
      line.task.padEnd(width),
      line.layer.padEnd(5),
      line.stage.padEnd(12),
      String(line.nodes).padEnd(5),
      (line.admitted ? 'yes' : 'no').padEnd(8),
    ];
    face.print(`${cells.join('  ')}  ${cut(printable(line.description), 100)}`);
  }
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

const taskShow: CliCommand<{ task: string; json: boolean }> = {
  command: 'show <task>',
  describe: 'what a task asks, how it is judged and which wrong fixes it knows',
  builder: (yargs) =>
    yargs
      .positional('task', { type: 'string', demandOption: true, describe: 'name or folder of the task' })
      .option('json', { ...json, describe: 'the whole definition as one JSON object' })
      .example('$0 task show storage-mtu-drift', 'gates, checks, mutants and allowances'),
  async handler(args, face) {
    const task = await findTask(args.task, taskFolders(), { checkers });
    const { dir, hash, foreign, instruction, definition } = task;
    const admission = await loadAdmission(task);
    if (args.json) {
      const assumed = task.assumed ?? [];
      face.printJson({
        task: task.shortName,
        dir,
        hash,
        foreign,
        assumed,
        admission,
        instruction,
        definition,
      });
    } else for (const line of describeTask(task, admission.why)) face.print(line);
  },
};

const taskLint: CliCommand<{ task: string | undefined; all: boolean; json: boolean }> = {
  command: 'lint [task]',
  describe: 'find weak checks, untold duties, missing mutants and scripts that go on after an error',
  builder: (yargs) =>
    yargs
      .positional('task', { type: 'string', describe: 'name or folder of the task' })
      .option('all', { type: 'boolean', default: false, describe: 'every task there is' })
      .option('json', { ...json, describe: 'one JSON object a finding' })
      .example('$0 task lint ./tasks/my-task', 'exit status 2 when there are errors')
      .example('$0 task lint --all', 'every task'),
  async handler(args, face) {
    if (args.all === (args.task !== undefined)) {
      throw new InfrabedError('IB_USAGE', 'task lint takes either a task or --all.', {
        hint: 'Run "infrabed task lint NAME" or "infrabed task lint --all".',
      });
    }
    const { tasks, broken } =
      args.task === undefined
        ? await listTasks(taskFolders(), { checkers })
        : { tasks: [await findTask(args.task, taskFolders(), { checkers })], broken: [] };
    for (const { error } of broken) {
      face.exitStatus = 2;
      face.io.notify({ type: 'warning', message: error });
    }
    for (const task of tasks) report(task, await lintTask(task, checkers), face, args.json);
  },
};

function report(task: TaskPackage, findings: readonly LintFinding[], face: Face, asJson: boolean): void {
  const errors = findings.filter(({ severity }) => severity === 'error').length;
  if (errors > 0) face.exitStatus = 2;
  if (asJson) {
    for (const finding of findings) face.printJson({ task: task.shortName, ...finding });
    return;
  }
  const folder = relative(process.cwd(), task.dir) || '.';
  for (const { severity, rule, file, line, key, message } of findings) {
    const where = `${folder}/${file}${line === null ? '' : `:${String(line)}`}`;
    face.print(printable(`${where}: ${severity}: ${key === null ? '' : `${key}: `}${message} [${rule}]`));
  }
  const warnings = findings.length - errors;
  face.print(`${task.shortName}: ${counted(errors, 'error')}, ${counted(warnings, 'warning')}`);
}

function counted(count: number, word: string): string {
  return `${count === 0 ? 'no' : String(count)} ${word}${count === 1 ? '' : 's'}`;
}

const layers = ['L1', 'L2', 'L3', 'L4'] as const;

interface NewArguments {
  name: string;
  layer: (typeof layers)[number];
  organisation: string;
  folder: string | undefined;
}

const taskNew: CliCommand<NewArguments> = {
  command: 'new <name>',
  describe: 'write a new package that passes lint and runs, to be changed into yours',
  builder: (yargs) =>
    yargs
      .positional('name', {
        type: 'string',
        demandOption: true,
        describe: 'lower-case letters, digits, dashes',
      })
      .option('layer', {
        choices: layers,
        demandOption: true,
        describe: 'L1 hardware, L2 local system, L3 distributed system, L4 user application',
      })
      .option('organisation', {
        type: 'string',
        default: 'local',
        describe: 'the part of the name before the slash',
      })
      .option('folder', {
        type: 'string',
        describe: 'where the package folder is made; default: ./tasks where that is there, else here',
      })
      .example('$0 task new --layer L2 disk-full', 'then: infrabed run ./tasks/disk-full --agent oracle'),
  async handler(args, face) {
    const { name, layer, organisation } = args;
    const parent = args.folder ?? (existsSync('tasks') ? 'tasks' : '.');
    const dir = await newTask({ name, layer, organisation, parent });
    const shown = `./${relative(process.cwd(), dir)}`;
    face.print(`Wrote ${shown}: a web page on the wrong port, to be changed into your own story.`);
    face.print(`Next: infrabed task lint ${shown}; infrabed run ${shown} --agent oracle`);
  },
};

export const taskNoun: CliNoun = {
  noun: 'task',
  describe: 'Task packages',
  verbs: (face) => [
    toYargs(taskList, face),
    toYargs(taskShow, face),
    toYargs(taskLint, face),
    toYargs(taskNew, face),
    toYargs(admitCommand, face),
  ],
};
