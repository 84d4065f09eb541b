/** The power of a container node: written down, done, read back from its control group, written down again. */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { throwIfAborted, waitFor, type Clock } from '../../../core/clock.js';
import { InfrabedError, errnoOf, isInfrabedError, messageOf } from '../../../core/errors.js';
import { lastLines } from '../../../core/exec.js';
import { failpoint } from '../../../core/failpoint.js';
import type { Journal } from '../../../core/journal.js';
import type { Power, PowerState } from '../driver.js';
import { isPopulated } from './cgroup.js';
import { act, fencedOff, stillHolds } from './fence.js';
import { fileTail, findInit, type NodePlace } from './node.js';
import { powerLogPath } from './power-log.js';
import { cleanEnvironment, type Supervisor } from './supervisor.js';

/** Number of SIGRTMIN+4 with glibc: systemd's "power off in an orderly way" (systemd(1), SIGNALS). */
export const powerOffSignal = 34 + 4;
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
      failpoint(`container.${kind}.before-check`);
      const startMs = this.clock.now();
      await this.write(kind, { state: 'begin', before: await this.state() });
      failpoint(`container.${kind}.intent`);
      try {
        await work();
        await this.readBack(wanted);
      } catch (error) {
        await this.write(kind, { state: 'failed', error: messageOf(error), after: await this.state() });
        throw error;
      }
      await this.write(kind, { state: 'verified', after: wanted, durationMs: this.clock.now() - startMs });
      failpoint(`container.${kind}.verified`);
    });
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  private async write(kind: string, payload: Record<string, unknown>): Promise<void> {
    this.journal.record({ kind, actor: 'controller', node: this.place.node.name, payload });
    await this.journal.flush();
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
    await this.byChild('on');
    if (await this.isStarted()) return;
    const startMs = this.clock.now();
    await waitFor(
      `${this.place.node.name} to start its init`,
      async () => {
        if (await this.isStarted()) return true;
        // The first moments belong to the shell that has yet to enter its control group.
        const isLate = this.clock.now() - startMs > 3000;
        if (!isLate || (await this.supervisor.isPresent(this.place))) return undefined;
        if (!(await stillHolds(this.place.holding))) throw fencedOff(this.place.holding);
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

  /** Its init runs, or its firmware was told to boot from elsewhere and holds: then it is on, without an init. */
  private async isStarted(): Promise<boolean> {
    return (
      (await findInit(this.place.groups)) !== undefined || existsSync(join(this.place.folder, 'bmc', 'held'))
    );
  }

  private async switchOff(): Promise<void> {
    await this.byChild('off');
  }

  private async askOff(signal?: AbortSignal): Promise<void> {
    if (!(await this.signalInit(true))) return this.switchOff();
    let askAgainMs = this.clock.now() + askIntervalMs;
    await waitFor(
      `${this.place.node.name} to shut down`,
      async () => {
        if ((await this.state()) === 'off') return true;
        // An init that is still starting, or re-executing itself, does not hear the signal: so it is repeated.
        if (this.clock.now() >= askAgainMs) {
          await this.signalInit(false);
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
    await this.byChild('tidy');
  }

  /** False if there was no init that could be asked. */
  private async signalInit(isFirst: boolean): Promise<boolean> {
    const result = await this.byChild('ask-off', { signal: powerOffSignal, isFirst });
    return askedSchema.parse(result).acted;
  }

  /** One act by a child, under the fence. */
  private byChild(
    verb: 'on' | 'off' | 'ask-off' | 'tidy',
    more: Record<string, unknown> = {},
  ): Promise<unknown> {
    return act(this.place.holding, verb, {
      ...powerRequest(this.place, this.stateFolder, this.supervisor),
      ...more,
    });
  }
}

/** What node_power.py is told of a node. */
export function powerRequest(
  place: NodePlace,
  stateFolder: string,
  supervisor: Supervisor,
): Record<string, unknown> {
  const { node, folder, groups, consolePath } = place;
  return {
    node: node.name,
    folder,
    console: consolePath,
    log: powerLogPath(stateFolder),
    group: groups.unified,
    groups: groups.all,
    root: groups.root,
    env: cleanEnvironment,
    ...supervisor.launch(place),
  };
}

const askedSchema = z.object({ acted: z.boolean() });

/** What the controller last asked of the node's power. */
export async function desiredPower(folder: string): Promise<'on' | 'off'> {
  try {
    return (await readFile(join(folder, 'desired'), 'utf8')).trim() === 'on' ? 'on' : 'off';
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return 'off';
    throw error;
  }
}
