/** A virtual BMC for tests: bmcd with a real ipmi_sim on loopback, whose power program is a script with a file for a switch. */
import { createSocket } from 'node:dgram';
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import type { ChildProcess } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run, start, type RunResult } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import {
  bmcFiles,
  bmcModule,
  generatePasswords,
  siteAccount,
  supervisorConfig,
  waitForBmc,
  type BmcPlan,
  type MachineLines,
} from '../../src/testbed/driver/bmc/index.js';

const patienceMs = 90_000;

export class VirtualBmc {
  private daemon: ChildProcess | undefined;

  private constructor(
    readonly root: string,
    readonly plan: BmcPlan,
  ) {}

  /** `hasMachine`: with the lines to a virtual machine, `root/serial`, `root/kcs` and `root/events`. */
  static async make(options: { hasMachine?: boolean } = {}): Promise<VirtualBmc> {
    const root = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-bmc-')));
    const folder = join(root, 'node0');
    const plan = {
      name: 'node0',
      folder,
      address: '127.0.0.1',
      netmask: '255.0.0.0',
      port: await freePort(),
      ...(options.hasMachine === true ? { lines: linesIn(root) } : {}),
    };
    const bmc = new VirtualBmc(root, plan);
    mkdirSync(join(folder, 'state'), { recursive: true, mode: 0o700 });
    const module = await bmcModule(join(root, 'module'));
    for (const { name, content } of bmcFiles(plan, module, generatePasswords()))
      writeFileSync(join(folder, name), content, { mode: 0o600 });
    bmc.power('on');
    const program = `echo "$1" >>${root}/acts; case $1 in state) cat ${root}/power ;; on | reset | restarted) echo on >${root}/power ;; *) echo off >${root}/power ;; esac`;
    const power = { argv: ['/bin/sh', '-c', program, 'power'] };
    writeFileSync(join(root, 'bmc.json'), JSON.stringify(supervisorConfig([{ plan, power }], module, null)));
    return bmc;
  }

  /** The switch itself. */
  power(state: 'on' | 'off' | 'broken'): void {
    writeFileSync(join(this.root, 'power'), `${state}\n`);
  }

  begin(): void {
    const script = asset('src/testbed/driver/bmc/bmcd.py');
    // A test that is cut off runs no teardown; it then ends with its process.
    const argv = ['--pdeathsig', 'TERM', '/usr/bin/python3', '-I', '-S', script, join(this.root, 'bmc.json')];
    this.daemon = start('setpriv', argv, { stdio: ['ignore', 'ignore', 'inherit'] });
  }

  ready(): Promise<{ pid: number | null; starts: number }> {
    return waitForBmc(this.plan.folder, { timeoutMs: patienceMs });
  }

  async end(): Promise<void> {
    const { daemon } = this;
    this.daemon = undefined;
    if (daemon === undefined || daemon.exitCode !== null) return;
    const ended = new Promise((resolve) => daemon.once('exit', resolve));
    daemon.kill('SIGTERM');
    await ended;
  }

  async remove(): Promise<void> {
    await this.end();
    rmSync(this.root, { recursive: true, force: true });
  }

  read(name: string): string {
    return readFileSync(join(this.plan.folder, name), 'utf8');
  }

  /** Acts that the power program was asked for. */
  acts(): string[] {
    const text = readFileSync(join(this.root, 'acts'), 'utf8');
    return text.split('\n').filter((word) => word !== '' && word !== 'state');
  }

  /** ipmitool with the administrator's account, or with other options. */
  tool(args: readonly string[], options: readonly string[] = this.login()): Promise<RunResult> {
    const where = ['-H', this.plan.address, '-p', String(this.plan.port), '-N', '5', '-R', '2'];
    return run('ipmitool', [...where, ...options, ...args], { allowFailure: true, timeoutMs: patienceMs });
  }

  login(suite = '3'): string[] {
    return ['-I', 'lanplus', '-C', suite, '-U', siteAccount, '-f', join(this.plan.folder, 'admin-password')];
  }

  /** The bytes of the reply, or the completion code as `0xNN`. */
  async raw(text: string): Promise<string> {
    const { stdout, stderr } = await this.tool(['raw', ...text.split(' ')]);
    return stdout.trim().replace(/\s+/g, ' ') || (/rsp=(0x[0-9a-f]+)/.exec(stderr)?.[1] ?? stderr);
  }
}

function linesIn(root: string): MachineLines {
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  const owned = (name: string): MachineLines['kcs'] => ({ path: join(root, name), uid, gid });
  return { serial: join(root, 'serial'), kcs: owned('kcs'), events: owned('events') };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const socket = createSocket('udp4');
    socket.once('error', reject);
    socket.bind(0, '127.0.0.1', () => {
      const { port } = socket.address();
      socket.close(() => resolve(port));
    });
  });
}
