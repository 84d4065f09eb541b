/** A BMC over LAN by ipmitool, and the power of the machine that it belongs to. */
import type { Clock } from '../../../core/clock.js';
import type { Journal } from '../../../core/journal.js';
import { IpmiBmc } from './bmc.js';
import type { Timing } from './ipmitool.js';
import { BmcLink } from './link.js';
import { IpmiPower, usualPowerTiming, type PowerTiming } from './power.js';

export type { IpmiBmc };
export { openSol } from './sol.js';

export interface BmcOptions {
  /** Name of the node. */
  name: string;
  /** As seen from where `reach` leads. */
  address: string;
  /** UDP. Default 623. */
  port?: number;
  /** At most 16 bytes. */
  username: string;
  /** First line: the password, at most 20 bytes; mode 0600. */
  passwordFile: string;
  /** Makes an argv one that runs where the BMC can be reached, with this machine's files. */
  reach: (argv: readonly string[]) => readonly string[];
  journal: Journal;
  clock?: Clock;
  /** Where the cipher suite that the BMC speaks is remembered. */
  cacheFile?: string;
  /** Between two sessions. Default 50 ms. */
  minIntervalMs?: number;
  /** How long a busy BMC is waited for. Default 60 s. */
  patienceMs?: number;
  timing?: Timing;
  /** System GUID in 32 hex digits; a BMC with another one is refused before anything else is asked of it. */
  expectedGuid?: string;
}

export function createBmc(options: BmcOptions): IpmiBmc {
  const { journal, port = 623, ...link } = options;
  return new IpmiBmc(new BmcLink({ ...link, port }), journal);
}

export function createIpmiPower(bmc: IpmiBmc, timing: Partial<PowerTiming> = {}): IpmiPower {
  return new IpmiPower(bmc, { ...usualPowerTiming, ...timing });
}
