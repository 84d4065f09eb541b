/**
 * The room an agent runs in: bubblewrap for file system, processes and network, setpriv for an unprivileged
 * host user. Deciding what it sees is a pure function; starting it is in run-agent.ts.
 */
import { existsSync, realpathSync } from 'node:fs';
import { dirname, sep } from 'node:path';

/** Where the agent's folder, the sockets and its own program appear inside. */
export const inside = { home: '/agent', sockets: '/gateway', program: '/program' } as const;

export interface SandboxPlan {
  /** Agent's folder on the controller: holds instruction.md, ssh_config; the only place it can write to and keep. */
  homeDir: string;
  /** Folder with one gateway socket a node. */
  socketDir: string;
  /** passwd, group, nsswitch.conf, hosts made for this sandbox. */
  etcDir: string;
  /** Folder with the copy of the agent's own script, seen read-only at /program; or null. */
  programDir: string | null;
  /** Further read-only paths that the agent's program needs, at their own places. */
  extraPaths: readonly string[];
  /** Never visible, even where they lie below a path that is: state, package, tasks. */
  hiddenPaths: readonly string[];
  /** Host user and group the agent runs as. */
  uid: number;
  network: 'none' | 'host';
  env: Readonly<Record<string, string>>;
}

/** System folders that a program may need to run, present or not depending on the distribution. */
const systemFolders = [
  '/usr',
  '/etc/alternatives',
  '/etc/ssl',
  '/etc/ca-certificates',
  '/etc/terminfo',
] as const;
const mergedFolders = ['bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'] as const;
const systemFiles = ['/etc/ld.so.cache', '/etc/ld.so.conf', '/etc/localtime'] as const;
/** Name resolution, only where the network is the host's. */
const networkFiles = ['/etc/resolv.conf', '/etc/gai.conf', '/etc/services', '/etc/protocols'] as const;

/** bubblewrap's arguments, up to the program. They go in by file descriptor: /proc/1/cmdline shows none of them. */
export function sandboxArguments(plan: SandboxPlan): string[] {
  const args = [
    '--unshare-pid',
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup-try',
    '--die-with-parent',
    '--new-session',
    '--clearenv',
    ...['--hostname', 'workstation'],
  ];
  if (plan.network === 'none') args.push('--unshare-net');
  args.push(...systemBinds());
  if (plan.network === 'host') for (const file of networkFiles) args.push('--ro-bind-try', file, file);
  for (const file of ['passwd', 'group', 'nsswitch.conf', 'hosts']) {
    args.push('--ro-bind', `${plan.etcDir}/${file}`, `/etc/${file}`);
  }
  args.push('--chmod', '0755', '/etc', '--proc', '/proc', '--dev', '/dev');
  args.push('--perms', '1777', '--tmpfs', '/tmp', '--perms', '1777', '--tmpfs', '/var/tmp');
  for (const path of plan.extraPaths) args.push(...ancestors(path), '--ro-bind', path, path);
  for (const path of hiddenBelow(plan)) args.push('--tmpfs', path);
  args.push('--bind', plan.homeDir, inside.home, '--bind', plan.socketDir, inside.sockets);
  if (plan.programDir !== null) args.push('--ro-bind', plan.programDir, inside.program);
  for (const [name, value] of Object.entries(plan.env)) args.push('--setenv', name, value);
  args.push('--chdir', inside.home);
  return args;
}

/** The read-only system that any program needs. */
function systemBinds(): string[] {
  return [
    ...systemFolders.flatMap((folder) => ['--ro-bind-try', folder, folder]),
    ...mergedFolders.flatMap(mergedFolder),
    ...systemFiles.flatMap((file) => ['--ro-bind-try', file, file]),
  ];
}

/**
 * argv that runs a pure program with nothing but the system and `paths` to read: no network, no other process, no
 * place to write. For code that came with a bundle or a task.
 */
export function readOnlyRoom(paths: readonly string[], argv: readonly string[]): string[] {
  return [
    'bwrap',
    ...['--unshare-all', '--die-with-parent', '--new-session', '--clearenv'],
    ...systemBinds(),
    ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp'],
    ...paths.flatMap((path) => [...ancestors(path), '--ro-bind', path, path]),
    '--',
    ...argv,
  ];
}

/** What follows bubblewrap's arguments: give up every privilege, then become the program. */
export function privilegeDrop(uid: number, argv: readonly string[]): string[] {
  const id = String(uid);
  return [
    '/usr/bin/setpriv',
    ...['--reuid', id, '--regid', id, '--clear-groups'],
    ...['--bounding-set=-all', '--inh-caps=-all', '--no-new-privs', '--'],
    ...argv,
  ];
}

/** bubblewrap would make missing parents after the mode of what they lead to; the agent must be able to pass. */
function ancestors(path: string): string[] {
  const parts = path.split(sep).slice(1, -1);
  return parts.flatMap((_, index) => ['--perms', '0755', '--dir', `/${parts.slice(0, index + 1).join('/')}`]);
}

function mergedFolder(name: string): string[] {
  const path = `/${name}`;
  if (!existsSync(path)) return [];
  const real = realpathSync(path);
  return real === path ? ['--ro-bind', path, path] : ['--symlink', real.slice(1), path];
}

/** Hidden paths that would be seen because a visible folder holds them; each is covered by an empty folder. */
function hiddenBelow(plan: SandboxPlan): string[] {
  const visible = [...systemFolders, ...plan.extraPaths];
  return plan.hiddenPaths
    .filter((path) => existsSync(path))
    .map((path) => realpathSync(path))
    .filter((path) => visible.some((folder) => path === folder || isBelow(path, folder)));
}

function isBelow(path: string, folder: string): boolean {
  return path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/**
 * The folder to show for a program given by path, or null where it lies in a system folder anyway. Of a program at
 * the root the file alone: its folder is the whole machine.
 */
export function programFolder(program: string): string | null {
  if (!program.startsWith('/') || !existsSync(program)) return null;
  const real = realpathSync(program);
  if (systemFolders.some((folder) => isBelow(real, folder))) return null;
  return dirname(real) === sep ? real : dirname(real);
}
