/** The virtual BMC: a real ipmi_sim with our module, held to the specification by raw requests. */
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { run } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { emulatorCommands, lanConf } from '../../src/testbed/driver/bmc/config.js';
import { VirtualBmc } from './virtual-bmc.js';

t.setTimeout(600_000);
const patience = { timeoutMs: 90_000 };
const bmc = await VirtualBmc.make();
t.teardown(() => bmc.remove());
bmc.begin();
await bmc.ready();

/** What the firmware does at a boot; prints the device. */
async function boot(): Promise<string> {
  const script = asset('src/testbed/driver/bmc/firmware.py');
  return (await run('/usr/bin/python3', ['-I', '-S', script, bmc.plan.folder])).stdout.trim();
}

const flags = (): Promise<string> => bmc.raw('0x00 0x09 0x05 0x00 0x00');
const setFlags = (bytes: string): Promise<string> => bmc.raw(`0x00 0x08 0x05 ${bytes}`);

t.test('the files say what was planned, and refuse what they cannot say', (t) => {
  const conf = lanConf(bmc.plan, '/module.so', 'abcdefgh12345678');
  t.match(conf, /addr 127\.0\.0\.1 \d+/);
  t.notMatch(conf, /none|straight/);
  t.notMatch(conf, /^ *(?:sol|serial)/m);
  const root = { uid: 0, gid: 0 };
  const lines = {
    serial: '/n/0.tty',
    kcs: { path: '/n/0.kcs', ...root },
    events: { path: '/n/0.qmp', ...root },
  };
  t.match(
    lanConf({ ...bmc.plan, lines }, '/module.so', 'abcdefgh12345678'),
    /serial kcs 127\.0\.0\.1 1 codec VM\n {2}sol "tcp:127\.0\.0\.1:1" 115200 history=16384/,
  );
  t.throws(() => lanConf({ ...bmc.plan, folder: '/with "quotes"' }, '/module.so', 'abcdefgh12345678'), {
    code: 'IB_USAGE',
  });
  t.throws(() => lanConf(bmc.plan, '/module.so', 'with space'), { code: 'IB_INTERNAL' });
  t.match(emulatorCommands(bmc.plan), /sel_enable 0x20 512/);
  for (const name of ['lan.conf', 'lan.run.conf', 'password', 'admin-password'])
    t.equal(statSync(join(bmc.plan.folder, name)).mode & 0o077, 0, `${name} is the controller's alone`);
  t.end();
});

t.test('nobody gets in without a password', async (t) => {
  const wrong = join(bmc.root, 'wrong-password');
  writeFileSync(wrong, 'not-the-password\n', { mode: 0o600 });
  const status = ['chassis', 'power', 'status'];
  const lanplus = (suite: string, user: string, file: string): string[] => [
    '-I',
    'lanplus',
    '-C',
    suite,
    '-U',
    user,
    '-f',
    file,
  ];
  t.match(await bmc.tool(status), { exitCode: 0, stdout: /Power is on/ });
  t.match(await bmc.tool(status, bmc.login('1')), { exitCode: 0 }, 'other suites are served');
  for (const [what, options] of Object.entries({
    'a wrong password': lanplus('3', 'admin', wrong),
    'cipher suite 0, with any password': lanplus('0', 'admin', wrong),
    'cipher suite 0, with the right one': bmc.login('0'),
    'no name': ['-I', 'lanplus', '-C', '3', '-U', '', '-P', ''],
    'no authentication': ['-I', 'lan', '-A', 'NONE', '-U', 'admin', '-f', wrong],
    'a password in the clear': ['-I', 'lan', '-A', 'PASSWORD', '-U', 'admin', '-f', wrong],
  })) {
    t.match(await bmc.tool(status, options), { exitCode: 1, stdout: '' }, what);
  }
  t.match((await bmc.tool(status, bmc.login('0'))).stderr, /no matching cipher suite/);
});

t.test('power is asked for in order, and an unknown state is not off', async (t) => {
  t.match(await bmc.tool(['chassis', 'power', 'cycle']), { exitCode: 0 });
  await waitFor('the cycle', () => (bmc.acts().join() === 'off,on' ? true : undefined), patience);
  t.match(await bmc.tool(['chassis', 'power', 'reset']), { exitCode: 0 });
  t.match(await bmc.tool(['chassis', 'power', 'soft']), { exitCode: 0 });
  await waitFor('the rest', () => (bmc.acts().join() === 'off,on,reset,soft' ? true : undefined), patience);
  t.equal(await bmc.raw('0x00 0x02 0x02'), '0xd5', 'cycle of a node that is off');
  t.equal(await bmc.raw('0x00 0x02 0x03'), '0xd5', 'reset of a node that is off');
  t.equal(await bmc.raw('0x00 0x02 0x04'), '0xcc', 'a diagnostic interrupt cannot be given');
  t.equal((await bmc.raw('0x00 0x01')).slice(0, 2), '60', 'off, restore policy unknown');
  bmc.power('broken');
  t.equal(await bmc.raw('0x00 0x01'), '0xff');
  t.equal(await bmc.raw('0x00 0x02 0x01'), '0xff');
  bmc.power('on');
  const requests = bmc
    .read('requests.jsonl')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { act: string; cause: string; state: string });
  t.match(requests.slice(0, 2), [
    { act: 'cycle', cause: 'chassis-control', state: 'asked' },
    { act: 'cycle', cause: 'chassis-control', state: 'done' },
  ]);
});

t.test('boot parameter 5 is held as the specification has it', async (t) => {
  t.equal(await flags(), '01 05 00 00 00 00 00');
  t.equal(await setFlags('0xe0 0x04 0x00 0x00 0x00'), '');
  t.equal(await flags(), '01 05 e0 04 00 00 00', 'valid, persistent, EFI and device together');
  t.equal(await setFlags('0x80 0x08 0x01 0x02 0x03'), '');
  t.equal(await flags(), '01 05 80 08 01 02 03', 'all five bytes');
  t.equal(await setFlags('0x80 0x1c 0x00 0x00 0x00'), '0xcc', 'a device that the firmware does not know');
  t.equal(await setFlags('0x80 0x04'), '0xc7', 'too short');
  t.equal(await bmc.raw('0x00 0x09 0x05'), '0xc7');
  t.equal(await flags(), '01 05 80 08 01 02 03', 'what was refused changed nothing');
  t.equal(await bmc.raw('0x00 0x08 0x85'), '', 'without data only the mark changes');
  t.equal(await flags(), '01 85 80 08 01 02 03', 'marked invalid');
  t.equal(await bmc.raw('0x00 0x08 0x05'), '');
  t.equal(await flags(), '01 05 80 08 01 02 03');
});

t.test('the valid bit goes after 60 s, unless parameter 3 says otherwise', async (t) => {
  const until = (): number => Number.parseInt(/until (\w+)/.exec(bmc.read('boot-options'))?.[1] ?? '', 16);
  const nowMs = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) * 1000;
  await setFlags('0x80 0x04 0x00 0x00 0x00');
  t.ok(until() >= nowMs + 60_000, 'no sooner than in 60 s');
  const rewrite = (ms: number): void => {
    const text = bmc.read('boot-options').replace(/until \w+/, `until ${ms.toString(16)}`);
    writeFileSync(join(bmc.plan.folder, 'boot-options'), text);
  };
  rewrite(1);
  t.equal(await flags(), '01 05 00 04 00 00 00', 'only the valid bit is gone');
  t.equal(await boot(), 'none', 'the firmware heeds it');
  await setFlags('0x80 0x04 0x00 0x00 0x00');
  rewrite(until() - 30_000);
  const before = until();
  await bmc.raw('0x00 0x02 0x01');
  t.ok(until() > before, 'a chassis control command starts the time again');
  t.equal(await bmc.raw('0x00 0x08 0x03 0x08'), '');
  t.equal(await bmc.raw('0x00 0x09 0x03 0x00 0x00'), '01 03 08');
  t.equal(until(), 0, 'bit 3: it stays');
  t.equal(await bmc.raw('0x00 0x08 0x03 0x00'), '');
});

t.test('the firmware uses up what is for one boot, and keeps what is for all', async (t) => {
  await setFlags('0x80 0x04 0x00 0x00 0x00');
  t.equal(await boot(), 'pxe');
  t.equal(await flags(), '01 05 00 04 00 00 00');
  t.equal(await boot(), 'none');
  await setFlags('0xc0 0x18 0x00 0x00 0x00');
  t.equal(await boot(), 'bios');
  t.equal(await boot(), 'bios');
  t.equal(await flags(), '01 05 c0 18 00 00 00');
  t.match(
    bmc.read('boot-options'),
    /until 0\ntaken 1/,
    'what the firmware has made its own does not time out',
  );
  await setFlags('0x80 0x00 0x00 0x00 0x00');
  t.equal(await boot(), 'none');
});

t.test('parameters 0, 1, 2 and 4', async (t) => {
  const get = (parameter: number): Promise<string> => bmc.raw(`0x00 0x09 0x0${String(parameter)} 0x00 0x00`);
  t.equal(await bmc.raw('0x00 0x08 0x00 0x01'), '');
  t.equal(await bmc.raw('0x00 0x08 0x00 0x01'), '0x81', 'somebody else is setting');
  t.equal(await get(0), '01 00 01');
  await boot();
  t.equal(await get(0), '01 00 00', 'a reset completes it');
  t.equal(await bmc.raw('0x00 0x08 0x01 0x07'), '');
  t.equal(await get(1), '01 01 07');
  t.equal(await bmc.raw('0x00 0x08 0x02 0x02'), '');
  t.equal(await get(2), '01 02 02');
  t.equal(await bmc.raw('0x00 0x08 0x04 0x03 0x01'), '');
  t.match(await get(4), /^01 04 00 [0-9a-f]?[159d]$/, 'the write mask is read as zero, and masks');
  t.equal(await get(6), '0x80');
});

t.test('the watchdog fires, is logged, and belongs to one start', async (t) => {
  t.equal(await bmc.raw('0x06 0x22'), '0x80', 'never set');
  const before = bmc.acts().length;
  // SMS/OS, hard reset, no interrupt, 1 s; then started.
  t.equal(await bmc.raw('0x06 0x24 0x04 0x01 0x00 0x10 0x0a 0x00'), '');
  t.equal(await bmc.raw('0x06 0x22'), '');
  await waitFor('the reset', () => (bmc.acts().length > before ? true : undefined), patience);
  t.equal(bmc.acts().at(-1), 'reset');
  t.match((await bmc.tool(['sel', 'list'])).stdout, /Watchdog2 #0x2f \| Hard reset \| Asserted/);
  t.notMatch((await bmc.tool(['sel', 'list'])).stdout, /Pre-Init/, 'with the time of day');
  t.match(await bmc.raw('0x06 0x25'), /^04 01 00 10 0a 00/, 'stopped, with the mark of what it expired on');
  for (const [action, act] of [
    ['0x02', 'off'],
    ['0x03', 'on'],
  ] as const) {
    bmc.power('on');
    await bmc.raw(`0x06 0x24 0x04 ${action} 0x00 0x10 0x05 0x00`);
    await bmc.raw('0x06 0x22');
    await waitFor(act, () => (bmc.acts().at(-1) === act ? true : undefined), patience);
  }
  t.match((await bmc.tool(['sel', 'list'])).stdout, /Power down[^]*Power cycle/);
  bmc.power('on');
  await bmc.raw('0x06 0x24 0x04 0x01 0x00 0x00 0x10 0x0e');
  await bmc.raw('0x06 0x22');
  t.equal((await bmc.raw('0x06 0x25')).slice(0, 2), '44', 'running');
  writeFileSync(join(bmc.plan.folder, 'boots'), '.');
  t.equal((await bmc.raw('0x06 0x25')).slice(0, 2), '04', 'not in the next boot');
  t.equal(await bmc.raw('0x06 0x24 0x04 0x21 0x00 0x00 0x0a 0x00'), '0xcc', 'no interrupt can be given');
});

t.test('ipmi_sim keeps of root’s power only the port', async (t) => {
  const { pid } = await bmc.ready();
  const status = readFileSync(`/proc/${String(pid)}/status`, 'utf8');
  const effective = BigInt(`0x${/^CapEff:\s+(\w+)$/m.exec(status)?.[1] ?? ''}`);
  t.equal(effective & ~(1n << 10n), 0n, 'at most CAP_NET_BIND_SERVICE');
  t.match(status, /^NoNewPrivs:\s+1$/m);
});

t.test('sensors are read from files', async (t) => {
  t.match((await bmc.tool(['sdr'])).stdout, /CPU Temp +\| 45 degrees C +\| ok[^]*12V +\| 12 Volts/);
  writeFileSync(join(bmc.plan.folder, 'cpu-temp'), '99\n');
  await waitFor(
    'the new reading',
    async () => /CPU Temp +\| 99 degrees C +\| cr/.test((await bmc.tool(['sdr'])).stdout) || undefined,
    patience,
  );
  writeFileSync(join(bmc.plan.folder, 'cpu-temp'), '45\n');
});

t.test('what is kept survives the death of ipmi_sim, which is started again', async (t) => {
  await setFlags('0x80 0x08 0x00 0x00 0x00');
  for (const args of [
    ['user', 'set', 'name', '5', 'temporary'],
    ['user', 'set', 'password', '5', 'temporary-pw1'],
  ])
    t.match(await bmc.tool(args), { exitCode: 0 });
  await bmc.raw('0x06 0x24 0x04 0x01 0x00 0x00 0x10 0x0e');
  await bmc.raw('0x06 0x22');
  // ipmi_sim writes changed accounts down once a second.
  const kept = join('state', 'ipmi_sim', 'node0', 'users.mc20');
  await waitFor(
    'the account to be written down',
    () => (existsSync(join(bmc.plan.folder, kept)) && bmc.read(kept).includes('temporary-pw1')) || undefined,
    patience,
  );
  const entries = (await bmc.tool(['sel', 'list'])).stdout;
  const sensors = (await bmc.tool(['sdr'])).stdout.split('\n').length;
  const { pid, starts } = await bmc.ready();
  process.kill(pid!, 'SIGKILL');
  await waitFor(
    'another start',
    async () => ((await bmc.ready()).starts > starts ? true : undefined),
    patience,
  );
  t.equal((await bmc.tool(['sel', 'list'])).stdout, entries);
  t.match((await bmc.tool(['user', 'list', '1'])).stdout, /^5 +temporary /m);
  t.equal((await bmc.tool(['sdr'])).stdout.split('\n').length, sensors, 'no sensor is there twice');
  t.equal(await flags(), '01 05 80 08 00 00 00');
  t.equal((await bmc.raw('0x06 0x25')).slice(0, 2), '44', 'the watchdog goes on');
  t.match(bmc.read('bmcd.log'), /ended with status -9; it is started again/);
});

t.test('the controller gets in by its password file as it is at the start', async (t) => {
  const status = ['chassis', 'power', 'status'];
  const account = ['-I', 'lanplus', '-C', '3', '-U', 'infrabed', '-f', join(bmc.plan.folder, 'password')];
  t.match(await bmc.tool(status, account), { exitCode: 0 });
  const old = join(bmc.root, 'old-password');
  writeFileSync(old, bmc.read('password'), { mode: 0o600 });
  await bmc.end();
  writeFileSync(join(bmc.plan.folder, 'password'), 'nothergeneration\n', { mode: 0o600 });
  writeFileSync(join(bmc.plan.folder, 'status.json'), '{"state":"ended","pid":null,"starts":0,"atMs":0}\n');
  bmc.begin();
  await bmc.ready();
  t.match(await bmc.tool(status, account), { exitCode: 0 });
  t.match(await bmc.tool(status, [...account.slice(0, -1), old]), { exitCode: 1 });
  t.match((await bmc.tool(['user', 'list', '1'])).stdout, /^5 +temporary /m, 'other accounts stay');
});

t.test('the event log can be filled, and says that it overflowed', async (t) => {
  await bmc.tool(['sel', 'clear']);
  // Platform event messages by a script: as many as there is room for, and some more.
  const script = join(bmc.root, 'events');
  writeFileSync(
    script,
    'raw 0x0a 0x44 0x00 0x00 0x02 0x00 0x00 0x00 0x00 0x20 0x00 0x04 0x01 0x01 0x01 0x50 0x00 0x00\n'.repeat(
      516,
    ),
  );
  await bmc.tool(['exec', script]);
  const info = (await bmc.tool(['sel', 'info'])).stdout;
  t.match(info, /Entries +: 512/);
  t.match(info, /Overflow +: true/);
  t.match(await bmc.tool(['sel', 'clear']), { exitCode: 0 });
  await waitFor(
    'an empty log',
    async () => /Entries +: 0/.test((await bmc.tool(['sel', 'info'])).stdout) || undefined,
    patience,
  );
});

t.test('bmcd ends when its configuration is removed, and nothing of it runs on', async (t) => {
  const { pid } = await bmc.ready();
  rmSync(join(bmc.root, 'bmc.json'));
  const isGone = (): true | undefined => {
    try {
      process.kill(pid!, 0);
      return undefined;
    } catch {
      return true;
    }
  };
  t.ok(await waitFor('the end of ipmi_sim', isGone, patience));
});
