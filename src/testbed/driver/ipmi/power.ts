/** The power of a machine by its BMC: written down, asked for once, read back until it is steady, written down again. */
import { throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { failpoint } from '../../../core/failpoint.js';
import type { Power, PowerState } from '../driver.js';
import type { IpmiBmc } from './bmc.js';
import { rawArgs } from './hex.js';

/** Chassis Control (IPMI 2.0, section 28.3). */
const control = { off: 0x00, on: 0x01, reset: 0x03, soft: 0x05 } as const;
type Control = keyof typeof control;

export interface PowerTiming {
  /** Between two readings that have to agree. */
  steadyMs: number;
  /** For a machine to be on or off after it was asked. */
  settleMs: number;
  /** For an operating system to shut down. */
  softOffMs: number;
  /** Between off and on: supplies hold for a moment (section 28.3 asks for at least one second). */
  offHoldMs: number;
}

export const usualPowerTiming: PowerTiming = {
  steadyMs: 500,
  settleMs: 30_000,
  softOffMs: 180_000,
  offHoldMs: 1000,
};

/** Agreeing readings in a row that make a state. */
const steadyReads = 2;
/** Readings before a state that keeps changing is called unknown. */
const mostReads = 6;
/** Requests, each after the reading back proved that the one before had no effect. */
const attempts = 3;

export class IpmiPower implements Power {
  private queue: Promise<unknown> = Promise.resolve();
  private readonly clock: Clock;

  constructor(
    private readonly bmc: IpmiBmc,
    private readonly timing: PowerTiming,
  ) {
    this.clock = bmc.link.clock;
  }

  /** Steady: a machine that is going off still says on, and one reading would believe it. */
  async state(signal?: AbortSignal): Promise<PowerState> {
    let last: PowerState | undefined;
    let agreeing = 0;
    for (let read = 0; read < mostReads; read += 1) {
      if (read > 0) await this.clock.sleep(this.timing.steadyMs, signal);
      const now = await this.bmc.powerState(signal);
      if (now === 'unknown') return 'unknown';
      agreeing = now === last ? agreeing + 1 : 1;
      last = now;
      if (agreeing === steadyReads) return now;
    }
    return 'unknown';
  }

  on(signal?: AbortSignal): Promise<void> {
    return this.act('power.on', 'on', signal, (before) => this.drive('on', before, signal));
  }

  off(signal?: AbortSignal): Promise<void> {
    return this.act('power.off', 'off', signal, (before) => this.drive('off', before, signal));
  }

  softOff(signal?: AbortSignal): Promise<void> {
    return this.act('power.soft-off', 'off', signal, async (before) => {
      if (before === 'off') return;
      // Asked once: a second press of the button means something else to some systems.
      await this.send('soft', signal);
      if (await this.becomes('off', this.timing.softOffMs, signal)) return;
      throw new InfrabedError('IB_TIMEOUT', `${this.bmc.name} did not shut down in time.`, {
        hint: 'Its console says what it waits for; a hard power-off does not ask it.',
      });
    });
  }

  cycle(signal?: AbortSignal): Promise<void> {
    return this.act('power.cycle', 'on', signal, async (before) => {
      // Two acts that can both be read back, instead of one that cannot: chassis control's own cycle is refused by a
      // machine that is off (D5h), and one that was swallowed looks just like one that was quick.
      await this.drive('off', before, signal);
      if (before !== 'off') await this.clock.sleep(this.timing.offHoldMs, signal);
      await this.drive('on', 'off', signal);
    });
  }

  reset(signal?: AbortSignal): Promise<void> {
    return this.act('power.reset', 'on', signal, async (before) => {
      if (before === 'on' && !(await this.send('reset', signal))) {
        throw new InfrabedError(
          'IB_BMC_UNREACHABLE',
          `The BMC of ${this.bmc.name} took a reset and did not answer: it may have been carried out.`,
          { hint: 'Compare the boot identity before it is tried again.', details: { maybeDone: true } },
        );
      }
      // A reset of a machine that is off "succeeds", and leaves it off.
      await this.drive('on', await this.state(signal), signal);
    });
  }

  private act(
    kind: string,
    wanted: PowerState,
    signal: AbortSignal | undefined,
    work: (before: PowerState) => Promise<void>,
  ): Promise<void> {
    const turn = this.queue.then(async () => {
      throwIfAborted(signal);
      const startMs = this.clock.now();
      const before = await this.state(signal);
      await this.write(kind, { state: 'begin', before });
      failpoint(`ipmi.${kind}.intent`);
      try {
        await work(before);
      } catch (error) {
        await this.write(kind, { state: 'failed', error: messageOf(error) });
        throw error;
      }
      await this.write(kind, { state: 'verified', after: wanted, durationMs: this.clock.now() - startMs });
      failpoint(`ipmi.${kind}.verified`);
    });
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  private async write(kind: string, payload: Record<string, unknown>): Promise<void> {
    this.bmc.journal.record({ kind, actor: 'controller', node: this.bmc.name, payload });
    await this.bmc.journal.flush();
  }

  /** Asks only when a steady state says otherwise, and again only when that stays so for the whole time. */
  private async drive(wanted: 'on' | 'off', before: PowerState, signal?: AbortSignal): Promise<void> {
    let state = before;
    for (let attempt = 1; attempt <= attempts && state !== wanted; attempt += 1) {
      if (state === 'unknown') throw this.cannotTell();
      await this.send(wanted, signal);
      if (await this.becomes(wanted, this.timing.settleMs, signal)) return;
      state = await this.state(signal);
    }
    if (state === wanted) return;
    if (state === 'unknown') throw this.cannotTell();
    throw new InfrabedError('IB_POWER', `${this.bmc.name} should be ${wanted} but is ${state}.`, {
      hint: 'Its BMC takes the request and nothing comes of it: look at the machine and its event log.',
    });
  }

  /** False where the reply was lost; what became of it shows in the state. */
  private async send(what: Control, signal?: AbortSignal): Promise<boolean> {
    try {
      return await this.bmc.sendOnce(rawArgs([0x00, 0x02, control[what]]), signal);
    } catch (error) {
      // D5h: not supported in the present state, e.g. off for a machine that went off meanwhile. The state decides.
      if (isInfrabedError(error, 'IB_BMC') && error.details['completionCode'] === 0xd5) return true;
      throw error;
    }
  }

  /** The state is steadily that before the time is over. What cannot be read meanwhile counts as neither. */
  private async becomes(wanted: PowerState, limitMs: number, signal?: AbortSignal): Promise<boolean> {
    const endMs = this.clock.now() + limitMs;
    for (;;) {
      if ((await this.state(signal)) === wanted) return true;
      if (this.clock.now() >= endMs) return false;
      await this.clock.sleep(this.timing.steadyMs, signal);
    }
  }

  private cannotTell(): InfrabedError {
    return new InfrabedError(
      'IB_BMC_UNREACHABLE',
      `The BMC of ${this.bmc.name} does not say if it is on or off.`,
      {
        hint: 'Nothing was asked of it: a state that is unknown is not off.',
      },
    );
  }
}
