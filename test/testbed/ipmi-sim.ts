/** A real ipmi_sim on loopback for a test, whose machine is a file: `on`, `off`, and a list of what was asked of it. */
import { type ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '../../src/core/clock.js';
import { run, start } from '../../src/core/exec.js';

export const simGuid = 'a123456789abcdefa123456789abcde1';

const chassis = `#!/bin/sh
# get NAME... | set NAME VALUE ..., of the machine in the folder of this script
cd "$(dirname "$0")" || exit 1
operation=$1
shift
case $operation in
  get) for name in "$@"; do
    case $name in
      power) echo "power:$(cat power)" ;;
      boot) echo "boot:$(cat boot)" ;;
      *) echo "$name:0" ;;
    esac
  done ;;
  set) while [ $# -ge 2 ]; do
    echo "$1 $2" >>acts
    case $1 in
      power) echo "$2" >power ;;
      boot) echo "$2" >boot ;;
      shutdown) echo 0 >power ;;
    esac
    shift 2
  done ;;
esac
`;

export class SimBmc {
  private child: ChildProcess | undefined;

  private constructor(
    readonly folder: string,
    readonly port: number,
    readonly passwordFile: string,
  ) {}

  /** `solPort`: a TCP port on loopback whose stream is the machine's serial line. */
  static async start(options: { password?: string; solPort?: number } = {}): Promise<SimBmc> {
    const folder = await mkdtemp(join(tmpdir(), 'infrabed-ipmi-sim-'));
    const password = options.password ?? 'a-secret-of-16by';
    const port = await freeUdpPort();
    await writeFile(join(folder, 'chassis'), chassis, { mode: 0o755 });
    await writeFile(join(folder, 'power'), '0\n');
    await writeFile(join(folder, 'boot'), 'default\n');
    await writeFile(join(folder, 'acts'), '');
    await writeFile(join(folder, 'password'), `${password}\n`, { mode: 0o600 });
    await writeFile(join(folder, 'lan.conf'), lanConf(folder, port, password, options.solPort));
    await writeFile(
      join(folder, 'sim.emu'),
      'mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n' +
        'sel_enable 0x20 4 0x0a\nmc_enable 0x20\n',
    );
    const sim = new SimBmc(folder, port, join(folder, 'password'));
    try {
      await sim.begin();
    } catch (error) {
      await sim.remove();
      throw error;
    }
    return sim;
  }

  /** What was asked of the machine, in order. */
  async acts(): Promise<string[]> {
    return (await readFile(join(this.folder, 'acts'), 'utf8')).split('\n').filter((line) => line !== '');
  }

  power(): Promise<string> {
    return readFile(join(this.folder, 'power'), 'utf8');
  }

  async begin(): Promise<void> {
    const args = ['-n', '-c', 'lan.conf', '-f', 'sim.emu', '-s', this.folder];
    this.child = start('ipmi_sim', args, { cwd: this.folder, stdio: 'ignore' });
    const probe = ['-I', 'lanplus', '-H', '127.0.0.1', '-p', String(this.port), '-U', 'infrabed'];
    await waitFor(
      'ipmi_sim to answer',
      async () => {
        const all = [...probe, '-f', this.passwordFile, '-C', '3', '-N', '1', '-R', '1', 'mc', 'guid'];
        const { exitCode } = await run('ipmitool', all, { allowFailure: true });
        return exitCode === 0 ? true : undefined;
      },
      { timeoutMs: 60_000, intervalMs: 200 },
    );
  }

  async end(): Promise<void> {
    const { child } = this;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'close');
  }

  async remove(): Promise<void> {
    await this.end();
    await rm(this.folder, { recursive: true, force: true });
  }
}

function lanConf(folder: string, port: number, password: string, solPort: number | undefined): string {
  const quoted = password.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  const sol = solPort === undefined ? '' : `  sol "tcp:127.0.0.1:${String(solPort)}" 115200 history=16384\n`;
  return `name "t"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 ${String(port)}
    priv_limit admin
    allowed_auths_callback md5
    allowed_auths_user md5
    allowed_auths_operator md5
    allowed_auths_admin md5
    guid ${simGuid}
  endlan
  chassis_control "${join(folder, 'chassis')}"
${sol}  user 2 true "infrabed" "${quoted}" admin 10 md5
  user 3 true "temp" "another-secret" operator 10 md5
`;
}

/** A UDP port that was free a moment ago. */
async function freeUdpPort(): Promise<number> {
  const socket = createSocket('udp4');
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  const { port } = socket.address();
  socket.close();
  await once(socket, 'close');
  return port;
}
