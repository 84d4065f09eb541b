/** Which agent a trial has: the words that `--agent` takes, parsed once. */
import { existsSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { InfrabedError } from '../../core/errors.js';
import { runSync } from '../../core/exec.js';
import { agentPath } from './workspace.js';
import type { TaskPackage } from '../task/schema.js';

export type AgentKind = 'oracle' | 'noop' | 'mutant' | 'script' | 'command';

export interface Agent {
  kind: AgentKind;
  /** As the person wrote it: `mutant:link-only`. */
  label: string;
  /** File or folder on the controller whose copy appears read-only at /program, or null. */
  program: string | null;
  /** What runs inside the sandbox, in the agent's folder. */
  argv: readonly string[];
}

const bash = (script: string): readonly string[] => ['/bin/bash', script];

/**
 * Parses `oracle`, `oracle:alternative`, `noop`, `mutant:NAME`, `script:PATH` or `command:CMD`.
 * @throws InfrabedError IB_AGENT_UNKNOWN, naming what there is.
 */
export function parseAgent(label: string, task: TaskPackage): Agent {
  const [kind, rest] = split(label);
  switch (kind) {
    case 'oracle':
      return scripted(label, 'oracle', solutionFolder(task, rest));
    case 'noop':
      return { kind: 'noop', label, program: null, argv: ['/bin/true'] };
    case 'mutant':
      return scripted(label, 'mutant', mutantFolder(task, rest));
    case 'script':
      return fromScript(label, rest);
    case 'command':
      if (!rest) throw unknown(label, 'command: needs a command line, e.g. command:"my-agent --headless".');
      assertFindable(label, rest);
      return { kind: 'command', label, program: null, argv: ['/bin/sh', '-c', rest] };
    default:
      throw unknown(
        label,
        'Known are oracle, oracle:alternative, noop, mutant:NAME, script:PATH and command:CMD.',
      );
  }
}

/** What the sandbox cannot find would end with 127, and be graded as if the agent had failed. */
function assertFindable(label: string, commandLine: string): void {
  const [word = ''] = commandLine.trim().split(/\s+/);
  if (!/^[\w./+-]+$/.test(word)) return; // an assignment, a quote, a subshell: sh will tell
  if (word.startsWith('/')) {
    if (!existsSync(word)) throw unknown(label, `There is no ${word} on this machine.`);
    return;
  }
  const hint = `The sandbox has only the system's folders and what --agent-path shows: give the absolute path of "${word}".`;
  if (word.includes('/')) throw unknown(label, hint);
  const look = ['-i', `PATH=${agentPath}`, 'sh', '-c', 'command -v "$1"', 'sh', word];
  if (runSync('env', look, { input: '', timeoutMs: 10_000 }).exitCode !== 0) throw unknown(label, hint);
}

function split(label: string): [string, string | undefined] {
  const colon = label.indexOf(':');
  return colon < 0 ? [label, undefined] : [label.slice(0, colon), label.slice(colon + 1)];
}

function unknown(label: string, hint: string): InfrabedError {
  return new InfrabedError('IB_AGENT_UNKNOWN', `There is no agent "${label}".`, { hint });
}

function scripted(label: string, kind: AgentKind, folder: string): Agent {
  return { kind, label, program: folder, argv: bash('/program/solve.sh') };
}

function solutionFolder(task: TaskPackage, variant: string | undefined): string {
  const folder = variant === undefined ? join(task.dir, 'solution') : join(task.dir, 'solution', variant);
  if (!existsSync(join(folder, 'solve.sh'))) {
    throw unknown(
      variant === undefined ? 'oracle' : `oracle:${variant}`,
      `The task ${task.definition.task.name} has no ${join(folder, 'solve.sh')}.`,
    );
  }
  return folder;
}

function mutantFolder(task: TaskPackage, name: string | undefined): string {
  const known = task.definition.mutants.map((mutant) => mutant.name);
  if (name === undefined || !known.includes(name)) {
    throw unknown(
      `mutant:${name ?? ''}`,
      `Mutants of ${task.definition.task.name}: ${known.join(', ') || 'none'}.`,
    );
  }
  return join(task.dir, 'mutants', name);
}

function fromScript(label: string, path: string | undefined): Agent {
  if (path === undefined || !existsSync(path)) {
    throw unknown(label, `The file ${path ?? ''} does not exist; give script:PATH of a bash script.`);
  }
  const full = resolve(path);
  return { kind: 'script', label, program: full, argv: bash(`/program/${basename(full)}`) };
}
