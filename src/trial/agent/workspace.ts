/** The agent's folder before it starts: instruction, ssh configuration, its own key, the deadline. */
import { chmod, chown, cp, mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { inside } from './sandbox.js';

export interface WorkspaceContents {
  /** Folder on the controller that holds home/, etc/ and program/. */
  dir: string;
  uid: number;
  instruction: string;
  nodes: readonly string[];
  /** The trial's agent key, OpenSSH format. */
  privateKey: string;
  publicKey: string;
  /** `ssh-ed25519 AAAA...` of the gateway. */
  gatewayHostKey: string;
  deadlineMs: number;
  /** File or folder to show at /program. */
  program: string | null;
}

export interface Workspace {
  homeDir: string;
  etcDir: string;
  programDir: string | null;
}

/** Writes the folder anew. Keys are mode 0600 and belong to the agent's user. */
export async function makeWorkspace(contents: WorkspaceContents): Promise<Workspace> {
  const { dir, uid } = contents;
  await rm(dir, { recursive: true, force: true });
  const homeDir = join(dir, 'home');
  const etcDir = join(dir, 'etc');
  await mkdir(join(homeDir, '.ssh'), { recursive: true });
  await mkdir(etcDir, { recursive: true });
  const config = sshConfig(contents.nodes);
  const knownHosts = contents.nodes.map((node) => `${node} ${contents.gatewayHostKey}\n`).join('');
  await writeFile(join(homeDir, 'instruction.md'), contents.instruction);
  await writeFile(join(homeDir, 'ssh_config'), config);
  await writeFile(join(homeDir, 'deadline'), `${new Date(contents.deadlineMs).toISOString()}\n`);
  await writeFile(join(homeDir, '.ssh', 'config'), config);
  await writeFile(join(homeDir, '.ssh', 'known_hosts'), knownHosts);
  await writeFile(join(homeDir, '.ssh', 'id_ed25519'), contents.privateKey, { mode: 0o600 });
  await writeFile(join(homeDir, '.ssh', 'id_ed25519.pub'), `${contents.publicKey}\n`);
  await writeEtc(etcDir, uid);
  await giveTo(homeDir, uid);
  await chmod(join(homeDir, '.ssh'), 0o700);
  return { homeDir, etcDir, programDir: await copyProgram(dir, contents.program) };
}

/** The client configuration whose only route to the nodes is the gateway. */
export function sshConfig(nodes: readonly string[]): string {
  return [
    `Host ${nodes.join(' ')}`,
    '  User root',
    `  IdentityFile ${inside.home}/.ssh/id_ed25519`,
    '  IdentitiesOnly yes',
    `  UserKnownHostsFile ${inside.home}/.ssh/known_hosts`,
    '  StrictHostKeyChecking yes',
    '  BatchMode yes',
    '  ServerAliveInterval 15',
    `  ProxyCommand socat - UNIX-CONNECT:${inside.sockets}/%h.sock`,
    '',
  ].join('\n');
}

/** Where the agent's shell looks for programs. */
export const agentPath = '/usr/local/bin:/usr/bin:/bin';

/** Environment of the agent: where things are, and until when. */
export function agentEnvironment(nodes: readonly string[], deadlineMs: number): Record<string, string> {
  return {
    HOME: inside.home,
    USER: 'agent',
    LOGNAME: 'agent',
    SHELL: '/bin/bash',
    LANG: 'C.UTF-8',
    TERM: 'xterm-256color',
    PATH: agentPath,
    INFRABED_NODES: nodes.join(' '),
    INFRABED_SSH_CONFIG: `${inside.home}/ssh_config`,
    INFRABED_INSTRUCTION: `${inside.home}/instruction.md`,
    INFRABED_DEADLINE: new Date(deadlineMs).toISOString(),
  };
}

async function writeEtc(dir: string, uid: number): Promise<void> {
  const id = String(uid);
  await writeFile(
    join(dir, 'passwd'),
    `root:x:0:0:root:/root:/usr/sbin/nologin\nagent:x:${id}:${id}:agent:${inside.home}:/bin/bash\n`,
  );
  await writeFile(join(dir, 'group'), `root:x:0:\nagent:x:${id}:\n`);
  await writeFile(join(dir, 'nsswitch.conf'), 'passwd: files\ngroup: files\nhosts: files dns\n');
  await writeFile(join(dir, 'hosts'), '127.0.0.1 localhost workstation\n::1 localhost\n');
}

async function copyProgram(dir: string, program: string | null): Promise<string | null> {
  if (program === null) return null;
  const target = join(dir, 'program');
  const source = await stat(program);
  await cp(program, source.isDirectory() ? target : join(target, basename(program)), { recursive: true });
  await chmod(target, 0o755);
  return target;
}

/** Hands a fresh tree (no links in it yet) to the agent's user. */
async function giveTo(path: string, uid: number): Promise<void> {
  await chown(path, uid, uid);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const full = join(path, entry.name);
    if (entry.isDirectory()) await giveTo(full, uid);
    else await chown(full, uid, uid);
  }
}
