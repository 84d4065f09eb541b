/** What virtual machines need of this host. None of it is needed for containers: so nothing here is more than a warning. */
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, isInfrabedError, messageOf } from '../../../core/errors.js';
import type { HostCheck } from '../container/host-checks.js';
import { imageCacheDir } from '../container/image-cache.js';
import { accelerator, rememberedAccelerator } from './accelerator.js';
import { vmFolder } from './cluster-state.js';
import { hypervisorOf, reachHypervisor } from './hypervisor.js';
import { disksFolder } from './root-disk.js';

const programs = ['virsh', 'libvirtd', 'qemu-system-x86_64', 'qemu-img', 'qemu-io', 'mke2fs', 'debugfs'];
const setUp = 'Only for virtual machines: run "make setup-vm".';

/** A hypervisor of our own is started where there is none, and ends by itself; a kernel is booted once to try KVM. */
export async function vmChecks(stateFolder: string): Promise<HostCheck[]> {
  const missing = programs.filter((program) => !isThere(program));
  if (missing.length > 0) {
    const detail = `not installed: ${missing.join(', ')}`;
    return [{ name: 'virtual machines', state: 'warn', detail, hint: setUp }];
  }
  if (process.getuid?.() !== 0) {
    const hint = 'Run "sudo infrabed doctor" to have the hypervisor asked.';
    return [{ name: 'virtual machines', state: 'warn', detail: 'not probed', hint }];
  }
  return [await hypervisorCheck(stateFolder), await acceleratorCheck(stateFolder)];
}

function isThere(program: string): boolean {
  const folders = (process.env['PATH'] ?? '').split(':').concat('/usr/sbin', '/sbin');
  return folders.some((folder) => folder !== '' && existsSync(join(folder, program)));
}

async function hypervisorCheck(stateFolder: string): Promise<HostCheck> {
  const hypervisor = hypervisorOf(vmFolder(stateFolder));
  const name = 'hypervisor';
  try {
    await reachHypervisor(hypervisor);
    const whose = hypervisor.ownFolder === undefined ? "this machine's libvirt" : 'a libvirtd of our own';
    return { name, state: 'ok', detail: `${whose} answers (${hypervisor.uri})`, hint: '' };
  } catch (error) {
    const hint = (isInfrabedError(error) ? error.hint : undefined) ?? setUp;
    return { name, state: 'warn', detail: messageOf(error), hint };
  }
}

async function acceleratorCheck(stateFolder: string): Promise<HostCheck> {
  const name = 'virtualization';
  const folder = vmFolder(stateFolder);
  const kernel = await anyKernel(disksFolder(imageCacheDir(stateFolder)));
  const found =
    kernel === undefined ? await rememberedAccelerator(folder) : await accelerator(folder, kernel);
  if (found === undefined) {
    const hint = 'Build an image first: "infrabed image build vm", and run a virtual machine once.';
    return { name, state: 'ok', detail: 'KVM is tried with the first virtual machine', hint };
  }
  if (found.kind === 'kvm') return { name, state: 'ok', detail: `KVM: ${found.why}`, hint: '' };
  const hint = 'Virtual machines are emulated and take about a minute to boot, on a busy machine several.';
  return { name, state: 'warn', detail: `emulation (TCG): ${found.why}`, hint };
}

/** Of any image that a machine was made of before. */
async function anyKernel(disks: string): Promise<string | undefined> {
  try {
    const kernels = (await readdir(disks)).map((name) => join(disks, name, 'vmlinuz'));
    return kernels.find((path) => existsSync(path));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
