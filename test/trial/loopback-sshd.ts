// A real OpenSSH sshd on loopback that stands in for a node, with its own keys, port and configuration.
import type { ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, connect as dial, type AddressInfo, type Socket } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import type { Client } from 'ssh2';
import { waitFor } from '../../src/core/clock.js';
import { start } from '../../src/core/exec.js';
import { connect } from '../../src/testbed/ssh/connect.js';
import { generateKeyPair, type KeyPair } from '../../src/testbed/ssh/keys.js';

export interface LoopbackSshd {
  /** Its log is the file `log` in there. */
  dir: string;
  port: number;
  hostKey: string;
  user: string;
  /** The key that sshd accepts. */
  key: KeyPair;
  connect(signal?: AbortSignal): Promise<Client>;
  stop(): Promise<void>;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function socketTo(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = dial({ port, host: '127.0.0.1', noDelay: true }, () => resolve(socket));
    socket.once('error', reject);
  });
}

/** Starts it in the foreground, so that its pid is ours to end. */
export async function startSshd(extra: readonly string[] = []): Promise<LoopbackSshd> {
  const dir = await mkdtemp(join(tmpdir(), 'infrabed-sshd-'));
  // sshd run by root wants its privilege separation folder.
  if (process.getuid?.() === 0 && !existsSync('/run/sshd')) await mkdir('/run/sshd', { mode: 0o755 });
  const [host, key] = [generateKeyPair('loopback host'), generateKeyPair('loopback client')];
  const port = await freePort();
  const file = (name: string): string => join(dir, name);
  await writeFile(file('host'), host.privateKey, { mode: 0o600 });
  await writeFile(file('authorized_keys'), `${key.publicKey}\n`, { mode: 0o600 });
  const config = [
    `Port ${String(port)}`,
    'ListenAddress 127.0.0.1',
    `HostKey ${file('host')}`,
    `PidFile ${file('pid')}`,
    `AuthorizedKeysFile ${file('authorized_keys')}`,
    'StrictModes no',
    'UsePAM no',
    'PasswordAuthentication no',
    'PermitRootLogin prohibit-password',
    'Subsystem sftp internal-sftp',
    'AcceptEnv LANG LC_* IB_*',
    'PrintMotd no',
    // bash reads the user's own ~/.bashrc for commands over SSH, however slow that is, unless it is a shell in a shell.
    'SetEnv SHLVL=2',
    ...extra,
  ];
  await writeFile(file('config'), `${config.join('\n')}\n`);
  const child = start('/usr/sbin/sshd', ['-D', '-E', file('log'), '-f', file('config')], { stdio: 'ignore' });
  await waitFor(
    'sshd',
    () =>
      socketTo(port).then(
        (socket) => socket.destroy(),
        () => undefined,
      ),
    {
      timeoutMs: 5000,
    },
  );
  const user = userInfo().username;
  return {
    dir,
    port,
    hostKey: host.publicKey,
    user,
    key,
    connect: (signal) =>
      connect({
        dial: () => socketTo(port),
        hostKey: host.publicKey,
        username: user,
        privateKey: key.privateKey,
        keepAliveMs: 0,
        ...(signal ? { signal } : {}),
      }),
    async stop() {
      await ended(child);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await exit;
}
