/** A virtual BMC joined to a machine: serial over LAN, and the in-band interface beside the LAN side. */
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { run, start } from '../../src/core/exec.js';
import { InBand, SerialPort } from './fake-machine.js';
import { VirtualBmc } from './virtual-bmc.js';

t.setTimeout(600_000);
const patience = { timeoutMs: 60_000 };
const bmc = await VirtualBmc.make({ hasMachine: true });
t.teardown(() => bmc.remove());
bmc.begin();
const { pid } = await bmc.ready();
const kcs = join(bmc.root, 'kcs');

/** An open `sol activate`, whose input stays open as a terminal's does. */
function solSession(): { said: () => string; type: (text: string) => void; end: () => Promise<void> } {
  const where = ['-H', bmc.plan.address, '-p', String(bmc.plan.port), ...bmc.login()];
  const child = start('stdbuf', ['-o0', 'ipmitool', ...where, 'sol', 'activate']);
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

const until = (what: string, isSo: () => boolean): Promise<unknown> =>
  waitFor(what, () => (isSo() ? true : undefined), patience);

t.test('nothing listens on a network, and who is not the hypervisor does not get in', async (t) => {
  const { stdout } = await run('ss', ['-Htlnp']);
  t.notMatch(stdout, `pid=${String(pid)},`);
  t.equal(statSync(kcs).mode & 0o777, 0o600);
});

t.test('serial over LAN carries both ways, and outlives the machine’s being off', async (t) => {
  const port = new SerialPort(join(bmc.root, 'serial'));
  t.teardown(() => port.close());
  const session = solSession();
  t.teardown(() => session.end());
  await until('the session', () => session.said().includes('operational'));
  await port.open();
  await port.write('the machine says hello\r\n');
  await until('the line', () => session.said().includes('the machine says hello'));
  session.type('typed over SOL\r');
  await until('what was typed', () => port.received.includes('typed over SOL'));
  port.close();
  await port.open();
  const onMs = Date.now();
  await port.write('and again\r\n');
  await until('the line of the next start', () => session.said().includes('and again'));
  t.ok(Date.now() - onMs < 5000, 'it does not take the 10 s of a port that ipmi_sim opens itself');
});

t.test('both sides are one BMC', async (t) => {
  const inBand = await InBand.connect(kcs);
  t.teardown(() => inBand.close());
  t.match(await inBand.request(0x06, 0x01), /^00 00 /, 'device id');
  t.match(await inBand.request(0x06, 0x42, [0x0f]), /^00 0f .. 05/, 'the system interface is a KCS');

  const name = [...Buffer.from('inband'.padEnd(16, '\0'))];
  const password = [...Buffer.from('in-band-secret'.padEnd(16, '\0'))];
  t.equal(await inBand.request(0x06, 0x45, [0x05, ...name]), '00', 'set user name');
  t.equal(await inBand.request(0x06, 0x47, [0x05, 0x02, ...password]), '00', 'set password');
  t.equal(await inBand.request(0x06, 0x43, [0x91, 0x05, 0x04]), '00', 'administrator on the LAN');
  t.equal(await inBand.request(0x06, 0x47, [0x05, 0x01]), '00', 'enabled');
  const login = ['-I', 'lanplus', '-C', '3', '-U', 'inband', '-P', 'in-band-secret'];
  t.match(await bmc.tool(['chassis', 'power', 'status'], login), { exitCode: 0, stdout: /is on/ });

  t.match(await bmc.tool(['sel', 'clear']), { exitCode: 0 });
  await waitFor(
    'the log to be empty',
    async () => ((await inBand.request(0x0a, 0x40)).startsWith('00 51 00 00') ? true : undefined),
    patience,
  );
  const event = '0x0a 0x44 0 0 0x02 0 0 0 0 0x20 0 0x04 0x01 0x01 0x01 0x57 0xff 0xff';
  t.equal(await bmc.raw(event), '01 00', 'its record');
  t.match(await inBand.request(0x0a, 0x40), /^00 51 01 00/, 'an event from the LAN side is in the log');
  t.match(await inBand.request(0x0a, 0x43, [0, 0, 0, 0, 0, 0xff]), /^00 ff ff 01 00 02 /);

  t.equal(await inBand.request(0x06, 0x24, [0x04, 0x01, 0, 0x10, 0x58, 0x02]), '00', 'watchdog of 60 s');
  t.equal(await inBand.request(0x06, 0x22), '00', 'fed');
  t.match(await bmc.tool(['mc', 'watchdog', 'get']), { stdout: /Started\/Running[^]*60\.0 sec/ });
  t.equal(await inBand.request(0x00, 0x08, [0x05, 0x80, 0x04, 0, 0, 0]), '00', 'boot override');
  t.equal(await bmc.raw('0x00 0x09 0x05 0x00 0x00'), '01 05 80 04 00 00 00');
});

t.test('power asked for in-band goes the way of all such requests', async (t) => {
  const inBand = await InBand.connect(kcs);
  t.teardown(() => inBand.close());
  bmc.power('on');
  const before = bmc.acts().length;
  t.equal(await inBand.request(0x00, 0x02, [0x03]), '00');
  await until('the reset', () => bmc.acts()[before] === 'reset');
  t.match(bmc.read('requests.jsonl'), '"act": "reset", "cause": "chassis-control"');
  // Commands of the machine's side that are reports, or are for the other direction, or are nothing.
  for (const command of [[0x04], [0x03], [0x09], [0x07], [0x08], [0x42, 0x42], []]) inBand.command(command);
  t.match(await inBand.request(0x06, 0x01), /^00 /, 'it lives on');
  t.equal(bmc.acts().length, before + 1, 'and nothing was switched');
  t.equal((await bmc.ready()).pid, pid);
});

t.test('that the system restarted the machine is handed on, and nothing else that QEMU tells', async (t) => {
  const before = bmc.acts().length;
  const monitor = createConnection(join(bmc.root, 'events'));
  t.teardown(() => monitor.destroy());
  const [said] = (await once(monitor, 'data')) as [Buffer];
  t.match(said.toString(), '"qmp_capabilities"');
  const reset = (guest: boolean): string => JSON.stringify({ event: 'RESET', data: { guest } });
  const told = ['{"QMP": {}}', '{"return": {}}', 'no JSON', '[]', reset(false), '{"event": "STOP"}'];
  monitor.write(`${told.join('\r\n')}\r\n${reset(true).slice(0, 9)}`);
  monitor.write(`${reset(true).slice(9)}\r\n`);
  await until('the act', () => bmc.acts().length > before);
  t.same(bmc.acts().slice(before), ['restarted']);
  t.match(bmc.read('requests.jsonl'), '"act": "restarted", "cause": "machine"');
});

t.test('a BMC that is started again is joined again', async (t) => {
  const port = new SerialPort(join(bmc.root, 'serial'));
  t.teardown(() => port.close());
  await port.open();
  await port.write('before\r\n');
  const first = await InBand.connect(kcs);
  t.match(await first.request(0x06, 0x01), /^00 /);
  process.kill(pid ?? 0, 'SIGKILL');
  await until('its end', () => first.isClosed);
  // Without waiting for it: the machine's side stands in line.
  const second = await InBand.connect(kcs);
  t.teardown(() => second.close());
  t.match(await second.request(0x06, 0x01), /^00 /, 'in-band');
  await waitFor(
    'the second start',
    async () => ((await bmc.ready()).pid === pid ? undefined : true),
    patience,
  );
  const session = solSession();
  t.teardown(() => session.end());
  await until('the session', () => session.said().includes('operational'));
  await port.write('after\r\n');
  await until('the line', () => session.said().includes('after'));
  t.pass('serial over LAN');
});
