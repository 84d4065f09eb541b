/** What a BMC shows through the driver, whether ipmitool and ipmi_sim are real or one program plays both. */
import type { Test } from 'tap';
import type { Power } from '../../src/testbed/driver/driver.js';
import type { IpmiBmc } from '../../src/testbed/driver/ipmi/index.js';

/** The machine is off, the log empty and has room for four, users are `infrabed` (2) and `temp` (3). */
export interface Rig {
  bmc: IpmiBmc;
  power: Power;
  /** Another handle, whose password is wrong. */
  stranger: IpmiBmc;
  /** What the machine itself says, beside the BMC. */
  isOn: () => Promise<boolean>;
}

export async function ipmiSuite(t: Test, rig: Rig): Promise<void> {
  const { bmc, power } = rig;

  await t.test('power goes on, through a cycle and a reset, and off', async (t) => {
    t.equal(await bmc.powerState(), 'off');
    await power.on();
    t.equal(await power.state(), 'on');
    t.ok(await rig.isOn());
    await power.on();
    await power.cycle();
    t.ok(await rig.isOn(), 'a cycle ends with on');
    await power.reset();
    t.ok(await rig.isOn());
    await power.off();
    t.notOk(await rig.isOn());
    t.equal(await power.state(), 'off');
  });

  await t.test('a machine that is off comes on by a cycle and by a reset', async (t) => {
    await power.cycle();
    t.ok(await rig.isOn());
    await power.off();
    await power.reset();
    t.ok(await rig.isOn());
  });

  await t.test('a machine is asked to shut down', async (t) => {
    await power.softOff();
    t.notOk(await rig.isOn());
    await power.softOff();
    t.notOk(await rig.isOn(), 'asking one that is off changes nothing');
  });

  await t.test('users come with name and privilege, empty slots without', async (t) => {
    const users = await bmc.users();
    t.match(users[1], { id: 2, name: 'infrabed', privilege: 'ADMINISTRATOR', enabled: null });
    t.match(users[2], { id: 3, name: 'temp', privilege: 'OPERATOR' });
    t.match(users[3], { id: 4, name: '', privilege: 'NO ACCESS', enabled: false });
  });

  await t.test('the event log is read as it is, and says when it was full', async (t) => {
    t.same(await bmc.selEntries(), []);
    t.match(await bmc.selInfo(), { entries: 0, freeBytes: 64, overflow: false });
    // Time stamps are the BMC's own; the rest of a record is as it was added (section 32.1).
    const event = ['0x20', '0x00', '0x04', '0x01', '0x30', '0x01', '0x09', '0xff', '0xff'];
    const add = ['raw', '0x0a', '0x44', '0', '0', '0x02', '0', '0', '0', '0', ...event];
    for (let n = 0; n < 4; n += 1) await bmc.act(add);
    await t.rejects(bmc.act(add), { code: 'IB_BMC' }, 'a full log takes no more');
    const entries = await bmc.selEntries();
    t.same(
      entries.map(({ id }) => id),
      [1, 2, 3, 4],
    );
    for (const entry of entries) {
      t.match(entry, { sensor: 'Temperature #0x30', event: /Upper Critical going high/ });
      t.match(entry.raw, /^0\d0002[0-9a-f]{8}20000401300109ffff$/);
    }
    t.match(await bmc.selInfo(), { entries: 4, freeBytes: 0, overflow: true });
  });

  await t.test('the boot device reads back through a raw request', async (t) => {
    await bmc.read(['raw', '0x00', '0x08', '0x05', '0x80', '0x04', '0x00', '0x00', '0x00']);
    const stdout = await bmc.read(['raw', '0x00', '0x09', '0x05', '0x00', '0x00']);
    t.match(stdout, /^ 01 05 (?:00|80) 04 00 00 00$/m);
    await bmc.clearBootOverride();
    t.match(await bmc.bootOverride(), { device: 'none', persistent: false, efi: false });
  });

  await t.test('the watchdog is read, and a countdown that is not told is not zero', async (t) => {
    t.same(await bmc.watchdog(), {
      running: false,
      action: 'none',
      use: 'reserved',
      initialSec: 0,
      remainingSec: null,
    });
  });

  await t.test('a request that the BMC refuses says why', async (t) => {
    await t.rejects(bmc.read(['raw', '0x06', '0x7f']), {
      code: 'IB_BMC',
      message: /Invalid command/,
      details: { completionCode: 0xc1 },
    });
  });

  await t.test('a wrong password is refused, by its own code and without the password', async (t) => {
    await t.rejects(rig.stranger.powerState(), { code: 'IB_BMC_AUTH' });
    await t.rejects(rig.stranger.powerState(), { code: 'IB_BMC_AUTH', message: /not asked again/ });
    await t.rejects(rig.stranger.users(), { code: 'IB_BMC_AUTH' });
    t.equal(await bmc.powerState(), 'off', 'the right one is still accepted');
  });
}
