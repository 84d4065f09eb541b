/** The BMC watchdog, from Get Watchdog Timer (IPMI 2.0, section 27.7). */
import type { WatchdogState } from '../driver.js';
import { bytesOf, rawArgs, word16 } from './hex.js';

export const watchdogArgs: readonly string[] = rawArgs([0x06, 0x25]);

const uses = ['reserved', 'BIOS FRB2', 'BIOS/POST', 'OS load', 'SMS/OS', 'OEM', 'reserved', 'reserved'];
const actions = ['none', 'reset', 'power-off', 'power-cycle'] as const;

/** Counts are in units of 100 ms. Some BMCs (ipmi_sim 2.0.33) end their reply before the present countdown. */
export function watchdogOf(stdout: string): WatchdogState {
  const bytes = bytesOf(stdout, 6, 'Get Watchdog Timer');
  const [use = 0, action = 0] = bytes;
  return {
    running: (use & 0x40) !== 0,
    action: actions[action & 0x7] ?? 'none',
    use: uses[use & 0x7] ?? 'reserved',
    initialSec: word16(bytes, 4) / 10,
    remainingSec: bytes.length < 8 ? null : word16(bytes, 6) / 10,
  };
}
