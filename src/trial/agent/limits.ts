/** Bounds on what an agent may take from the controller's machine: memory and number of processes. */
import { existsSync } from 'node:fs';
import { mkdir, readdir, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { waitFor } from '../../core/clock.js';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';

export interface AgentLimits {
  memoryBytes: number;
  processes: number;
}

export const defaultLimits: AgentLimits = { memoryBytes: 4 * 1024 ** 3, processes: 2048 };

export interface LimitedRoom {
  /** Program and arguments that bwrap's own follow. */
  prefix: readonly string[];
  /** Puts the process of bwrap, which has not started its program yet, into the room. */
  admit(pid: number): Promise<void>;
  /** Removes the room once it is empty. */
  remove(): Promise<void>;
}

const cgroupRoot = '/sys/fs/cgroup';
const group = (name: string): string => `infrabed-agents/${name}`;

/**
 * Where the host runs systemd, a transient scope; else control groups of our own, in version 2 or in the version 1
 * hierarchies that hold the memory and the pids controller.
 * @throws InfrabedError IB_SANDBOX where neither can be had: an agent without bounds could end the controller.
 */
export async function makeRoom(name: string, limits: AgentLimits): Promise<LimitedRoom> {
  if (existsSync('/run/systemd/system')) return scope(name, limits);
  const folders = existsSync(join(cgroupRoot, 'cgroup.controllers'))
    ? await versionTwo(name, limits)
    : await versionOne(name, limits);
  return {
    prefix: [],
    async admit(pid) {
      for (const folder of folders) await setting(folder, 'cgroup.procs', String(pid));
    },
    async remove() {
      for (const folder of folders) await removeFolder(folder);
    },
  };
}

function scope(name: string, limits: AgentLimits): LimitedRoom {
  const unit = `infrabed-agent-${name}`;
  const prefix = [
    'systemd-run',
    '--scope',
    '--quiet',
    '--collect',
    `--unit=${unit}`,
    '--slice=infrabed.slice',
  ];
  prefix.push(
    '-p',
    `MemoryMax=${String(limits.memoryBytes)}`,
    '-p',
    `TasksMax=${String(limits.processes)}`,
    '--',
  );
  return { prefix, admit: () => Promise.resolve(), remove: () => Promise.resolve() };
}

async function versionTwo(name: string, limits: AgentLimits): Promise<string[]> {
  const folder = join(cgroupRoot, group(name));
  await mkdir(folder, { recursive: true });
  for (const above of [cgroupRoot, join(folder, '..')])
    await setting(above, 'cgroup.subtree_control', '+memory +pids');
  await setting(folder, 'memory.max', String(limits.memoryBytes));
  await setting(folder, 'pids.max', String(limits.processes));
  return [folder];
}

async function versionOne(name: string, limits: AgentLimits): Promise<string[]> {
  const memory = join(cgroupRoot, 'memory', group(name));
  const pids = join(cgroupRoot, 'pids', group(name));
  await mkdir(memory, { recursive: true });
  await mkdir(pids, { recursive: true });
  await setting(memory, 'memory.limit_in_bytes', String(limits.memoryBytes));
  await setting(pids, 'pids.max', String(limits.processes));
  return [memory, pids];
}

async function setting(folder: string, file: string, value: string): Promise<void> {
  try {
    await writeFile(join(folder, file), value);
  } catch (error) {
    throw new InfrabedError(
      'IB_SANDBOX',
      `The agent's limits could not be set: ${join(folder, file)}: ${messageOf(error)}`,
      {
        hint: 'Run "infrabed doctor": the memory and pids controllers are needed.',
        cause: error,
      },
    );
  }
}

/** An ended process leaves its group a moment later. */
async function removeFolder(folder: string): Promise<void> {
  await waitFor(
    `${folder} to be empty`,
    async () => {
      try {
        await rmdir(folder);
        return true;
      } catch (error) {
        if (errnoOf(error) === 'ENOENT') return true;
        if (errnoOf(error) === 'EBUSY') return undefined;
        throw error;
      }
    },
    { timeoutMs: 5000, intervalMs: 20 },
  );
}

/** Rooms that a killed controller left: their names; each is removed when its agent is gone (it died with bwrap). */
export async function removeEmptyRooms(isLive: (name: string) => boolean): Promise<string[]> {
  const removed: string[] = [];
  for (const hierarchy of ['.', 'memory', 'pids']) {
    const parent = join(cgroupRoot, hierarchy, 'infrabed-agents');
    if (!existsSync(parent)) continue;
    for (const entry of await readdir(parent, { withFileTypes: true })) {
      if (!entry.isDirectory() || isLive(entry.name)) continue;
      await removeFolder(join(parent, entry.name));
      removed.push(entry.name);
    }
  }
  return [...new Set(removed)];
}
