/** Looks at this machine for everything that container nodes need, and says what to do where something is missing. */
import { readFile, statfs } from 'node:fs/promises';
import { availableParallelism, release, totalmem } from 'node:os';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { errnoOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import { bmcHeader } from '../bmc/index.js';
import { cgroupLayout, supervisorMode } from './host.js';
import { imageCacheDir } from './image-cache.js';
import { inotifyAdvice, inotifyPerNode } from './inotify.js';
import { probeMapping } from './uid-mapping.js';

export interface HostCheck {
  name: string;
  state: 'ok' | 'warn' | 'fail';
  detail: string;
  /** What to do; empty where all is well. */
  hint: string;
}

const ok = (name: string, detail: string): HostCheck => ({ name, state: 'ok', detail, hint: '' });
const warn = (name: string, detail: string, hint: string): HostCheck => ({
  name,
  state: 'warn',
  detail,
  hint,
});
const fail = (name: string, detail: string, hint: string): HostCheck => ({
  name,
  state: 'fail',
  detail,
  hint,
});

/** All checks, in the order in which they are worth reading. Nothing is changed on the machine. */
export async function hostChecks(stateFolder: string): Promise<HostCheck[]> {
  const isRoot = process.getuid?.() === 0;
  return [
    rootCheck(isRoot),
    kernelCheck(release()),
    await overlayCheck(),
    ...namespaceChecks(),
    cgroupCheck(),
    supervisorCheck(),
    isRoot
      ? await mappingCheck()
      : warn('uid mapping', 'not probed', 'Run "sudo infrabed doctor" to have it tried.'),
    ...(await Promise.all(tools.map(toolCheck))),
    bmcHeadersCheck(),
    inotifyCheck(await readNumber('/proc/sys/fs/inotify/max_user_instances')),
    await diskCheck(stateFolder),
    await diskCheck(imageCacheDir(stateFolder)),
    sizeCheck(availableParallelism(), totalmem()),
  ];
}

function rootCheck(isRoot: boolean): HostCheck {
  return isRoot
    ? ok('root', 'running as root')
    : warn(
        'root',
        'not running as root',
        'Nodes need root: "infrabed run" asks sudo by itself, other commands need it in front.',
      );
}

/** cgroup.kill came with 5.14, idmapped lowers of an overlay with 5.19. */
export function kernelCheck(version: string): HostCheck {
  const [major = 0, minor = 0] = version.split('.').map((part) => Number.parseInt(part, 10));
  const number = major * 1000 + minor;
  if (number >= 5019) return ok('kernel', version);
  if (number >= 5014) {
    return warn(
      'kernel',
      `${version} cannot shift owners by mounts`,
      'It works with copied images; Linux 5.19 or newer saves the copies.',
    );
  }
  return fail(
    'kernel',
    `${version} is too old`,
    'Linux 5.14 or newer is needed (cgroup.kill), 5.19 or newer is better.',
  );
}

async function overlayCheck(): Promise<HostCheck> {
  const filesystems = await readFile('/proc/filesystems', 'utf8');
  if (/\toverlay$/m.test(filesystems)) return ok('overlay file system', 'the kernel has it');
  const module = await run('modinfo', ['overlay'], { allowFailure: true }).catch(() => ({ exitCode: 1 }));
  return module.exitCode === 0
    ? ok('overlay file system', 'the kernel loads it when it is needed')
    : fail(
        'overlay file system',
        'the kernel does not have it',
        'Load the module "overlay" or use a kernel that has it.',
      );
}

function namespaceChecks(): HostCheck[] {
  const wanted: [string, string][] = [
    ['user', 'nodes run as ordinary users of the host'],
    ['time', 'the uptime of a node starts at its boot'],
    ['net', 'each cluster has a network of its own'],
    ['cgroup', 'each node has control groups of its own'],
  ];
  return wanted.map(([kind, why]) =>
    existsSync(`/proc/self/ns/${kind}`)
      ? ok(`${kind} namespaces`, why)
      : fail(
          `${kind} namespaces`,
          'the kernel does not have them',
          'Use a kernel of a current distribution.',
        ),
  );
}

function cgroupCheck(): HostCheck {
  const { unified, legacySystemd } = cgroupLayout();
  const hint =
    'Mount cgroup2 on /sys/fs/cgroup (or below it), or boot with systemd.unified_cgroup_hierarchy=1.';
  if (unified === undefined) return fail('control groups', 'no cgroup2 file system', hint);
  const kind = legacySystemd === undefined ? 'version 2' : 'hybrid (version 2 beside version 1)';
  return ok('control groups', `${kind}, at ${unified}`);
}

function supervisorCheck(): HostCheck {
  return supervisorMode() === 'host-systemd'
    ? ok('supervisor', "nodes are transient units of the host's systemd (infrabed.slice)")
    : ok('supervisor', 'nodes are kept by a supervisor of our own: the host has no systemd');
}

async function mappingCheck(): Promise<HostCheck> {
  try {
    const { mapping, why } = await probeMapping();
    if (mapping === 'idmapped')
      return ok('uid mapping', 'idmapped image layers, a range of uids for each cluster');
    const hint =
      'It works, but all clusters share one range of uids and each image layer is stored twice. Linux 5.19 or newer on ext4, xfs or btrfs does better.';
    return warn('uid mapping', `copied image layers (${why})`, hint);
  } catch (error) {
    return fail('uid mapping', String(error), 'Run "make setup".');
  }
}

const tools: readonly { program: string; package: string; why: string }[] = [
  { program: 'systemd-nspawn', package: 'systemd-container', why: 'boots nodes' },
  { program: 'mmdebstrap', package: 'mmdebstrap', why: 'builds images' },
  { program: 'unshare', package: 'util-linux', why: 'makes namespaces' },
  { program: 'nsenter', package: 'util-linux', why: 'enters namespaces' },
  { program: 'setpriv', package: 'util-linux', why: 'drops privileges' },
  { program: 'flock', package: 'util-linux', why: 'holds locks' },
  { program: 'ip', package: 'iproute2', why: 'makes networks' },
  { program: 'sysctl', package: 'procps', why: 'sets up networks' },
  { program: 'socat', package: 'socat', why: 'reaches nodes' },
  { program: 'python3', package: 'python3', why: 'mounts node file systems' },
  { program: 'ipmi_sim', package: 'openipmi', why: 'is the BMC of every node' },
  { program: 'ipmitool', package: 'ipmitool', why: 'speaks to BMCs' },
  { program: 'cc', package: 'gcc', why: 'compiles what ipmi_sim loads' },
  { program: 'bwrap', package: 'bubblewrap', why: 'holds agents in a sandbox' },
  { program: 'ansible-runner', package: 'python3-ansible-runner', why: 'provisions layers' },
  { program: 'ansible-playbook', package: 'ansible', why: 'provisions layers' },
  { program: 'ssh', package: 'openssh-client', why: 'is what agents reach nodes with' },
];

function bmcHeadersCheck(): HostCheck {
  const name = 'BMC headers';
  return existsSync(bmcHeader)
    ? ok(name, bmcHeader)
    : fail(name, `${bmcHeader} is missing`, 'Run "make setup", or install the package libopenipmi-dev.');
}

const searchPath = (): string[] => (process.env['PATH'] ?? '').split(':').concat('/usr/sbin', '/sbin');

async function toolCheck(tool: { program: string; package: string; why: string }): Promise<HostCheck> {
  // Python has to be the distribution's own: one of a version manager is slow to start and misses modules.
  const folders = tool.program === 'python3' ? ['/usr/bin'] : searchPath();
  const folder = folders.find((one) => one !== '' && existsSync(join(one, tool.program)));
  return Promise.resolve(
    folder === undefined
      ? fail(
          tool.program,
          `not installed; it ${tool.why}`,
          `Run "make setup", or install the package ${tool.package}.`,
        )
      : ok(tool.program, `${join(folder, tool.program)} ${tool.why}`),
  );
}

export function inotifyCheck(instances: number | undefined): HostCheck {
  const name = 'inotify instances';
  if (instances === undefined) return warn(name, 'the limit cannot be read', '');
  const nodes = Math.floor(instances / inotifyPerNode);
  const detail = `${String(instances)} a user, enough for about ${String(nodes)} nodes`;
  if (nodes > 24) return ok(name, detail);
  return warn(
    name,
    detail,
    `More nodes raise it by themselves until the next boot; to keep it: ${inotifyAdvice}`,
  );
}

async function diskCheck(path: string): Promise<HostCheck> {
  let existing = path;
  while (!existsSync(existing)) existing = join(existing, '..');
  const { bavail, bsize } = await statfs(existing);
  const freeBytes = bavail * bsize;
  const detail = `${(freeBytes / 1e9).toFixed(1)} GB free for ${path}`;
  const hint =
    'An image takes 0.3 to 0.7 GB, a node 10 to 100 MB, a bundle up to 1 GB. Free some, or set INFRABED_STATE_DIR.';
  if (freeBytes < 1e9) return fail('disk', detail, hint);
  return freeBytes < 5e9 ? warn('disk', detail, hint) : ok('disk', detail);
}

export function sizeCheck(processors: number, memoryBytes: number): HostCheck {
  const detail = `${String(processors)} processors, ${(memoryBytes / 2 ** 30).toFixed(0)} GiB of memory`;
  if (memoryBytes >= 2 * 2 ** 30) return ok('machine', detail);
  return warn('machine', detail, 'Three nodes and a trial want 2 GiB.');
}

async function readNumber(path: string): Promise<number | undefined> {
  try {
    return Number(await readFile(path, 'utf8'));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
