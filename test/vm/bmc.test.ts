/** The BMC of a virtual machine: serial over LAN, in-band beside LAN, and a boot override for one boot. */
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { run, start } from '../../src/core/exec.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir } from '../../src/core/paths.js';
import { createCluster } from '../../src/testbed/cluster/create.js';
import { bmcStatus } from '../../src/testbed/driver/bmc/status.js';
import { imageCacheDir } from '../../src/testbed/driver/container/index.js';
import { vmFolder } from '../../src/testbed/driver/libvirt/cluster-state.js';
import { createLibvirtBackend } from '../../src/testbed/driver/libvirt/index.js';
import { needsRoot } from '../e2e/needs-root.js';
import { endOwnHypervisor, needsHypervisor } from './own-hypervisor.js';

t.setTimeout(1_800_000);
needsRoot(t);
needsHypervisor(t);
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-vm-')));
const backend = createLibvirtBackend({ stateDir: state });
t.teardown(async () => {
  await backend.sweep(new Set());
  await endOwnHypervisor(state);
  rmSync(state, { recursive: true, force: true });
});

const patience = { timeoutMs: 120_000, intervalMs: 500 };
const bootMs = 600_000;
const { cluster } = await createCluster({
  id: 'bmc',
  generation: 1,
  nodes: [{ name: 'node0', roles: [] }],
  layers: ['os', 'ipmi'],
  backend,
  stateDir: state,
  journal: nullJournal,
  io: silentHost,
});
const bmc = cluster.bmc('node0');
const folder = join(vmFolder(state), 'clusters', 'bmc', 'nodes', 'node0');
const file = (name: string): string => readFileSync(join(folder, name), 'utf8');
const requests = join(folder, 'bmc', 'requests.jsonl');
const until = (what: string, isSo: () => boolean | Promise<boolean>): Promise<unknown> =>
  waitFor(what, async () => ((await isSo()) ? true : undefined), patience);

async function sh(text: string): Promise<string> {
  const result = await cluster.ssh('node0', { argv: ['/bin/sh', '-c', text] });
  if (result.exitCode !== 0) throw new Error(`${text}: ${result.stderr}`);
  return result.stdout.trim();
}

/** ipmitool on the controller, in the cluster's network. */
function lan(user: string, passwordFile: string, ...args: string[]): readonly string[] {
  const where = ['-I', 'lanplus', '-C', '3', '-H', bmc.address, '-U', user, '-f', passwordFile];
  return cluster.networkCommand(['stdbuf', '-o0', 'ipmitool', ...where, ...args]);
}

function solSession(): { said: () => string; type: (text: string) => void; end: () => Promise<void> } {
  const { username, passwordFile } = cluster.bmcLogin('node0');
  const [program = '', ...args] = lan(username, passwordFile, 'sol', 'activate');
  const child = start(program, args);
  let said = '';
  child.stdout?.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const ended = new Promise((resolve) => child.once('close', resolve));
  return {
    said: () => said,
    type: (text) => child.stdin?.write(text),
    end: async () => {
      child.stdin?.end();
      await ended;
    },
  };
}

async function solCarries(word: string): Promise<void> {
  const session = solSession();
  try {
    await until('the session', () => session.said().includes('operational'));
    await sh(`echo from-${word} > /dev/ttyS0`);
    await until('what the machine printed', () => session.said().includes(`from-${word}`));
    await sh('systemd-run --quiet --unit=listen sh -c "head -n 1 < /dev/ttyS0 > /run/heard"');
    await until('the reader', async () => (await sh('systemctl is-active listen')) === 'active');
    session.type(`to-${word}\r`);
    await until('what was typed', async () => (await sh('cat /run/heard')).includes(`to-${word}`));
  } finally {
    await session.end();
  }
}

t.test('the console is complete, and serial over LAN is the same line both ways', async (t) => {
  t.match(file('console.log'), /systemd|Debian/, 'from before anybody looked');
  await solCarries('first');
  t.match(file('console.log'), 'from-first');
});

t.test('in-band and over LAN it is one BMC', async (t) => {
  t.match(await sh('ipmitool mc info'), /Device ID +: 0/);
  await sh('ipmitool user set name 5 inband && ipmitool user set password 5 in-band-secret');
  await sh('ipmitool user priv 5 4 1 && ipmitool user enable 5');
  const passwordFile = join(state, 'in-band-password');
  await run('sh', ['-c', `umask 077; echo in-band-secret > "$1"`, 'sh', passwordFile]);
  const [program = '', ...args] = lan('inband', passwordFile, 'mc', 'info');
  t.match(await run(program, args), { exitCode: 0, stdout: /IPMI Version +: 2.0/ }, 'its new user logs in');
  await sh('ipmitool sel clear');
  await bmc.act([
    'raw',
    ...'0x0a 0x44 0 0 0x02 0 0 0 0 0x20 0 0x04 0x01 0x01 0x01 0x57 0xff 0xff'.split(' '),
  ]);
  t.match(await sh('ipmitool sel list'), /Temperature #0x01/, 'an event that came over LAN');
  await sh('ipmitool raw 0x06 0x24 0x04 0x01 0 0x10 0x58 0x02 && ipmitool raw 0x06 0x22');
  t.match(await bmc.watchdog(), { running: true, action: 'reset', initialSec: 60 });
  await sh('ipmitool raw 0x06 0x24 0x04 0x00 0 0x10 0x58 0x02');
  t.match(await bmc.watchdog(), { running: false });
});

t.test('a BMC that is started again has both lines again', async (t) => {
  const pid = (await bmcStatus(join(folder, 'bmc')))?.pid ?? 0;
  process.kill(pid, 'SIGKILL');
  await until('another one', async () => {
    const now = await bmcStatus(join(folder, 'bmc'));
    return now?.state === 'ready' && now.pid !== pid;
  });
  await until('in-band', async () => /Device ID/.test(await sh('ipmitool mc info || true')));
  await solCarries('second');
  t.ok(
    (await bmc.users()).some(({ name }) => name === 'inband'),
    'users were kept',
  );
});

t.test('a watchdog that is armed in-band and not fed cycles the power', async (t) => {
  const first = await cluster.bootId('node0');
  const before = file('console.log');
  await sh('ipmitool raw 0x06 0x24 0x04 0x03 0 0x10 0x32 0x00 && ipmitool raw 0x06 0x22');
  const isCycled = /"act": "cycle", "cause": "watchdog".*"state": "done"/;
  // The file is made by the first request.
  await until('the cycle', () => existsSync(requests) && isCycled.test(file('bmc/requests.jsonl')));
  await cluster.waitForSsh(['node0'], bootMs);
  t.not(await cluster.bootId('node0'), first);
  t.match(await sh('ipmitool sel list'), /Watchdog2.*Power cycle/i);
  t.ok(file('console.log').startsWith(before), 'the console of before is kept');
  t.ok(file('console.log').length > before.length, 'and goes on');
});

t.test('an override for one boot is for one boot', async (t) => {
  const first = await cluster.bootId('node0');
  await sh('ipmitool chassis bootdev pxe');
  t.match(await bmc.bootOverride(), { device: 'pxe', persistent: false }, 'set in-band, read over LAN');
  const before = file('console.log').length;
  await bmc.act(['chassis', 'power', 'reset']);
  await until('the network boot', () => /PXE/.test(file('console.log').slice(before)));
  t.match(file('domain.xml'), '<boot dev="network"/>');
  t.match(await bmc.bootOverride(), { device: 'none' }, 'it is used up');
  const networkBoot = file('console.log').length;
  await bmc.act(['chassis', 'power', 'reset']);
  await cluster.waitForSsh(['node0'], bootMs);
  t.not(await cluster.bootId('node0'), first);
  t.notMatch(file('domain.xml'), '<boot dev="network"/>');
  t.notMatch(file('console.log').slice(networkBoot), /PXE/, 'the network was not asked again');
});

t.test('a restart by the system in the machine asks the BMC, too', async (t) => {
  const first = await cluster.bootId('node0');
  const before = file('console.log').length;
  await sh('ipmitool chassis bootdev pxe');
  await sh('systemctl --no-block reboot');
  await until('the network boot', () => /PXE/.test(file('console.log').slice(before)));
  t.match(await bmc.bootOverride(), { device: 'none' }, 'it is used up');
  // Nothing is there to boot: the firmware tries again after a minute, which is a start of its own.
  await cluster.waitForSsh(['node0'], bootMs);
  t.not(await cluster.bootId('node0'), first);
  t.match(file('bmc/requests.jsonl'), /"act": "restarted", "cause": "machine"/);
});
