/** The power of a virtual machine: written down, done, read back from the hypervisor, written down again. */
import { throwIfAborted, waitFor } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { lastLines } from '../../../core/exec.js';
import { failpoint } from '../../../core/failpoint.js';
import type { Journal } from '../../../core/journal.js';
import { fileTail } from '../container/node.js';
import type { Power, PowerState } from '../driver.js';
import { reachHypervisor, virsh } from './hypervisor.js';
import { powerAct, type VmContext, type VmPlace } from './place.js';

/** An emulated machine takes half a minute to stop its services. */
const softOffTimeoutMs = 180_000;
/** A system that is still starting does not hear its power button. */
const askIntervalMs = 10_000;

/** virsh's words for a machine that draws power; "paused" is one that QEMU stopped, by itself or before its start. */
const onWords = ['running', 'idle', 'paused', 'in shutdown', 'pmsuspended'];
const offWords = ['shut off', 'crashed'];

export class VmPower implements Power {
  /** One action at a time: the next begins when the one before has been read back. */
  private queue: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly context: VmContext,
    private readonly place: VmPlace,
    private readonly journal: Journal,
  ) {}

  async state(signal?: AbortSignal): Promise<PowerState> {
    try {
      await reachHypervisor(this.context.hypervisor, signal);
      const word = (await virsh(this.context.hypervisor, ['domstate', this.place.domain], signal)).trim();
      if (onWords.includes(word)) return 'on';
      return offWords.includes(word) ? 'off' : 'unknown';
    } catch (error) {
      if (!isInfrabedError(error) || error.code === 'IB_CANCELLED') throw error;
      // Before its first start the hypervisor does not know a machine of ours: then it cannot be on.
      if (/failed to get domain/.test(messageOf(error))) return 'off';
      return 'unknown';
    }
  }

  on(signal?: AbortSignal): Promise<void> {
    return this.act('power.on', 'on', signal, () => this.byChild('on'));
  }

  off(signal?: AbortSignal): Promise<void> {
    return this.act('power.off', 'off', signal, () => this.byChild('off'));
  }

  softOff(signal?: AbortSignal): Promise<void> {
    return this.act('power.soft-off', 'off', signal, () => this.askOff(signal));
  }

  cycle(signal?: AbortSignal): Promise<void> {
    return this.act('power.cycle', 'on', signal, async () => {
      await this.byChild('off');
      await this.byChild('on');
    });
  }

  reset(signal?: AbortSignal): Promise<void> {
    return this.act('power.reset', 'on', signal, () => this.byChild('reset'));
  }

  private byChild(verb: 'on' | 'off' | 'reset'): Promise<boolean> {
    return powerAct(this.context, this.place, verb);
  }

  private act(
    kind: string,
    wanted: PowerState,
    signal: AbortSignal | undefined,
    work: () => Promise<unknown>,
  ): Promise<void> {
    const turn = this.queue.then(async () => {
      throwIfAborted(signal);
      await reachHypervisor(this.context.hypervisor, signal);
      failpoint(`vm.${kind}.before-check`);
      const startMs = this.context.clock.now();
      await this.write(kind, { state: 'begin', before: await this.state(signal) });
      failpoint(`vm.${kind}.intent`);
      try {
        await work();
        await this.readBack(wanted);
      } catch (error) {
        await this.write(kind, { state: 'failed', error: messageOf(error), after: await this.state() });
        throw error;
      }
      const durationMs = this.context.clock.now() - startMs;
      await this.write(kind, { state: 'verified', after: wanted, durationMs });
      failpoint(`vm.${kind}.verified`);
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
    const console = lastLines(await fileTail(this.place.consolePath, 2000), 3);
    throw new InfrabedError(
      'IB_POWER',
      `${this.place.node.name} should be ${wanted} but is ${state}. Its console ends with: ${console}`,
    );
  }

  private async askOff(signal?: AbortSignal): Promise<void> {
    if (!(await powerAct(this.context, this.place, 'ask-off', { isFirst: true }))) {
      await this.byChild('off');
      return;
    }
    let askAgainMs = this.context.clock.now() + askIntervalMs;
    await waitFor(
      `${this.place.node.name} to shut down`,
      async () => {
        if ((await this.state(signal)) === 'off') return true;
        if (this.context.clock.now() >= askAgainMs) {
          await powerAct(this.context, this.place, 'ask-off', { isFirst: false });
          askAgainMs = this.context.clock.now() + askIntervalMs;
        }
        return undefined;
      },
      {
        timeoutMs: softOffTimeoutMs,
        intervalMs: 500,
        clock: this.context.clock,
        ...(signal ? { signal } : {}),
      },
    );
  }
}
