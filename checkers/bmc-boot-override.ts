/** From where the BMC tells its node to boot next: nothing, once, or for good. */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { fail, pass } from './expectation.js';

const devices = ['none', 'pxe', 'disk', 'cdrom', 'bios'] as const;

const parameters = z.strictObject({
  device: z
    .enum(devices)
    .default('none')
    .describe(
      'Device that the BMC of `on` asks for; `none`: no valid override, so the firmware’s own order.',
    ),
  persistent: z.boolean().optional().describe('For every boot (true) or the next one only (false).'),
  efi: z.boolean().optional().describe('Whether it asks for an EFI boot.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  device: z.enum(devices),
  persistent: z.boolean(),
  efi: z.boolean(),
  /** Boot parameter 5 as the BMC gives it, in hex (IPMI 2.0, table 28-14). */
  raw: z.string(),
});
type Evidence = z.output<typeof evidence>;

/** Get System Boot Options, parameter 5, boot flags (IPMI 2.0, section 28.13). */
const getBootFlags = ['raw', '0x00', '0x09', '0x05', '0x00', '0x00'];

async function gather({ cluster, node, signal }: CheckContext): Promise<Evidence> {
  const bmc = cluster.bmc(node);
  const { device, persistent, efi } = await bmc.bootOverride(signal);
  const raw = (await bmc.read(getBootFlags, signal)).trim().replace(/\s+/g, ' ');
  return { device, persistent, efi, raw };
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  const is = described(seen);
  const same =
    seen.device === wanted.device &&
    (wanted.persistent === undefined || wanted.persistent === seen.persistent) &&
    (wanted.efi === undefined || wanted.efi === seen.efi);
  if (same) return pass(`the BMC ${is}`);
  const should = wanted.device === 'none' ? 'no override' : wanted.device;
  return fail(`the BMC ${is}, where ${should}${qualified(wanted)} is expected`);
}

function described({ device, persistent, efi }: Evidence): string {
  if (device === 'none') return 'has no boot override';
  return `tells the node to boot from ${device} ${persistent ? 'every time' : 'the next time'}${efi ? ' by EFI' : ''}`;
}

function qualified({ persistent, efi }: Parameters): string {
  return [
    ...(persistent === undefined ? [] : [persistent ? ' every time' : ' the next time only']),
    ...(efi === undefined ? [] : [efi ? ' by EFI' : ' not by EFI']),
  ].join(',');
}

export const bmcBootOverride = defineChecker<Parameters, Evidence>({
  name: 'bmc-boot-override',
  summary: 'The BMC has a certain boot override, or (as by default) none.',
  with: parameters,
  evidence,
  gather,
  judge,
});
