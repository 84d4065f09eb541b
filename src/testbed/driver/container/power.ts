/** The power of a container node: written down, done, read back from its control group, written down again. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { throwIfAborted, waitFor, type Clock } from '../../../core/clock.js';
import { InfrabedError, errnoOf, isInfrabedError, messageOf } from '../../../core/errors.js';
import { lastLines } from '../../../core/exec.js';
import type { Journal } from '../../../core/journal.js';
import type { Power, PowerState } from '../driver.js';
import { emptyGroup, isPopulated, removeGroup } from './cgroup.js';
import { readClusterState } from './cluster-state.js';
import { fileTail, findInit, type NodePlace } from './node.js';
import type { Supervisor } from './supervisor.js';

/** Number of SIGRTMIN+4 with glibc: systemd's "power off in an orderly way" (systemd(1), SIGNALS). */
const powerOffSignal = 34 + 4;
const bootTimeoutMs = 60_000;
const softOffTimeoutMs = 90_000;
const askIntervalMs = 3000;

export class ContainerPower implements Power {
  /** One action at a time: the next begins when the one before has been read back. */
  private queue: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly place: NodePlace,
    private readonly stateFolder: string,
    private readonly supervisor: Supervisor,
    private readonly journal: Journal,
    private readonly clock: Clock,
  ) {}

  async state(): Promise<PowerState> {
    try {
      if (await isPopulated(this.place.groups.unified)) return 'on';
      return (await this.supervisor.isPresent(this.place)) ? 'on' : 'off';
    } catch (error) {
      // A control group or a systemd that cannot be read says nothing: least of all that the node is off.
      if (errnoOf(error) !== undefined || isInfrabedError(error)) return 'unknown';
      throw error;
    }
  }

  on(signal?: AbortSignal): Promise<void> {
    return this.act('power.on', 'on', signal, () => this.switchOn(signal));
  }

  off(signal?: AbortSignal): Promise<void> {
    return this.act('power.off', 'off', signal, () => this.switchOff());
  }

  softOff(signal?: AbortSignal): Promise<void> {
    return this.act('power.soft-off', 'off', signal, () => this.askOff(signal));
  }

  cycle(signal?: AbortSignal): Promise<void> {
    return this.act('power.cycle', 'on', signal, async () => {
      await this.switchOff();
      await this.switchOn(signal);
    });
  }

  reset(signal?: AbortSignal): Promise<void> {
    return this.act('power.reset', 'on', signal, async () => {
      await this.switchOff();
      await this.switchOn(signal);
    });
  }

  private act(
    kind: string,
    wanted: PowerState,
    signal: AbortSignal | undefined,
    work: () => Promise<void>,
  ): Promise<void> {
    const turn = this.queue.then(async () => {
      throwIfAborted(signal);
      await this.checkFence();
      const startMs = this.clock.now();
      await this.write(kind, { state: 'begin', before: await this.state() });
      try {
        await work();
        await this.readBack(wanted);
      } catch (error) {
        await this.write(kind, { state: 'failed', error: messageOf(error), after: await this.state() });
        throw error;
      }
      await this.write(kind, { state: 'verified', after: wanted, durationMs: this.clock.now() - startMs });
    });
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  private async write(kind: string, payload: Record<string, unknown>): Promise<void> {
    this.journal.record({ kind, actor: 'controller', node: this.place.node.name, payload });
    await this.journal.flush();
  }

  /** @throws InfrabedError IB_LEASE_CONFLICT if the nodes belong to another generation of the lease by now. */
  private async checkFence(): Promise<void> {
    const { id, generation } = this.place.cluster;
    const now = await readClusterState(this.stateFolder, id);
    if (now.generation === generation) return;
    throw new InfrabedError(
      'IB_LEASE_CONFLICT',
      `Cluster ${id} belongs to generation ${String(now.generation)} of its lease, not to ${String(generation)}.`,
    );
  }

  private async readBack(wanted: PowerState): Promise<void> {
    const state = await this.state();
    if (state === wanted) return;
    throw new InfrabedError('IB_POWER', `${this.place.node.name} should be ${wanted} but is ${state}.`, {
      details: { console: await this.consoleEnd() },
    });
  }

  private async consoleEnd(): Promise<string> {
    return lastLines(await fileTail(this.place.consolePath, 2000), 3);
  }

  private async switchOn(signal?: AbortSignal): Promise<void> {
    await this.desire('on');
    if ((await findInit(this.place.groups)) !== undefined) return;
    if (!(await this.supervisor.isPresent(this.place))) await this.supervisor.start(this.place);
    const startMs = this.clock.now();
    await waitFor(
      `${this.place.node.name} to start its init`,
      async () => {
        if ((await findInit(this.place.groups)) !== undefined) return true;
        // The first moments belong to the shell that has yet to enter its control group.
        const isLate = this.clock.now() - startMs > 3000;
        if (!isLate || (await this.supervisor.isPresent(this.place))) return undefined;
        throw new InfrabedError(
          'IB_POWER',
          `${this.place.node.name} did not start: ${await this.consoleEnd()}`,
          {
            hint: 'The console log of the node says more; "infrabed doctor" checks what a node needs.',
          },
        );
      },
      { timeoutMs: bootTimeoutMs, intervalMs: 20, clock: this.clock, ...(signal ? { signal } : {}) },
    );
  }

  private async switchOff(): Promise<void> {
    await this.desire('off');
    await emptyGroup(this.place.groups.unified);
    await this.supervisor.settle(this.place);
    await this.removeGroups();
  }

  private async askOff(signal?: AbortSignal): Promise<void> {
    await this.desire('off');
    if ((await findInit(this.place.groups)) === undefined) return this.switchOff();
    let askAgainMs = 0;
    await waitFor(
      `${this.place.node.name} to shut down`,
      async () => {
        if ((await this.state()) === 'off') return true;
        // An init that is still starting, or re-executing itself, does not hear the signal: so it is repeated.
        if (this.clock.now() >= askAgainMs) {
          await this.signalInit(powerOffSignal);
          askAgainMs = this.clock.now() + askIntervalMs;
        }
        return undefined;
      },
      {
        timeoutMs: softOffTimeoutMs,
        intervalMs: 20,
        clock: this.clock,
        ...(signal ? { signal } : {}),
      },
    );
    await this.supervisor.settle(this.place);
    await this.removeGroups();
  }

  private async signalInit(number: number): Promise<void> {
    const init = await findInit(this.place.groups);
    if (init === undefined) return;
    try {
      process.kill(init.pid, number);
    } catch (error) {
      // It ended since it was found.
      if (errnoOf(error) !== 'ESRCH') throw error;
    }
  }

  private async removeGroups(): Promise<void> {
    for (const group of this.place.groups.all) await removeGroup(group);
  }

  /** Kept beside the node, so that a witness can tell a node that was switched off from one that went. */
  private desire(state: 'on' | 'off'): Promise<void> {
    return writeFile(join(this.place.folder, 'desired'), `${state}\n`);
  }
}

/** What the controller last asked of the node's power. */
export async function desiredPower(folder: string): Promise<'on' | 'off'> {
  try {
    return (await readFile(join(folder, 'desired'), 'utf8')).trim() === 'on' ? 'on' : 'off';
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return 'off';
    throw error;
  }
}
