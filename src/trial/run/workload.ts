/** Workloads: scripts of the task that run on a node from before the fault until after the last gate. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../core/errors.js';
import type { Journal } from '../../core/journal.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';
import type { TaskPackage } from '../task/schema.js';

/** No trial lasts longer than this; the workload is ended by its signal long before. */
const longestMs = 24 * 60 * 60 * 1000;

export interface Workloads {
  /** Ends those of a node, for `restart`. */
  halt(node: string): Promise<void>;
  /** Starts those of a node again, after the controller itself rebooted it or ended its logins. */
  restart(node: string): Promise<void>;
  stop(): Promise<void>;
}

/** Starts every workload of the task. Its end before `stop` is written down: the checks see the consequence. */
export async function startWorkloads(options: {
  cluster: Cluster;
  task: TaskPackage;
  env: Readonly<Record<string, string>>;
  journal: Journal;
}): Promise<Workloads> {
  const { cluster, task, journal } = options;
  const running = new Map<string, { node: string; controller: AbortController; ended: Promise<void> }>();

  const launch = async (workload: TaskPackage['definition']['workload'][number]): Promise<void> => {
    const script = await readFile(join(task.dir, workload.script), 'utf8');
    const controller = new AbortController();
    const record = (kind: string, payload: Record<string, unknown>): void => {
      journal.record({
        kind,
        actor: 'workload',
        node: workload.on,
        payload: { workload: workload.name, ...payload },
      });
    };
    record('workload.start', { script: workload.script });
    const ended = cluster
      .setUp(workload.on, {
        argv: ['/bin/bash', '-s'],
        stdin: script,
        env: { ...options.env, NODE: workload.on },
        timeoutMs: longestMs,
        maxOutputBytes: 64 * 1024,
        signal: controller.signal,
      })
      .then(
        (result) => record('workload.end', { exitCode: result.exitCode, stderr: result.stderr.slice(-2000) }),
        (error: unknown) =>
          record('workload.end', { stopped: controller.signal.aborted, why: messageOf(error) }),
      );
    running.set(workload.name, { node: workload.on, controller, ended });
  };
  const end = async (name: string): Promise<void> => {
    const entry = running.get(name);
    running.delete(name);
    entry?.controller.abort();
    await entry?.ended;
  };

  const on = (node: string): TaskPackage['definition']['workload'] =>
    task.definition.workload.filter((each) => each.on === node);
  const halt = async (node: string): Promise<void> => {
    for (const { name } of on(node)) await end(name);
  };

  for (const workload of task.definition.workload) await launch(workload);
  return {
    halt,
    async restart(node) {
      await halt(node);
      for (const workload of on(node)) await launch(workload);
    },
    async stop() {
      await Promise.all([...running.keys()].map(end));
    },
  };
}
