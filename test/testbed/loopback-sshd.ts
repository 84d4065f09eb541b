/** A real sshd on loopback for tests: own configuration, host key and port, ended by its process id. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, connect as tcpConnect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import type { ChildProcess } from 'node:child_process';
import type { Client } from 'ssh2';
import { start } from '../../src/core/exec.js';
import { connect } from '../../src/testbed/ssh/connect.js';
import { generateKeyPair } from '../../src/testbed/ssh/keys.js';
import type { KeyPair } from '../../src/testbed/ssh/keys.js';

export class LoopbackSshd {
  /** Its log is the file `log` in there. */
  readonly folder = mkdtempSync(join(tmpdir(), 'infrabed-sshd-'));
  readonly host: KeyPair = generateKeyPair('host');
  readonly user: KeyPair = generateKeyPair('controller');
  readonly username = userInfo().username;
  port = 0;
  private daemon: ChildProcess | undefined;
  /** Streams handed out and still open, so that a test can cut them. */
  readonly streams = new Set<Socket>();
  dials = 0;

  constructor(
    private readonly settings: readonly string[] = [],
    private readonly authorizedKeys: readonly string[] = [],
  ) {
    // Debian's sshd wants its privilege separation folder, which only its unit file makes.
    if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 });
  }

  async start(): Promise<void> {
    if (this.port === 0) this.port = await freePort();
    const file = (name: string): string => join(this.folder, name);
    writeFileSync(file('host'), this.host.privateKey, { mode: 0o600 });
    writeFileSync(file('authorized'), `${[this.user.publicKey, ...this.authorizedKeys].join('\n')}\n`);
    const config = [
      `Port ${String(this.port)}`,
      'ListenAddress 127.0.0.1',
      `HostKey ${file('host')}`,
      `AuthorizedKeysFile ${file('authorized')}`,
      `PidFile ${file('pid')}`,
      'StrictModes no',
      'UsePAM no',
      'PermitRootLogin prohibit-password',
      'PasswordAuthentication no',
      'PrintMotd no',
      'AcceptEnv LANG LC_* IB_*',
      'Subsystem sftp internal-sftp',
      // bash reads the user's own ~/.bashrc for commands over SSH, however slow that is, unless it is a shell in a shell.
      'SetEnv SHLVL=2',
      ...this.settings,
    ];
    writeFileSync(file('config'), `${config.join('\n')}\n`);
    // A test that is cut off runs no teardown; the daemon then ends with its process.
    const argv = ['--pdeathsig', 'TERM', '/usr/sbin/sshd', '-D', '-E', file('log'), '-f', file('config')];
    this.daemon = start('setpriv', argv, { stdio: 'ignore' });
    await this.listening();
  }

  /** Ends the daemon that listens; sessions live on unless their streams are cut. */
  async stop(): Promise<void> {
    const daemon = this.daemon;
    this.daemon = undefined;
    if (!daemon || daemon.exitCode !== null) return;
    const ended = new Promise((resolve) => daemon.once('exit', resolve));
    daemon.kill('SIGTERM');
    await ended;
  }

  async remove(): Promise<void> {
    this.cut();
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  readonly dial = (): Promise<Socket> => {
    this.dials++;
    return new Promise((resolve, reject) => {
      const stream = tcpConnect({ port: this.port, host: '127.0.0.1', noDelay: true });
      stream.once('error', reject);
      stream.once('connect', () => {
        stream.off('error', reject);
        this.streams.add(stream);
        stream.once('close', () => this.streams.delete(stream));
        resolve(stream);
      });
    });
  };

  /** A connection of the controller's kind. */
  connect(signal?: AbortSignal): Promise<Client> {
    return connect({
      dial: this.dial,
      hostKey: this.host.publicKey,
      username: this.username,
      privateKey: this.user.privateKey,
      keepAliveMs: 0,
      ...(signal ? { signal } : {}),
    });
  }

  /** Cuts every connection, as a power cut does. */
  cut(): void {
    for (const stream of this.streams) stream.destroy();
  }

  private async listening(): Promise<void> {
    for (let attempt = 0; attempt < 100; attempt++) {
      try {
        (await this.dial()).destroy();
        this.dials = 0;
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 30));
      }
    }
    throw new Error('sshd did not start to listen');
  }
}

export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
