/** The checkers of BMCs, with a BMC whose answers the test sets. */
import t from 'tap';
import { checkers } from '../../checkers/index.js';
import { wasFed } from '../../checkers/bmc-watchdog.js';
import { isClearedNote } from '../../checkers/sel-contains.js';
import { InfrabedError } from '../../src/core/errors.js';
import type {
  Bmc,
  BmcUser,
  BootOverride,
  SelEntry,
  SelInfo,
  WatchdogState,
} from '../../src/testbed/driver/driver.js';
import { attribute } from '../../src/trial/gate/attribution.js';
import type { CheckContext, Json } from '../../src/trial/gate/checker.js';
import { FakeCluster } from '../trial/fake-cluster.js';

/** A BMC that says what its fields say; `answers` are those to raw requests. */
class ScriptedBmc implements Bmc {
  readonly address = '10.77.1.11';
  override: BootOverride = { device: 'none', persistent: false, efi: false };
  accounts: BmcUser[] = [];
  log: SelEntry[] = [];
  info: Partial<SelInfo> = {};
  timer: () => WatchdogState = () => stopped;
  answers: Record<string, string> = {};

  powerState = (): Promise<'on'> => Promise.resolve('on');
  bootOverride = (): Promise<BootOverride> => Promise.resolve(this.override);
  setBootOverride = (): Promise<void> => Promise.reject(new Error('a check changes nothing'));
  users = (): Promise<BmcUser[]> => Promise.resolve(this.accounts);
  selInfo = (): Promise<SelInfo> =>
    Promise.resolve({ entries: this.log.length, freeBytes: 0, overflow: false, ...this.info });
  selEntries = (): Promise<SelEntry[]> => Promise.resolve(this.log);
  watchdog = (): Promise<WatchdogState> => Promise.resolve(this.timer());
  act = (): Promise<string> => Promise.reject(new Error('a check changes nothing'));
  read(args: readonly string[]): Promise<string> {
    const answer = this.answers[args.join(' ')];
    return answer === undefined
      ? Promise.reject(new Error(`no answer to: ${args.join(' ')}`))
      : Promise.resolve(answer);
  }
}

const stopped: WatchdogState = {
  running: false,
  action: 'none',
  use: 'SMS/OS',
  initialSec: 0,
  remainingSec: 0,
};

async function verdict(name: string, table: unknown, bmc: Bmc): Promise<string> {
  const cluster = new FakeCluster();
  cluster.bmcs.set('node0', bmc);
  const checker = checkers.get(name)!;
  const parameters = checker.with.parse(table);
  const context: CheckContext = {
    cluster,
    node: 'node0',
    moment: 'immediate',
    signal: new AbortController().signal,
    commandTimeoutMs: 5000,
    taskDir: '/nowhere',
    drift: () => Promise.resolve({ changes: [], control: [], controlRecorded: true }),
  };
  const seen = JSON.parse(JSON.stringify(await checker.gather(context, parameters))) as Json;
  const evidence = checker.evidence.parse(seen);
  const { verdict, why } = checker.judge(evidence, parameters);
  return `${verdict}: ${why}`;
}

const user = (id: number, name: string, privilege: string, enabled: boolean | null = true): BmcUser => ({
  id,
  name,
  privilege,
  enabled,
});

t.test('bmc-user-absent: gone means neither disabled, nor renamed, nor without a name', async (t) => {
  const bmc = new ScriptedBmc();
  const say = (accounts: BmcUser[], table: object = {}): Promise<string> => {
    bmc.accounts = accounts;
    return verdict('bmc-user-absent', { name: 'installer', keep: ['ops'], ...table }, bmc);
  };
  const ops = user(3, 'ops', 'ADMINISTRATOR', null);
  const empty = user(1, '', 'Unknown (0x00)', null);
  t.equal(await say([empty, ops]), 'pass: no user is called installer; ops may log in');
  t.equal(
    await say([empty, ops, user(9, '', 'NO ACCESS', false)]),
    'pass: no user is called installer; ops may log in',
  );
  t.match(
    await say([ops, user(9, 'installer', 'ADMINISTRATOR')]),
    /^fail: .*still there \(id 9, ADMINISTRATOR\)/,
  );
  t.match(await say([ops, user(9, 'installer', 'NO ACCESS', false)]), /^fail: .*disabled, but not removed/);
  t.match(
    await say([ops, user(9, '', 'OPERATOR', null)]),
    /^fail: user 9 has no name but may log in as OPERATOR/,
  );
  t.match(await say([empty]), /^fail: the user "ops" was to be left, and is gone/);
  t.match(await say([user(3, 'ops', 'NO ACCESS')]), /^fail: .*may no longer log in/);
  t.match(await say([user(3, 'ops', 'OPERATOR', false)]), /^fail: .*may no longer log in/);
  t.match(await say([user(4, 'b', 'USER')], { name: ['a', 'b'], keep: [] }), /^fail: the user "b"/);
});

t.test('bmc-boot-override: none unless something else is named, its bytes kept', async (t) => {
  const bmc = new ScriptedBmc();
  bmc.answers['raw 0x00 0x09 0x05 0x00 0x00'] = ' 01 05 c0 04 00 00 00\n';
  const say = (override: BootOverride, table: object = {}): Promise<string> => {
    bmc.override = override;
    return verdict('bmc-boot-override', table, bmc);
  };
  const none: BootOverride = { device: 'none', persistent: false, efi: false };
  const pxe: BootOverride = { device: 'pxe', persistent: true, efi: false };
  t.equal(await say(none), 'pass: the BMC has no boot override');
  t.match(await say(pxe), /^fail: the BMC tells the node to boot from pxe every time, where no override is/);
  t.match(await say({ ...none, device: 'disk' }), /^fail: .*from disk the next time, where no override/);
  t.match(await say(pxe, { device: 'pxe' }), /^pass/);
  t.match(await say(pxe, { device: 'pxe', persistent: false }), /^fail: .*where pxe the next time only is/);
  t.match(await say(pxe, { device: 'pxe', efi: true }), /^fail: .*where pxe by EFI is/);
  t.match(await say(none, { device: 'disk' }), /^fail: the BMC has no boot override, where disk is expected/);
  t.throws(() => checkers.get('bmc-boot-override')!.with.parse({ device: 'network' }));
});

const entry = (id: number, sensor: string, event: string, raw: string): SelEntry => ({
  id,
  time: '2026-01-02T03:04:05Z',
  sensor,
  event,
  raw,
});
const hot = entry(1, 'Temperature #0x30', 'Upper Critical going high', '0100020000000020000401300159410f');
const cleared = entry(
  2,
  'Event Logging Disabled #0x51',
  'Log area reset/cleared',
  '020002000000002000041051 6f02ffff'.replace(' ', ''),
);

t.test(
  'sel-contains: entries, their number and lost events; the note of a cleared log is no event',
  async (t) => {
    const bmc = new ScriptedBmc();
    const say = (log: SelEntry[], table: object, info: Partial<SelInfo> = {}): Promise<string> => {
      Object.assign(bmc, { log, info });
      return verdict('sel-contains', table, bmc);
    };
    t.ok(isClearedNote(cleared));
    t.notOk(isClearedNote(hot));
    t.notOk(isClearedNote({ raw: '' }));
    t.equal(await say([cleared], { max_entries: 0, overflow: false }), 'pass: the log has 1 entry');
    t.match(await say([hot, cleared], { max_entries: 0 }), /^fail: the log has 2 entries, more than 0/);
    t.match(await say([hot], { min_entries: 2 }), /^fail: the log has 1 entry, fewer than 2/);
    t.match(await say([hot], { present: ['Temperature', 'going high$'] }), /^pass/);
    t.match(await say([hot], { present: 'Watchdog' }), /^fail: none of 1 entry matches \/Watchdog\//);
    t.match(await say([hot], { absent: 'Upper Critical' }), /^fail: "Temperature #0x30 Upper/);
    t.match(
      await say([], { overflow: false }, { overflow: true }),
      /^fail: the log says that events were lost/,
    );
    t.match(await say([], { overflow: true }), /^fail: the log has not overflowed/);
    t.match(checkers.get('sel-contains')!.with.safeParse({}), { success: false });
  },
);

t.test('bmc-watchdog: runs, does what it should, and is fed by somebody', async (t) => {
  const bmc = new ScriptedBmc();
  const armed: WatchdogState = {
    running: true,
    action: 'power-cycle',
    use: 'SMS/OS',
    initialSec: 300,
    remainingSec: 300,
  };
  const begun = Date.now();
  const unfed = (): WatchdogState => ({ ...armed, remainingSec: 200 - (Date.now() - begun) / 1000 });
  const say = (timer: () => WatchdogState, table: object): Promise<string> => {
    bmc.timer = timer;
    return verdict('bmc-watchdog', table, bmc);
  };
  let left = 100;
  const fed = (): WatchdogState => ({ ...armed, remainingSec: left++ });
  t.match(
    await say(fed, { fed: true, action: 'power-cycle', initial_sec: 300 }),
    /^pass: the watchdog is fed/,
  );
  t.match(await say(unfed, { fed: true, within_sec: 1.5 }), /^fail: nothing fed the watchdog within/);
  t.match(await say(unfed, { fed: false, within_sec: 1.5 }), /^pass: nothing feeds the watchdog/);
  t.match(await say(fed, { fed: false }), /^fail: something feeds the watchdog/);
  t.match(
    await say(() => stopped, { fed: true }),
    /^fail: the watchdog is stopped: nothing would reset the node/,
  );
  t.match(await say(() => stopped, { running: false }), /^pass: the watchdog is stopped/);
  t.match(await say(unfed, { action: 'reset' }), /^fail: the watchdog would do "power-cycle", not "reset"/);
  t.match(await say(unfed, { initial_sec: 60 }), /^fail: the watchdog counts down from 300 s, not from 60 s/);
  const silent = (): WatchdogState => ({ ...armed, remainingSec: null });
  t.match(await say(silent, {}), /^pass: the watchdog runs/);
  await t.rejects(say(silent, { fed: true, within_sec: 0.1 }), { code: 'IB_BMC' });
});

t.test('a watchdog is fed when more is left than a countdown leaves, however slow the answers', (t) => {
  const reading = (askedAt: number, answeredAt: number, remainingSec: number) => ({
    ...stopped,
    running: true,
    askedAt,
    answeredAt,
    remainingSec,
  });
  t.notOk(wasFed([]));
  t.notOk(wasFed([reading(0, 100, 50)]));
  t.notOk(wasFed([reading(0, 100, 50), reading(5000, 5100, 45)]));
  t.notOk(wasFed([reading(0, 6000, 44), reading(7000, 13_000, 37)]), 'slow answers prove nothing');
  t.ok(wasFed([reading(0, 100, 50), reading(5000, 5100, 48)]), 'fed, though less is left than before');
  t.ok(wasFed([reading(0, 100, 50), reading(1000, 1100, 49), reading(2000, 2100, 60)]));
  t.end();
});

t.test('bmc-alerting: the log is written and alerts are raised', async (t) => {
  const bmc = new ScriptedBmc();
  const say = (
    enables: string,
    control: string,
    policy: string,
    table: object = { policies: [2] },
  ): Promise<string> => {
    bmc.answers = {
      'raw 0x06 0x2f': enables,
      'raw 0x04 0x13 0x01 0x00 0x00': control,
      'raw 0x04 0x13 0x09 0x02 0x00': policy,
    };
    return verdict('bmc-alerting', table, bmc);
  };
  t.equal(
    await say(' 08\n', ' 11 0f\n', ' 11 02 18 00 00\n'),
    'pass: events are logged and alerts raised, by policy 2',
  );
  t.match(await say('00', '11 0f', '11 02 18 00 00'), /^fail: the BMC no longer writes events/);
  t.match(await say('08', '11 0e', '11 02 18 00 00'), /^fail: platform event filtering is off/);
  t.match(await say('08', '11 0f', '11 02 10 00 00'), /^fail: entry 2 of the alert policies is not enabled/);
  t.match(await say('00', '11 00', '', { logging: false, alerting: false }), /^pass: events are not logged/);
  await t.rejects(say('08', '11', '11 02 18 00 00'), { code: 'IB_BMC', details: { node: 'node0' } });
  await t.rejects(say('', '11 0f', ''), { code: 'IB_BMC' });
});

t.test(
  'a BMC that cannot be asked is nobody’s fault, one that refuses the controller its node’s',
  async (t) => {
    const blame = async (code: 'IB_BMC_AUTH' | 'IB_BMC_UNREACHABLE' | 'IB_BMC' | 'IB_BMC_NONE') => {
      const error = new InfrabedError(code, 'x');
      return attribute(error, 'node0', new FakeCluster(), new AbortController().signal);
    };
    t.match(await blame('IB_BMC_AUTH'), { outcome: 'unreachable', blame: 'node' });
    t.match(await blame('IB_BMC_UNREACHABLE'), { outcome: 'unreachable', blame: 'unknown' });
    t.match(await blame('IB_BMC'), { outcome: 'unreachable', blame: 'unknown' });
    t.match(await blame('IB_BMC_NONE'), { outcome: 'fault' }, 'a task that asks a node without one');
  },
);
