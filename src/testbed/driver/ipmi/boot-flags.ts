/** Boot parameter 5, the boot flags (IPMI 2.0, section 28.13, table 28-14), to and from a boot override. */
import { InfrabedError } from '../../../core/errors.js';
import type { BootOverride } from '../driver.js';

/** Data 2, bits 5:2. */
const deviceCodes = { none: 0x0, pxe: 0x1, disk: 0x2, cdrom: 0x5, bios: 0x6 } as const;
/** Data 1. */
const valid = 0x80;
const persistent = 0x40;
const efi = 0x20;

export const noOverride: BootOverride = { device: 'none', persistent: false, efi: false };

/**
 * The five bytes of the parameter. All in one request: `options=persistent` and `options=efiboot` given one after the
 * other keep only the last (ipmitool issue 163).
 */
export function bootFlags(wanted: BootOverride): number[] {
  if (wanted.device === 'none') return [0, 0, 0, 0, 0];
  const flags = valid | (wanted.persistent ? persistent : 0) | (wanted.efi ? efi : 0);
  return [flags, deviceCodes[wanted.device] << 2, 0, 0, 0];
}

/**
 * @throws InfrabedError IB_BMC for a device that has no name here.
 */
export function overrideOf(data: readonly number[]): BootOverride {
  const [flags = 0, second = 0] = data;
  const code = (second >> 2) & 0xf;
  // Without the valid bit the BMC holds what it was told once, and the firmware takes no notice of it.
  if ((flags & valid) === 0 || code === deviceCodes.none) return noOverride;
  const device = bootDevices.find((name) => deviceCodes[name] === code);
  if (device === undefined) {
    throw new InfrabedError('IB_BMC', `A boot override to device code ${String(code)} is set.`, {
      hint: 'Clear it with "ipmitool chassis bootdev none".',
      details: { deviceCode: code },
    });
  }
  return { device, persistent: (flags & persistent) !== 0, efi: (flags & efi) !== 0 };
}

const bootDevices = Object.keys(deviceCodes) as (keyof typeof deviceCodes)[];

/** In words, for messages. */
export function overrideText(override: BootOverride): string {
  if (override.device === 'none') return 'none';
  const how = [override.persistent ? 'persistent' : 'next boot only', ...(override.efi ? ['EFI'] : [])];
  return `${override.device} (${how.join(', ')})`;
}
