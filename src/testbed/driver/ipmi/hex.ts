/** Bytes as ipmitool's `raw` takes and prints them. */
import { InfrabedError } from '../../../core/errors.js';

/** `raw` with these bytes: network function, command, data. */
export function rawArgs(bytes: readonly number[]): string[] {
  return ['raw', ...bytes.map((byte) => `0x${byte.toString(16).padStart(2, '0')}`)];
}

/**
 * The bytes of a reply, completion code left out.
 * @throws InfrabedError IB_BMC when they are fewer than `least` or no bytes at all.
 */
export function bytesOf(stdout: string, least: number, what: string): number[] {
  const words = stdout.split(/\s+/).filter((word) => word !== '');
  if (words.length < least || words.some((word) => !/^[0-9a-f]{2}$/.test(word))) {
    throw new InfrabedError('IB_BMC', `The reply to "${what}" is not one: "${stdout.trim().slice(0, 200)}".`);
  }
  return words.map((word) => Number.parseInt(word, 16));
}

/** Two bytes, least significant first, from `at`. */
export function word16(bytes: readonly number[], at: number): number {
  return (bytes[at] ?? 0) | ((bytes[at + 1] ?? 0) << 8);
}
