/** The hypervisor: which libvirt is talked to, and how. Where the machine runs none, one of our own is started. */
import { existsSync } from 'node:fs';
import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock, waitFor } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { lastLines, run, start } from '../../../core/exec.js';
import { withLock } from '../../../core/lock.js';
import { asset } from '../../../core/paths.js';
import { fileTail } from '../container/node.js';

export interface Hypervisor {
  /** libvirt's connection URI. */
  uri: string;
  /** Folder of a libvirtd that is ours to start; absent: whoever has the machine runs it. */
  ownFolder?: string;
}

const startTimeoutMs = 30_000;
const askTimeoutMs = 60_000;

/**
 * INFRABED_LIBVIRT_URI; else the machine's own libvirt where systemd runs it; else one of ours in the state folder.
 */
export function hypervisorOf(vmFolder: string, env: NodeJS.ProcessEnv = process.env): Hypervisor {
  const wanted = env['INFRABED_LIBVIRT_URI'];
  if (wanted) return { uri: wanted };
  if (existsSync('/run/systemd/system')) return { uri: 'qemu:///system' };
  const ownFolder = join(vmFolder, 'libvirtd');
  return { uri: `qemu+unix:///system?socket=${socketOf(ownFolder)}`, ownFolder };
}

const socketOf = (ownFolder: string): string => join(ownFolder, 'run', 'libvirt-sock');

/** Where libvirt writes the process of a machine that is on. */
export function pidFileOf({ ownFolder }: Hypervisor, domain: string): string {
  const run = ownFolder === undefined ? '/run/libvirt' : join(ownFolder, 'run');
  return join(run, 'qemu', `${domain}.pid`);
}

/**
 * True for a hypervisor on this machine. Networks and disks of a cluster are made beside the controller, so that
 * another machine's hypervisor could not reach them.
 */
export function isLocal({ uri }: Hypervisor): boolean {
  return /^qemu(\+unix)?:\/\/\/system(\?|$)/.test(uri);
}

/**
 * Ends when the hypervisor answers; ours is started where it does not run.
 * @throws InfrabedError IB_PROGRAM_MISSING, IB_HOST_UNFIT with what libvirt says.
 */
export async function reachHypervisor(hypervisor: Hypervisor, signal?: AbortSignal): Promise<void> {
  if (!isLocal(hypervisor)) {
    throw new InfrabedError('IB_HOST_UNFIT', `The hypervisor ${hypervisor.uri} is not on this machine.`, {
      hint: 'Run infrabed on the hypervisor, or set INFRABED_LIBVIRT_URI to a URI like qemu:///system.',
    });
  }
  const { ownFolder } = hypervisor;
  if (ownFolder === undefined) {
    await assertAnswers(hypervisor, signal);
    return;
  }
  await withLock(join(ownFolder, '.lock'), async () => startOwn(hypervisor, ownFolder, signal), {
    ...(signal ? { signal } : {}),
  });
}

async function startOwn(hypervisor: Hypervisor, folder: string, signal?: AbortSignal): Promise<void> {
  if (await answers(hypervisor)) return;
  if (socketOf(folder).length > 107) {
    throw new InfrabedError(
      'IB_STATE_DIR',
      `The path of the hypervisor's socket is too long: ${socketOf(folder)}`,
      {
        hint: 'Set INFRABED_STATE_DIR to a folder with a shorter path.',
      },
    );
  }
  await configure(folder);
  const output = await open(join(folder, 'start.log'), 'a', 0o600);
  const script = asset('src/testbed/driver/libvirt/own-libvirtd.sh');
  // As vm-bmc-power.py does it. Not our child for long: it outlives this command, as the machines do.
  const argv = ['--fork', 'unshare', '--mount', '--propagation=private', script, folder];
  const child = start('setsid', argv, { stdio: ['ignore', output.fd, output.fd] });
  child.once('error', () => undefined);
  await output.close();
  try {
    await waitFor('the hypervisor to answer', async () => ((await answers(hypervisor)) ? true : undefined), {
      timeoutMs: startTimeoutMs,
      intervalMs: 200,
      clock: systemClock,
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (!isInfrabedError(error, 'IB_TIMEOUT')) throw error;
    const said = lastLines(await fileTail(join(folder, 'start.log'), 2000), 2);
    throw unreachable(hypervisor, said, error);
  }
}

/** What works without a systemd: no control groups, no namespaces of QEMU's, console logs written by QEMU itself. */
async function configure(folder: string): Promise<void> {
  await mkdir(join(folder, 'etc'), { recursive: true, mode: 0o700 });
  for (const name of ['run', 'lib', 'log', 'cache']) await mkdir(join(folder, name), { recursive: true });
  const write = (name: string, lines: readonly string[]): Promise<void> =>
    writeFile(join(folder, 'etc', name), `${lines.join('\n')}\n`, { mode: 0o600 });
  await write('libvirtd.conf', [
    'unix_sock_group = "root"',
    'unix_sock_rw_perms = "0700"',
    'unix_sock_ro_perms = "0700"',
    'auth_unix_ro = "none"',
    'auth_unix_rw = "none"',
    'log_outputs = "3:file:/var/log/libvirt/libvirtd.log"',
  ]);
  await write('qemu.conf', [
    'security_driver = "none"',
    'user = "root"',
    'group = "root"',
    'dynamic_ownership = 0',
    'remember_owner = 0',
    'cgroup_controllers = [ ]',
    'namespaces = [ ]',
    'stdio_handler = "file"',
  ]);
}

async function answers(hypervisor: Hypervisor): Promise<boolean> {
  try {
    await assertAnswers(hypervisor);
    return true;
  } catch (error) {
    if (isInfrabedError(error, 'IB_HOST_UNFIT')) return false;
    throw error;
  }
}

async function assertAnswers(hypervisor: Hypervisor, signal?: AbortSignal): Promise<void> {
  try {
    await virsh(hypervisor, ['version'], signal);
  } catch (error) {
    if (isInfrabedError(error, 'IB_CANCELLED') || isInfrabedError(error, 'IB_PROGRAM_MISSING')) throw error;
    throw unreachable(hypervisor, messageOf(error), error);
  }
}

function unreachable(hypervisor: Hypervisor, why: string, cause: unknown): InfrabedError {
  return new InfrabedError('IB_HOST_UNFIT', `The hypervisor ${hypervisor.uri} does not answer: ${why}`, {
    hint:
      hypervisor.ownFolder === undefined
        ? 'Start libvirtd, or set INFRABED_LIBVIRT_URI; "infrabed doctor" says more.'
        : `See ${join(hypervisor.ownFolder, 'start.log')} and log/libvirtd.log beside it.`,
    cause,
  });
}

/** As whom the hypervisor runs machines. */
export async function machineOwner(
  hypervisor: Hypervisor,
  signal?: AbortSignal,
): Promise<{ uid: number; gid: number }> {
  return ownerIn(await virsh(hypervisor, ['capabilities'], signal));
}

/** By the label that libvirt's driver of file owners has for them (libvirt, "Driver capabilities XML format"). */
export function ownerIn(capabilities: string): { uid: number; gid: number } {
  const [, uid, gid] = /<baselabel type='[a-z]+'>\+(\d+):\+(\d+)</.exec(capabilities) ?? [];
  // Without one they are run as libvirt itself is.
  return { uid: Number(uid ?? 0), gid: Number(gid ?? 0) };
}

/** One question to libvirt: nothing is changed by this (acts are made by vm-act.py, under the fence). */
export async function virsh(
  hypervisor: Hypervisor,
  args: readonly string[],
  signal?: AbortSignal,
): Promise<string> {
  const { stdout } = await run('virsh', ['--quiet', '--connect', hypervisor.uri, ...args], {
    timeoutMs: askTimeoutMs,
    env: { LC_ALL: 'C' },
    ...(signal ? { signal } : {}),
  });
  return stdout;
}
