/** The IPMI driver against a BMC that misbehaves as BMCs were reported to: each report is a test. */
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Power } from '../../src/testbed/driver/driver.js';
import { bootFlags, overrideOf } from '../../src/testbed/driver/ipmi/boot-flags.js';
import { createIpmiPower, type IpmiBmc } from '../../src/testbed/driver/ipmi/index.js';
import { outcomeOf } from '../../src/testbed/driver/ipmi/outcome.js';
import { usersOf } from '../../src/testbed/driver/ipmi/user-access.js';
import { watchdogOf } from '../../src/testbed/driver/ipmi/watchdog.js';
import { recordingJournal } from './driver-suite.js';
import { FakeIpmitool, type FakeState } from './fake-ipmitool.js';
import { ipmiSuite } from './ipmi-suite.js';

t.setTimeout(900_000);

const on = 0x01;
const off = 0x00;
const reset = 0x03;

interface Machine {
  fake: FakeIpmitool;
  bmc: IpmiBmc;
  power: Power;
  journal: ReturnType<typeof recordingJournal>;
}

async function machine(t: Test, changes: Partial<FakeState> = {}): Promise<Machine> {
  const fake = await FakeIpmitool.create(changes);
  t.teardown(() => fake.remove());
  const journal = recordingJournal();
  const bmc = fake.bmc(journal);
  return { fake, bmc, journal, power: createIpmiPower(bmc, { settleMs: 5000, softOffMs: 10_000 }) };
}

async function folderOf(t: Test): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-ipmi-test-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

t.test('the fake passes the suite of the real one', async (t) => {
  const { fake, bmc, power, journal } = await machine(t);
  const passwordFile = join(await folderOf(t), 'password');
  await writeFile(passwordFile, 'not-the-secret\n', { mode: 0o600 });
  const stranger = fake.bmc(journal, { passwordFile });
  await ipmiSuite(t, { bmc, power, stranger, isOn: async () => (await fake.state()).power === 1 });
});

t.test('power acts are written before and after', async (t) => {
  const { power, journal } = await machine(t);
  await power.on();
  t.match(journal.entries, [
    { kind: 'power.on', actor: 'controller', node: 'node0', payload: { state: 'begin', before: 'off' } },
    { kind: 'power.on', payload: { state: 'verified', after: 'on' } },
  ]);
});

t.test('cipher suites', async (t) => {
  await t.test('17 is refused: 3 is used, and remembered beyond this handle', async (t) => {
    const { fake, journal } = await machine(t);
    const cacheFile = join(await folderOf(t), 'bmc', 'node0.json');
    t.equal(await fake.bmc(journal, { cacheFile }).powerState(), 'off');
    t.equal((await fake.state()).sessions, 2);
    t.same(JSON.parse(await readFile(cacheFile, 'utf8')), { cipherSuite: 3 });
    t.equal(await fake.bmc(journal, { cacheFile }).powerState(), 'off');
    t.equal((await fake.state()).sessions, 3, 'the next one asks once');
  });
  await t.test('17 is used where the BMC speaks it, and found again after new firmware', async (t) => {
    const { fake, bmc } = await machine(t, { suites: [17] });
    t.equal(await bmc.powerState(), 'off');
    t.equal((await fake.state()).sessions, 1);
    await fake.change({ suites: [3] });
    t.equal(await bmc.powerState(), 'off');
    t.equal((await fake.state()).sessions, 3);
  });
  await t.test('a BMC that speaks neither is refused; suite 0 is never tried', async (t) => {
    const { fake, bmc } = await machine(t, { suites: [0] });
    await t.rejects(bmc.users(), { code: 'IB_BMC', message: /neither cipher suite 17 nor 3/ });
    t.equal((await fake.state()).sessions, 2);
  });
  await t.test('a memory that cannot be read is found out anew', async (t) => {
    const { fake, journal } = await machine(t);
    const cacheFile = join(await folderOf(t), 'node0.json');
    await writeFile(cacheFile, '{"cipherSuite": 0}');
    t.equal(await fake.bmc(journal, { cacheFile }).powerState(), 'off');
    t.same(JSON.parse(await readFile(cacheFile, 'utf8')), { cipherSuite: 3 });
  });
});

t.test('sessions', async (t) => {
  await t.test(
    'a full session table is waited for, with more and more time between two attempts',
    async (t) => {
      const { fake, bmc } = await machine(t, { quirks: { full: 4 }, suites: [17] });
      t.equal((await bmc.selInfo()).entries, 0);
      t.equal((await fake.state()).sessions, 5);
      t.same(fake.clock.slept, [500, 1000, 2000, 4000]);
    },
  );
  await t.test('one that stays full is given up, and says nothing about the machine', async (t) => {
    const { fake, bmc, power } = await machine(t, { quirks: { full: 1000 }, suites: [17] });
    await t.rejects(bmc.selInfo(), { code: 'IB_BMC', message: /insufficient resources for session/ });
    const { sessions } = await fake.state();
    t.ok(sessions <= 10, `${String(sessions)} attempts in a minute`);
    t.equal(await bmc.powerState(), 'unknown');
    await t.rejects(power.off(), { code: 'IB_BMC_UNREACHABLE' });
    t.same((await fake.state()).acts, []);
  });
  await t.test(
    'a wrong password is tried once, not once a command and not with the next suite',
    async (t) => {
      const { fake, bmc, power } = await machine(t, { password: 'changed-meanwhile' });
      await fake.setPassword('the-old-password');
      await t.rejects(bmc.users(), { code: 'IB_BMC_AUTH', message: /RAKP 2 HMAC is invalid/ });
      await t.rejects(power.cycle(), { code: 'IB_BMC_AUTH' });
      await t.rejects(bmc.act(['raw', '0x00', '0x02', '0x01']), { code: 'IB_BMC_AUTH' });
      t.equal((await fake.state()).refused, 1);
      await fake.setPassword('changed-meanwhile');
      t.equal(await bmc.powerState(), 'off', 'a corrected password file is used at once');
    },
  );
  await t.test(
    'a password that is changed under a session that worked is tried once more, not more',
    async (t) => {
      const { fake, bmc } = await machine(t);
      await bmc.users();
      await fake.change({ password: 'changed' });
      await t.rejects(bmc.users(), { code: 'IB_BMC_AUTH' });
      // Once by a command that cannot run with -v, once to ask what its failure means.
      t.equal((await fake.state()).refused, 2);
    },
  );
  await t.test('a BMC that does not answer: unknown, never off, and nothing is sent', async (t) => {
    const { fake, bmc, power } = await machine(t, { quirks: { silent: true } });
    t.equal(await bmc.powerState(), 'unknown');
    t.equal(await power.state(), 'unknown');
    await t.rejects(bmc.users(), { code: 'IB_BMC_UNREACHABLE', hint: /UDP port 623/ });
    await t.rejects(power.on(), { code: 'IB_BMC_UNREACHABLE', message: /does not say if it is on or off/ });
    t.same((await fake.state()).acts, []);
  });
  await t.test('after its own reset a BMC answers before it is ready', async (t) => {
    const { fake, bmc, power } = await machine(t, { suites: [17] });
    t.equal(await bmc.powerState(), 'off');
    await fake.change({ quirks: { noSession: 2, notReady: 2 } });
    t.equal(await bmc.powerState(), 'unknown');
    await fake.change({ quirks: { noSession: 2, notReady: 2 } });
    t.equal((await bmc.selInfo()).entries, 0, 'it is waited for');
    await power.on();
    await fake.change({ quirks: { notReady: 1 } });
    await bmc.sendOnce(['raw', '0x00', '0x02', '0x00']);
    t.same((await fake.state()).acts, [on, off], 'an act that was refused for now is sent again');
  });
  await t.test('two handles on one BMC take turns', async (t) => {
    const { fake, journal, bmc } = await machine(t);
    const other = fake.bmc(journal);
    const reads = [bmc, other, bmc, other].map((handle) => handle.powerState());
    t.same(await Promise.all(reads), ['off', 'off', 'off', 'off']);
    t.equal((await fake.state()).sessions, 6, 'none overwrote what another wrote');
  });
});

t.test('power', async (t) => {
  await t.test('"on" while it is going off is not believed', async (t) => {
    const { fake, power } = await machine(t, { power: 1, quirks: { goingOff: 1 } });
    await power.on();
    t.equal((await fake.state()).power, 1);
    t.same((await fake.state()).acts, [on]);
  });
  await t.test(
    'a power-on that is swallowed while it stops is asked for again, once that is proven',
    async (t) => {
      const { fake, power } = await machine(t, { power: 1, quirks: { swallowOn: 1 } });
      await power.cycle();
      t.equal((await fake.state()).power, 1);
      t.same((await fake.state()).acts, [off, on, on]);
    },
  );
  await t.test('a machine that does not come on is given up', async (t) => {
    const { fake, power } = await machine(t, { quirks: { deadSupply: true } });
    await t.rejects(power.on(), { code: 'IB_POWER', message: /should be on but is off/ });
    t.same((await fake.state()).acts, [on, on, on]);
  });
  await t.test('cycle takes a machine that stops slowly to off before it asks for on', async (t) => {
    const { fake, power } = await machine(t, { power: 1, quirks: { slowOff: 5 } });
    await power.cycle();
    t.equal((await fake.state()).power, 1);
    t.same((await fake.state()).acts, [off, on]);
  });
  await t.test('the reply to an act is lost: it is not sent twice', async (t) => {
    for (const [what, before, wanted] of [
      ['on', 0, on],
      ['off', 1, off],
    ] as const) {
      const { fake, power } = await machine(t, { power: before, quirks: { loseReply: 1 } });
      await power[what]();
      t.same((await fake.state()).acts, [wanted], what);
    }
  });
  await t.test(
    'a reset whose reply is lost cannot be read back: it is not repeated, and says so',
    async (t) => {
      const { fake, power, journal } = await machine(t, { power: 1, quirks: { loseReply: 1 } });
      await t.rejects(power.reset(), { code: 'IB_BMC_UNREACHABLE', details: { maybeDone: true } });
      t.same((await fake.state()).acts, [reset]);
      t.match(journal.entries.at(-1)?.payload, { state: 'failed' });
    },
  );
  await t.test('an act of a caller whose reply is lost says that it may have happened', async (t) => {
    const { fake, bmc, journal } = await machine(t, { power: 1, quirks: { loseReply: 1 } });
    await t.rejects(bmc.act(['raw', '0x00', '0x02', '0x03']), {
      code: 'IB_BMC_UNREACHABLE',
      message: /may have been carried out/,
    });
    t.same((await fake.state()).acts, [reset]);
    t.match(journal.entries, [
      { kind: 'bmc.act', payload: { state: 'begin', args: ['raw', '0x00', '0x02', '0x03'] } },
      { kind: 'bmc.act', payload: { state: 'failed' } },
    ]);
  });
  await t.test('a system that is deaf to the button is not off', async (t) => {
    const { fake, power } = await machine(t, { power: 1, quirks: { deafSystem: true } });
    await t.rejects(power.softOff(), { code: 'IB_TIMEOUT' });
    t.same((await fake.state()).acts, [0x05], 'asked once');
  });
  await t.test('a signal ends the wait', async (t) => {
    const { power } = await machine(t, { power: 1 });
    await t.rejects(power.off(AbortSignal.abort()), { code: 'IB_CANCELLED' });
  });
});

t.test('boot override', async (t) => {
  await t.test('persistent and EFI go in one request and read back', async (t) => {
    const { fake, bmc, journal } = await machine(t);
    await bmc.setBootOverride({ device: 'disk', persistent: true, efi: true });
    t.same((await fake.state()).bootFlags, [0xe0, 0x08, 0, 0, 0]);
    t.same(await bmc.bootOverride(), { device: 'disk', persistent: true, efi: true });
    t.match(journal.entries.at(-1)?.payload, { state: 'verified', keptBeyondTimeout: true });
    await bmc.clearBootOverride();
    t.same((await fake.state()).bootFlags, [0, 0, 0, 0, 0]);
    t.equal((await fake.state()).clearing, 0);
  });
  await t.test('a BMC that keeps only the last of two flags is found out', async (t) => {
    const { bmc } = await machine(t, { quirks: { keepsLastFlag: true } });
    await t.rejects(bmc.setBootOverride({ device: 'pxe', persistent: true, efi: true }), {
      code: 'IB_BMC',
      message: /set to pxe \(persistent, EFI\) and reads back as pxe \(next boot only, EFI\)/,
    });
  });
  await t.test('a lost reply is read back', async (t) => {
    const { fake, bmc } = await machine(t, { clearing: 0x08, quirks: { loseReply: 1 } });
    await bmc.setBootOverride({ device: 'pxe', persistent: false, efi: false });
    t.same((await fake.state()).bootFlags, [0x80, 0x04, 0, 0, 0]);
  });
  await t.test('the BMC does not forget it after 60 s where it lets one', async (t) => {
    const pxe = { device: 'pxe', persistent: false, efi: true } as const;
    const { fake, bmc } = await machine(t);
    await bmc.setBootOverride(pxe);
    await fake.clock.sleep(61_000);
    t.same(await bmc.bootOverride(), pxe);
  });
  await t.test('where it does not let one, that is written down, and the override is gone', async (t) => {
    const { fake, bmc, journal } = await machine(t, { quirks: { noClearing: true } });
    await bmc.setBootOverride({ device: 'pxe', persistent: false, efi: true });
    t.match(journal.entries.at(-1)?.payload, { keptBeyondTimeout: false });
    await fake.clock.sleep(61_000);
    t.match(await bmc.bootOverride(), { device: 'none' });
  });
  await t.test('a one-shot override is gone after the boot, or that is said', async (t) => {
    const { fake, bmc, power } = await machine(t);
    await bmc.setBootOverride({ device: 'pxe', persistent: false, efi: false });
    await power.cycle();
    await bmc.assertOverrideConsumed();
    await fake.change({ quirks: { overrideSticks: true } });
    await bmc.setBootOverride({ device: 'pxe', persistent: false, efi: false });
    await power.cycle();
    await t.rejects(bmc.assertOverrideConsumed(), {
      code: 'IB_BMC',
      message: /still pxe \(next boot only\) after the boot/,
    });
  });
  t.test('a device without a name is not taken for none', (t) => {
    t.throws(() => overrideOf([0x80, 0x0f << 2, 0, 0, 0]), { code: 'IB_BMC' });
    t.match(overrideOf([0x00, 0x04, 0, 0, 0]), { device: 'none' }, 'without the valid bit nothing is set');
    for (const device of ['pxe', 'disk', 'cdrom', 'bios'] as const) {
      const wanted = { device, persistent: true, efi: false };
      t.same(overrideOf(bootFlags(wanted)), wanted);
    }
    t.end();
  });
});

t.test('bad input', async (t) => {
  await t.test('a BMC of another machine is refused before anything is asked of it', async (t) => {
    const { fake, journal } = await machine(t, { power: 1 });
    const expectedGuid = '00000000-0000-0000-0000-0000000000ff';
    const bmc = fake.bmc(journal, { expectedGuid });
    await t.rejects(createIpmiPower(bmc).off(), { code: 'IB_BMC', message: /that of another machine/ });
    t.same((await fake.state()).acts, []);
    const right = fake.bmc(journal, { expectedGuid: 'A1234567-89ab-cdef-a123-456789abcde1' });
    t.equal(await right.powerState(), 'on');
  });
  await t.test('a password with quotes and spaces', async (t) => {
    const password = `a "b' $c\\ d`;
    const { bmc } = await machine(t, { password });
    t.equal(await bmc.powerState(), 'off');
  });
  await t.test('passwords and names that IPMI cannot carry are refused before they are sent', async (t) => {
    const { fake, bmc, journal } = await machine(t);
    for (const [password, message] of [
      ['x'.repeat(21), /21 bytes and IPMI 2.0 carries at most 20/],
      ['é'.repeat(11), /22 bytes/],
      ['', /is empty/],
      ['a\0b', /NUL/],
    ] as const) {
      await fake.setPassword(password);
      await t.rejects(bmc.powerState(), { code: 'IB_BMC_AUTH', message });
    }
    await fake.setPassword('fine');
    await chmod(fake.passwordFile, 0o644);
    await t.rejects(bmc.powerState(), { code: 'IB_BMC_AUTH', message: /others can read/ });
    const missing = fake.bmc(journal, { passwordFile: '/nonexistent' });
    await t.rejects(missing.powerState(), { code: 'IB_BMC_AUTH', message: /ENOENT/ });
    const long = fake.bmc(journal, { username: 'a-name-of-17bytes' });
    await t.rejects(long.powerState(), { code: 'IB_BMC_AUTH', message: /more than 16 bytes/ });
    t.equal((await fake.state()).sessions, 0);
  });
  await t.test('a password of 17 to 20 bytes that is refused gets its likely reason', async (t) => {
    const { fake, bmc } = await machine(t);
    await fake.setPassword('seventeen-bytes-x');
    await t.rejects(bmc.powerState(), { code: 'IB_BMC_AUTH', message: /some BMCs do not keep/ });
  });
  await t.test('a password on the command line of ipmitool is refused', async (t) => {
    const { bmc } = await machine(t);
    for (const args of [
      ['user', 'set', 'password', '3', 'secret'],
      ['-P', 'secret', 'mc', 'info'],
      ['raw', '0x06', '0x47', '0x03'],
    ]) {
      await t.rejects(bmc.act(args), { code: 'IB_USAGE' });
      t.throws(() => bmc.read(args), { code: 'IB_USAGE' });
    }
  });
  await t.test('a log that did not come to its end is not a shorter log', async (t) => {
    const { fake, bmc } = await machine(t);
    await fake.change({ sel: ['01000200000000200004013001'.padEnd(32, 'f')] });
    t.equal((await bmc.selEntries()).length, 1);
    await fake.change({ sel: ['0100020000000020000401'] });
    await t.rejects(bmc.selEntries(), { code: 'IB_BMC', message: /Only 0 of 1 SEL entries came/ });
  });
});

t.test('what BMCs say', (t) => {
  t.match(watchdogOf(' 44 01 00 00 64 00 32 00\n'), {
    running: true,
    action: 'reset',
    use: 'SMS/OS',
    initialSec: 10,
    remainingSec: 5,
  });
  t.throws(() => watchdogOf('\n'), { code: 'IB_BMC' }, 'an empty reply is not a watchdog that is off');
  t.throws(() => usersOf('user 1 \nname \nend \n'), { code: 'IB_BMC' });
  t.throws(() => usersOf('user 1 \n 01 41 00 34\nname \n 61 00\n'), { code: 'IB_BMC', message: /its end/ });
  t.match(
    usersOf('user 1 \n 02 41 00 34\nname \n 61 00\nuser 2 \n 02 81 00 14\nname \nuser 3 \nname \nend \n'),
    [
      { id: 1, name: 'a', privilege: 'ADMINISTRATOR', enabled: true },
      { id: 2, name: '', enabled: false },
    ],
    'an empty slot may refuse to give its name; slots beyond the last are not asked about',
  );
  t.end();
});

t.test('what ipmitool says', (t) => {
  const outcome = (stderr: string): string => outcomeOf({ exitCode: 1, stdout: '', stderr }).kind;
  const none = 'Error: Unable to establish IPMI v2 / RMCP+ session';
  t.equal(outcome(`Address lookup for bmc.example failed\nCould not open socket!\n${none}`), 'silent');
  t.equal(outcome(`RAKP 2 message indicates an error : unauthorized name\n${none}`), 'auth');
  t.equal(outcome(`RAKP 2 message indicates an error : insufficient resources for session\n${none}`), 'full');
  t.equal(outcome('Set Session Privilege Level to ADMINISTRATOR failed: Unknown (0x81)'), 'auth');
  t.equal(outcome(`Set Session Privilege Level to ADMINISTRATOR failed\n${none}`), 'no-session');
  t.equal(outcome(`Authentication algorithm 0x01 is not what we requested 0x03\n${none}`), 'cipher');
  t.equal(outcome(`This BMC does not support IPMI v2 / RMCP+\n${none}`), 'old');
  t.equal(outcome(none), 'no-session');
  t.equal(outcome('Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x2)'), 'lost');
  t.equal(outcome('Set Chassis Power Control to Diag failed: Invalid data field in request'), 'failed');
  t.match(outcomeOf({ exitCode: 0, stdout: ' 01\n', stderr: 'Close Session command failed' }), {
    kind: 'done',
    closeLost: true,
  });
  t.end();
});
