/** KVM or emulation: KVM is taken only if a kernel was seen to boot under it on this machine. */
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf, InfrabedError, messageOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';

export interface Accelerator {
  kind: 'kvm' | 'tcg';
  /** One clause for people. */
  why: string;
}

const rememberedSchema = z.strictObject({
  /** The boot of the host for which this holds: a machine may come back with another kernel or on another host. */
  hostBoot: z.string(),
  kind: z.enum(['kvm', 'tcg']),
  why: z.string(),
});

/** A kernel prints its version within a second where KVM works; under none of the broken ones seen it ever did. */
const probeTimeoutMs = 20_000;

/**
 * Boots `kernel` under KVM, once a boot of the host; the answer is remembered in `folder`. A device that opens, or a
 * machine that can be created, proves nothing: nested virtualization often breaks at the first instruction.
 */
export async function accelerator(
  folder: string,
  kernel: string,
  signal?: AbortSignal,
): Promise<Accelerator> {
  if (!existsSync('/dev/kvm')) return { kind: 'tcg', why: 'this machine has no /dev/kvm' };
  const hostBoot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
  const remembered = await readRemembered(folder);
  if (remembered?.hostBoot === hostBoot) return { kind: remembered.kind, why: remembered.why };
  const found = await bootUnderKvm(kernel, signal);
  await mkdir(folder, { recursive: true, mode: 0o711 });
  await writeFile(join(folder, 'accelerator.json'), `${JSON.stringify({ hostBoot, ...found })}\n`);
  return found;
}

/** What was found out before, without trying it: undefined where it was not, or for another boot of the host. */
export async function rememberedAccelerator(folder: string): Promise<Accelerator | undefined> {
  if (!existsSync('/dev/kvm')) return { kind: 'tcg', why: 'this machine has no /dev/kvm' };
  return await readRemembered(folder);
}

async function readRemembered(folder: string): Promise<z.infer<typeof rememberedSchema> | undefined> {
  try {
    return rememberedSchema.parse(JSON.parse(await readFile(join(folder, 'accelerator.json'), 'utf8')));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    // Half a file, or one of another version: it is found out anew.
    if (error instanceof z.ZodError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function bootUnderKvm(kernel: string, signal?: AbortSignal): Promise<Accelerator> {
  const machine = [
    '-accel',
    'kvm',
    '-M',
    'q35',
    '-cpu',
    'host',
    '-m',
    '256',
    '-nodefaults',
    '-display',
    'none',
  ];
  const boot = ['-kernel', kernel, '-append', 'console=ttyS0 panic=-1', '-no-reboot', '-serial', 'stdio'];
  try {
    // Without a root file system it panics, which restarts the machine, which ends QEMU.
    const { stdout, stderr, exitCode } = await run('qemu-system-x86_64', [...machine, ...boot], {
      timeoutMs: probeTimeoutMs,
      allowFailure: true,
      ...(signal ? { signal } : {}),
    });
    if (/Kernel panic/.test(stdout)) return { kind: 'kvm', why: 'a kernel booted under KVM' };
    return {
      kind: 'tcg',
      why: `no kernel boots under KVM (status ${String(exitCode)}: ${stderr.trim().slice(0, 200)})`,
    };
  } catch (error) {
    if (!(error instanceof InfrabedError) || error.code !== 'IB_TIMEOUT') throw error;
    return { kind: 'tcg', why: `no kernel boots under KVM (${messageOf(error)})` };
  }
}
