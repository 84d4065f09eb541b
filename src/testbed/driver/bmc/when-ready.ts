/** A BMC whose every use waits until its supervisor has it up: after creation, and when it is started again. */
import type { Clock } from '../../../core/clock.js';
import { isInfrabedError } from '../../../core/errors.js';
import type { Bmc } from '../driver.js';
import { waitForBmc } from './status.js';

/** A start takes a fraction of a second; many at once on a busy machine take longer. */
const startTimeoutMs = 60_000;

/** @throws InfrabedError IB_BMC_UNREACHABLE from each use when it does not come up; its power state is then unknown. */
export function whenReady(bmc: Bmc, folder: string, clock?: Clock): Bmc {
  const ready = async (signal?: AbortSignal): Promise<void> => {
    const options = { timeoutMs: startTimeoutMs, ...(clock ? { clock } : {}), ...(signal ? { signal } : {}) };
    await waitForBmc(folder, options);
  };
  const after =
    <Result>(use: (signal?: AbortSignal) => Promise<Result>) =>
    async (signal?: AbortSignal): Promise<Result> => {
      await ready(signal);
      return await use(signal);
    };
  return {
    address: bmc.address,
    async powerState(signal) {
      try {
        await ready(signal);
      } catch (error) {
        if (isInfrabedError(error, 'IB_BMC_UNREACHABLE')) return 'unknown';
        throw error;
      }
      return await bmc.powerState(signal);
    },
    bootOverride: after((signal) => bmc.bootOverride(signal)),
    setBootOverride: async (wanted, signal) => {
      await ready(signal);
      await bmc.setBootOverride(wanted, signal);
    },
    users: after((signal) => bmc.users(signal)),
    selInfo: after((signal) => bmc.selInfo(signal)),
    selEntries: after((signal) => bmc.selEntries(signal)),
    watchdog: after((signal) => bmc.watchdog(signal)),
    read: async (args, signal) => {
      await ready(signal);
      return await bmc.read(args, signal);
    },
    act: async (args, signal) => {
      await ready(signal);
      return await bmc.act(args, signal);
    },
  };
}
