/** What every test of virtual machines needs of the hypervisor. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TAP } from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { run } from '../../src/core/exec.js';
import { vmFolder } from '../../src/testbed/driver/libvirt/cluster-state.js';
import { hypervisorOf } from '../../src/testbed/driver/libvirt/hypervisor.js';

export function needsHypervisor(t: TAP): void {
  if (existsSync('/usr/bin/virsh') && existsSync('/usr/bin/qemu-system-x86_64')) return;
  t.pass('virtual machines need libvirt and QEMU', { skip: 'run "make setup-vm"' });
  process.exit(0);
}

/** A libvirtd of our own ends by itself a minute after its last machine: a test that removes its folder ends it now. */
export async function endOwnHypervisor(stateDir: string): Promise<void> {
  const { ownFolder } = hypervisorOf(vmFolder(stateDir));
  if (ownFolder === undefined) return;
  const found = await run('cat', [join(ownFolder, 'run', 'libvirtd.pid')], { allowFailure: true });
  const pid = Number(found.stdout);
  if (found.exitCode !== 0 || pid <= 1) return;
  process.kill(pid, 'SIGTERM');
  const isGone = (): true | undefined => (existsSync(`/proc/${String(pid)}/exe`) ? undefined : true);
  await waitFor('the hypervisor to end', isGone, { timeoutMs: 30_000 });
}
