/** The judges alone, from evidence as a bundle keeps it: each way to pass, each way to fail, and the bounds between. */
import t from 'tap';
import { checkers } from '../../checkers/index.js';

/** Parameters, evidence, and the verdict with its sentence. */
type Case = readonly [parameters: object, evidence: object, expected: string];

function judged(name: string, parameters: object, evidence: object): string {
  const checker = checkers.get(name)!;
  const { verdict, why } = checker.judge(checker.evidence.parse(evidence), checker.with.parse(parameters));
  return `${verdict}: ${why}`;
}

function judges(name: string, cases: readonly Case[]): void {
  t.test(`${name} judges by its evidence alone`, (t) => {
    for (const [parameters, evidence, expected] of cases)
      t.equal(judged(name, parameters, evidence), expected, JSON.stringify(parameters));
    t.end();
  });
}

const ran = { exitCode: 0, signal: null, timedOut: false, truncated: false, stdout: '', stderr: '' };
const script = 'checks/x.sh';
const shellCases: Case[] = [
  [{ script }, { ...ran, timedOut: true }, 'fail: the script did not end in time'],
  [{ script }, { ...ran, truncated: true }, 'fail: the script printed more than is kept'],
  [{ script }, { ...ran, exitCode: 1 }, 'fail: the script ended with status 1, not 0'],
  [{ script }, { ...ran, exitCode: 1, stdout: 'out' }, 'fail: the script ended with status 1, not 0: out'],
  [
    { script },
    { ...ran, exitCode: 1, stdout: 'out', stderr: 'no\n such' },
    'fail: the script ended with status 1, not 0: no such',
  ],
  [
    { script },
    { ...ran, exitCode: null, signal: 'SIGKILL' },
    'fail: the script ended with signal SIGKILL, not 0',
  ],
  [{ script, expect_status: 3 }, { ...ran, exitCode: 3 }, 'pass: the script ended with status 3'],
  [{ script, expect_status: 3 }, ran, 'fail: the script ended with status 0, not 3'],
  [{ script, expect_stdout: 'a\n' }, { ...ran, stdout: ' a\n' }, 'pass: the script printed "a"'],
  [{ script, expect_stdout: 'a' }, { ...ran, stdout: 'ab' }, 'fail: the script printed "ab", not "a"'],
  [{ script, expect_stdout_matches: '^b$' }, { ...ran, stdout: 'a\nb' }, 'pass: the script printed "a b"'],
  [
    { script, expect_stdout_matches: '^c$' },
    { ...ran, stdout: 'abc' },
    'fail: the script printed "abc", which does not match /^c$/',
  ],
  [{ script, expect_json: { up: 3 } }, { ...ran, stdout: '{"up": 3, "down": 0}' }, 'pass: up as expected'],
  [{ script, expect_json: { up: 3 } }, { ...ran, stdout: '{"up": "3"}' }, 'fail: up is "3", not 3'],
  [{ script, expect_json: { up: 3 } }, { ...ran, stdout: '{}' }, 'fail: up is not there, not 3'],
  [
    { script, expect_json: { up: 3 } },
    { ...ran, stdout: 'up: 3' },
    'fail: the script printed no JSON object but "up: 3"',
  ],
  [
    { script, expect_json: { up: 3 } },
    { ...ran, stdout: 'null' },
    'fail: the script printed no JSON object but "null"',
  ],
  // Its own word counts only where nothing else was asked of it.
  [{ script }, { ...ran, stdout: '{"pass": false, "why": "one is down"}' }, 'fail: one is down'],
  [{ script }, { ...ran, stdout: '{"pass": true, "why": "all up"}' }, 'pass: all up'],
  [{ script }, { ...ran, stdout: '{"pass": false}' }, 'fail: the script says {"pass":false}'],
  [{ script }, { ...ran, stdout: '{"pass": "yes"}' }, 'pass: the script ended with status 0'],
  [
    { script, expect_stdout_matches: 'down' },
    { ...ran, stdout: '{"pass": true, "why": "all up"}' },
    'fail: the script printed "{"pass": true, "why": "all up"}", which does not match /down/',
  ],
];

const absentFile = { type: 'absent', mode: null, owner: null, group: null, sizeBytes: null, sha256: null };
const notThere = { ...absentFile, content: null, truncated: false };
const held = {
  type: 'file',
  mode: '0640',
  owner: 'root',
  group: 'adm',
  sizeBytes: 4,
  sha256: 'x',
  content: 'a=1\n',
  truncated: false,
};
const path = '/etc/x';
const fileContentVerdicts: readonly [object, object, 'pass' | 'fail'][] = [
  [{ path, contains: 'a' }, notThere, 'fail'],
  [{ path, contains: 'a' }, { ...notThere, type: 'symlink' }, 'fail'],
  [{ path, contains: 'a' }, { ...held, content: null }, 'fail'],
  [{ path, equals: 'a=1' }, held, 'pass'],
  [{ path, equals: 'a=' }, held, 'fail'],
  [{ path, contains: ['a', '1'] }, held, 'pass'],
  [{ path, contains: ['a', '2'] }, held, 'fail'],
  [{ path, not_contains: 'b' }, held, 'pass'],
  [{ path, not_contains: ['b', 'a'] }, held, 'fail'],
  // What was cut off may hold it: unseen is not absent.
  [{ path, not_contains: 'b' }, { ...held, truncated: true }, 'fail'],
  [{ path, not_matches: '^b' }, { ...held, truncated: true }, 'fail'],
  [{ path, matches: '^a=\\d$' }, held, 'pass'],
  [{ path, matches: '^b' }, held, 'fail'],
  [{ path, not_matches: '^b' }, held, 'pass'],
  [{ path, not_matches: '^a' }, held, 'fail'],
  [{ path, mode: '640' }, held, 'pass'],
  [{ path, mode: '0600' }, held, 'fail'],
  [{ path, owner: 'root', group: 'adm' }, held, 'pass'],
  [{ path, owner: 'mail' }, held, 'fail'],
  [{ path, owner: 'root', group: 'root' }, held, 'fail'],
];

const answer = {
  url: 'http://n/',
  status: 200,
  error: null,
  headers: {},
  body: 'hello\nworld',
  durationMs: 9,
};
const httpCases: Case[] = [
  [{ port: 80 }, { ...answer, status: null, error: 'refused' }, 'fail: http://n/ gave no answer: refused'],
  [{ port: 80 }, { ...answer, status: 302 }, 'fail: http://n/ answered 302, not 200'],
  [{ port: 80, status: [200, 302] }, { ...answer, status: 302 }, 'pass: http://n/ answered 302 in 9 ms'],
  [{ port: 80, status: [301, 302] }, answer, 'fail: http://n/ answered 200, not 301 or 302'],
  [
    { port: 80, body_contains: ['hello', 'moon'] },
    answer,
    'fail: the body of http://n/ does not hold "moon"',
  ],
  [{ port: 80, body_matches: '^moon' }, answer, 'fail: the body of http://n/ does not match /^moon/'],
  [{ port: 80, body_matches: '^world$', max_ms: 9 }, answer, 'pass: http://n/ answered 200 in 9 ms'],
  [{ port: 80, max_ms: 8 }, answer, 'fail: http://n/ took 9 ms, more than 8'],
];

const changed = (subject: string): object => ({
  node: 'node0',
  kind: 'file',
  subject,
  change: 'added',
  before: null,
  after: 'x',
});
const drift = { changes: [], total: 0, byControl: 2, controlRecorded: true };
const four = ['/a', '/b', '/c', '/d'].map(changed);
const driftCases: Case[] = [
  [{}, drift, 'pass: no change beyond the 0 allowed and 2 usual ones'],
  [
    {},
    { ...drift, controlRecorded: false },
    'pass: no change beyond the 0 allowed and 2 usual ones (no control trial is recorded to compare with)',
  ],
  [
    {},
    { ...drift, changes: four, total: 4 },
    'fail: file:/a added on node0, file:/b added on node0, file:/c added on node0 and 1 more',
  ],
  [
    { allow: ['file:/[abc]'] },
    { ...drift, changes: four.slice(3), total: 1, controlRecorded: false },
    'fail: file:/d added on node0 (no control trial is recorded to compare with)',
  ],
  [
    { allow: ['file:/*'] },
    { ...drift, changes: four, total: 4 },
    'pass: no change beyond the 4 allowed and 2 usual ones',
  ],
  // All that was kept is allowed, but not all was kept.
  [
    { allow: ['file:/*'] },
    { ...drift, changes: four, total: 900 },
    'fail: 900 changes are more than can be looked through',
  ],
];

const login = (node: string, why: string | null): object => ({ node, reachable: why === null, why });
const reachableCases: Case[] = [
  [{}, { nodes: [login('node0', null), login('node1', null)] }, 'pass: node0, node1: a fresh login works'],
  [
    {},
    { nodes: [login('node0', null), login('node1', 'refused'), login('node2', 'no answer')] },
    'fail: node1 cannot be logged in to: refused; node2 cannot be logged in to: no answer',
  ],
];

const dpkg = (status: string | null, version: string | null, atLeast: boolean | null = null): object => ({
  packages: [{ name: 'nginx', status, version, atLeast }],
});
const packageCases: Case[] = [
  [{ package: 'nginx' }, dpkg('installed', '1.22'), 'pass: nginx: installed'],
  [{ package: 'nginx' }, dpkg('half-configured', '1.22'), 'fail: nginx is half-configured'],
  [{ package: 'nginx' }, dpkg(null, null), 'fail: nginx is unknown to dpkg'],
  [{ package: 'nginx', state: 'absent' }, dpkg(null, null), 'pass: nginx: absent'],
  [{ package: 'nginx', state: 'absent' }, dpkg('not-installed', null), 'pass: nginx: absent'],
  [{ package: 'nginx', state: 'absent' }, dpkg('config-files', '1.22'), 'fail: nginx is config-files'],
  [
    { package: 'nginx', version: '1.24' },
    dpkg('installed', '1.22'),
    'fail: nginx has version 1.22, not 1.24',
  ],
  [
    { package: 'nginx', min_version: '1.24' },
    dpkg('installed', '1.22', false),
    'fail: nginx has version 1.22, below 1.24',
  ],
  // dpkg that did not say is not dpkg that said yes.
  [
    { package: 'nginx', min_version: '1.20' },
    dpkg('installed', '1.22', null),
    'fail: nginx has version 1.22, below 1.20',
  ],
  [{ package: 'nginx', min_version: '1.20' }, dpkg('installed', '1.22', true), 'pass: nginx: installed'],
];

const pinged = (sent: number, received: number, error: string | null = null): object => ({
  address: '10.77.0.12',
  sent,
  received,
  error,
});
const came = (received: number, sent: number): string =>
  `${String(received)} of ${String(sent)} packets of 56 bytes came back from 10.77.0.12`;
const pingCases: Case[] = [
  [{ to: 'node1' }, pinged(3, 3), `pass: ${came(3, 3)}`],
  [{ to: 'node1' }, pinged(3, 2), `fail: ${came(2, 3)}`],
  [{ to: 'node1' }, pinged(0, 0, 'unreachable'), `fail: ${came(0, 0)} (unreachable)`],
  [{ to: 'node1', max_loss: 25 }, pinged(4, 3), `pass: ${came(3, 4)}`],
  [{ to: 'node1', max_loss: 24 }, pinged(4, 3), `fail: ${came(3, 4)}`],
  [{ to: 'node1', max_loss: 100 }, pinged(3, 0), `fail: ${came(0, 3)}`],
  [{ to: 'node1', reply: false }, pinged(3, 0), `pass: ${came(0, 3)}`],
  [{ to: 'node1', reply: false }, pinged(3, 1), `fail: ${came(1, 3)}`],
];

const port = { address: '10.77.0.11', open: true, error: null, banner: null, durationMs: 1 };
const shut = { ...port, open: false, error: 'refused' };
const portCases: Case[] = [
  [{ port: 22 }, port, 'pass: port 22 of 10.77.0.11 answers'],
  [{ port: 22 }, shut, 'fail: port 22 of 10.77.0.11 does not answer: refused'],
  [{ port: 22, open: false }, shut, 'pass: port 22 of 10.77.0.11 does not answer (refused)'],
  [{ port: 22, open: false }, port, 'fail: port 22 of 10.77.0.11 answers'],
  [
    { port: 22, banner: '^SSH-2' },
    port,
    'fail: port 22 of 10.77.0.11 answers "", which does not match /^SSH-2/',
  ],
  [{ port: 22, banner: '^SSH-2' }, { ...port, banner: 'SSH-2.0-x' }, 'pass: port 22 of 10.77.0.11 answers'],
];

const feeder = { pid: 7, user: 'root', name: 'feeder', command: 'sh feeder --once' };
const bare = { pid: 9, user: 'mail', name: 'feeder', command: '' };
const processCases: Case[] = [
  [{ name: 'other' }, { processes: [feeder, bare] }, 'pass: none of 2 processes matches'],
  [{ command: '^sh .*once$' }, { processes: [feeder] }, 'fail: process 7 of root runs: sh feeder --once'],
  [{ name: 'feeder', user: 'www' }, { processes: [feeder, bare] }, 'pass: none of 2 processes matches'],
  [{ user: 'mail' }, { processes: [feeder, bare] }, 'fail: process 9 of mail runs: feeder'],
  [
    { name: 'feeder' },
    { processes: [feeder, bare] },
    'fail: process 7 of root runs: sh feeder --once and 1 more',
  ],
];

const entry = (id: number, sensor: string, event: string): object => ({
  id,
  time: null,
  sensor,
  event,
  raw: '',
});
const log = {
  entries: 2,
  freeBytes: 100,
  overflow: false,
  log: [entry(1, 'Temperature #0x01', 'Upper Critical'), entry(2, 'Watchdog2 #0x02', 'Power cycle')],
};
const selCases: Case[] = [
  [{ present: ['Watchdog2', 'Upper'] }, log, 'pass: the log has 2 entries'],
  [{ present: ['Watchdog2', 'Fan'] }, log, 'fail: none of 2 entries matches /Fan/'],
  [
    { absent: ['Fan', 'Watchdog2'] },
    log,
    'fail: "Watchdog2 #0x02 Power cycle" is in the log, which matches /Watchdog2/',
  ],
  [{ absent: 'Fan' }, { ...log, overflow: true }, 'pass: the log has 2 entries and has overflowed'],
  [{ min_entries: 2 }, log, 'pass: the log has 2 entries'],
  [{ min_entries: 3 }, log, 'fail: the log has 2 entries, fewer than 3'],
  [{ max_entries: 2 }, log, 'pass: the log has 2 entries'],
  [{ max_entries: 1 }, log, 'fail: the log has 2 entries, more than 1'],
  [
    { max_entries: 0 },
    { ...log, entries: 1, log: log.log.slice(1) },
    'fail: the log has 1 entry, more than 0',
  ],
  [{ overflow: false }, log, 'pass: the log has 2 entries'],
  [{ overflow: true }, log, 'fail: the log has not overflowed'],
  [{ overflow: false }, { ...log, overflow: true }, 'fail: the log says that events were lost'],
];

const asked = { exitCode: 0, timedOut: false, truncated: false, rows: [['1', null]], rowCount: 1, error: '' };
const sql = { query: 'SELECT 1', database: 'd', user: 'u' };
const two = { ...asked, rows: [['1'], ['2']], rowCount: 2 };
const sqlCases: Case[] = [
  [sql, asked, 'pass: the query gave ["1",null]'],
  [sql, two, 'pass: the query gave 2 rows'],
  [sql, { ...asked, timedOut: true }, 'fail: the database did not answer in time'],
  [{ ...sql, expect_error: 'x' }, { ...asked, timedOut: true }, 'fail: the database did not answer in time'],
  [sql, { ...asked, exitCode: 2, error: 'no route' }, 'fail: the query failed: no route'],
  [sql, { ...asked, exitCode: null }, 'fail: the query failed: no message'],
  [sql, { ...asked, truncated: true }, 'fail: the query gave more than is kept'],
  [{ ...sql, expect_rows: [['1'], ['2']] }, two, 'pass: the query gave 2 rows'],
  [{ ...sql, expect_rows: [['1', '']] }, asked, 'fail: the query gave [["1",null]], not [["1",""]]'],
  [{ ...sql, expect_rows: [['2'], ['1']] }, two, 'fail: the query gave [["1"],["2"]], not [["2"],["1"]]'],
  [{ ...sql, min_rows: 2, max_rows: 2 }, two, 'pass: the query gave 2 rows'],
  [{ ...sql, min_rows: 2 }, asked, 'fail: the query gave 1 row, fewer than 2'],
  [{ ...sql, max_rows: 1 }, two, 'fail: the query gave 2 rows, more than 1'],
  [
    { ...sql, expect_error: 'denied' },
    asked,
    'fail: the query went through, though it was to fail with /denied/',
  ],
  [
    { ...sql, expect_error: 'denied' },
    { ...asked, exitCode: 2, error: 'no route' },
    'fail: it failed with "no route", which does not match /denied/',
  ],
  [
    { ...sql, expect_error: 'denied' },
    { ...asked, exitCode: 3, error: 'permission denied' },
    'pass: refused: permission denied',
  ],
];

const unit = 'x.service';
const loaded = {
  LoadState: 'loaded',
  ActiveState: 'active',
  SubState: 'running',
  UnitFileState: 'enabled',
  Result: 'success',
  NRestarts: '0',
  FragmentPath: '/x',
};
const gone = {
  ...loaded,
  LoadState: 'not-found',
  ActiveState: 'inactive',
  SubState: 'dead',
  UnitFileState: '',
};
const unitCases: Case[] = [
  [{ unit }, loaded, 'pass: x.service is active and enabled'],
  [{ unit }, gone, 'fail: x.service does not exist'],
  [{ unit, active: 'any', enabled: 'any' }, gone, 'fail: x.service does not exist'],
  [{ unit, active: 'inactive', enabled: 'any' }, gone, 'pass: x.service is inactive and without a unit file'],
  [
    { unit, active: ['inactive', 'failed'] },
    loaded,
    'fail: x.service is active (running), not inactive or failed',
  ],
  [{ unit }, { ...loaded, UnitFileState: 'disabled' }, 'fail: x.service is active but disabled, not enabled'],
];

const found = [{ path: '/tmp/a', type: 'file' }];
const absentCases: Case[] = [
  [{ path: ['/tmp/a', '/tmp/b'] }, { found: [], total: 0 }, 'pass: nothing at /tmp/a, /tmp/b'],
  [{ path: '/tmp/a' }, { found, total: 1 }, 'fail: /tmp/a is still there (file)'],
  [{ path: '/tmp/*' }, { found, total: 250 }, 'fail: /tmp/a is still there (file) and 249 more'],
];

const test = { exitCode: 0, reward: 0.5, rewardFile: 'reward.txt', output: '' };
const harborCases: Case[] = [
  [{}, { ...test, reward: 1 }, 'pass: tests/test.sh gave the reward 1'],
  [{}, test, 'fail: tests/test.sh gave the reward 0.5, below 1'],
  [{ threshold: 0.5 }, test, 'pass: tests/test.sh gave the reward 0.5'],
  // A status of 0 is no reward.
  [
    { threshold: 0 },
    { ...test, reward: null, rewardFile: null, output: 'done' },
    'fail: tests/test.sh left no reward (status 0): done',
  ],
];

const person = (
  id: number,
  name: string,
  privilege = 'ADMINISTRATOR',
  enabled: boolean | null = true,
): object => ({
  id,
  name,
  privilege,
  enabled,
});
const userCases: Case[] = [
  [{ name: 'lab' }, { users: [] }, 'pass: no user is called lab'],
  [
    { name: ['lab', 'tmp'], keep: ['ops'] },
    { users: [person(3, 'ops')] },
    'pass: no user is called lab or tmp; ops may log in',
  ],
  [
    { name: 'lab' },
    { users: [person(4, 'lab')] },
    'fail: the user "lab" is still there (id 4, ADMINISTRATOR)',
  ],
  [
    { name: 'lab' },
    { users: [person(4, 'lab', 'NO ACCESS', false)] },
    'fail: the user "lab" is still there (id 4, disabled, but not removed)',
  ],
  [{ name: 'lab' }, { users: [person(4, '', 'USER')] }, 'fail: user 4 has no name but may log in as USER'],
  // Whether it is enabled is not known: then it may be.
  [
    { name: 'lab' },
    { users: [person(4, '', 'USER', null)] },
    'fail: user 4 has no name but may log in as USER',
  ],
  [{ name: 'lab', keep: ['ops'] }, { users: [] }, 'fail: the user "ops" was to be left, and is gone'],
  [
    { name: 'lab', keep: ['ops'] },
    { users: [person(3, 'ops', 'ADMINISTRATOR', false)] },
    'fail: the user "ops" was to be left, and may no longer log in',
  ],
];

const override = { device: 'pxe', persistent: false, efi: false, raw: '01 05 80' };
const overrideCases: Case[] = [
  [{}, { ...override, device: 'none' }, 'pass: the BMC has no boot override'],
  [
    {},
    { ...override, persistent: true, efi: true },
    'fail: the BMC tells the node to boot from pxe every time by EFI, where no override is expected',
  ],
  [{ device: 'pxe' }, override, 'pass: the BMC tells the node to boot from pxe the next time'],
  [
    { device: 'pxe', persistent: true, efi: true },
    override,
    'fail: the BMC tells the node to boot from pxe the next time, where pxe every time, by EFI is expected',
  ],
  [
    { device: 'disk', persistent: false, efi: false },
    override,
    'fail: the BMC tells the node to boot from pxe the next time, where disk the next time only, not by EFI is expected',
  ],
];

const alerting = {
  globalEnables: '09',
  pefControl: '11 01',
  policies: [{ entry: 1, raw: '11 01 08 11' }],
};
const alertingCases: Case[] = [
  [{ policies: [1] }, alerting, 'pass: events are logged and alerts raised, by policy 1'],
  [{}, { ...alerting, globalEnables: '01' }, 'fail: the BMC no longer writes events into its log'],
  [{ logging: false }, alerting, 'fail: the BMC writes events into its log'],
  [{}, { ...alerting, pefControl: '11 00' }, 'fail: platform event filtering is off: no alert is raised'],
  [{ alerting: false }, alerting, 'fail: platform event filtering is on: alerts are raised'],
  [
    { logging: false, alerting: false },
    { globalEnables: '01', pefControl: '11 00', policies: [] },
    'pass: events are not logged and alerts not raised',
  ],
  [
    { policies: [1] },
    { ...alerting, policies: [{ entry: 1, raw: '11 01 00 11' }] },
    'fail: entry 1 of the alert policies is not enabled',
  ],
];

const at = (atMs: number, remainingSec: number | null, fields: object = {}): object => ({
  askedAt: atMs,
  answeredAt: atMs,
  running: true,
  action: 'power-cycle',
  use: 'os',
  initialSec: 300,
  remainingSec,
  ...fields,
});
const watchdogCases: Case[] = [
  [{}, { readings: [at(0, 250)] }, 'pass: the watchdog runs: 250 of 300 s are left'],
  [{}, { readings: [at(0, null)] }, 'pass: the watchdog runs: ? of 300 s are left'],
  [
    {},
    { readings: [at(0, 0, { running: false })] },
    'fail: the watchdog is stopped: nothing would reset the node',
  ],
  [{ running: false }, { readings: [at(0, 0, { running: false })] }, 'pass: the watchdog is stopped'],
  [{ running: false }, { readings: [at(0, 250)] }, 'fail: the watchdog runs'],
  [{ action: 'reset' }, { readings: [at(0, 250)] }, 'fail: the watchdog would do "power-cycle", not "reset"'],
  [
    { initial_sec: 60 },
    { readings: [at(0, 250)] },
    'fail: the watchdog counts down from 300 s, not from 60 s',
  ],
  [
    { fed: true },
    { readings: [at(0, 250), at(5000, 299)] },
    'pass: the watchdog is fed: 299 of 300 s are left',
  ],
  [
    { fed: true },
    { readings: [at(0, 250), at(5000, 245)] },
    'fail: nothing fed the watchdog within 5 s: 245 of 300 s are left',
  ],
  // One second more than a countdown leaves is within what clocks differ by.
  [
    { fed: false },
    { readings: [at(0, 250), at(5000, 246)] },
    'pass: nothing feeds the watchdog: 246 of 300 s are left',
  ],
  [{ fed: false }, { readings: [at(0, 250), at(5000, 299)] }, 'fail: something feeds the watchdog'],
  // The last reading counts: it ran when it was first looked at.
  [
    { fed: true },
    { readings: [at(0, 250), at(5000, 0, { running: false })] },
    'fail: the watchdog is stopped: nothing would reset the node',
  ],
];

const tried: ReadonlyMap<string, readonly Case[]> = new Map([
  ['shell', shellCases],
  ['http-probe', httpCases],
  ['no-drift', driftCases],
  ['nodes-reachable', reachableCases],
  ['package-state', packageCases],
  ['ping-path', pingCases],
  ['port-open', portCases],
  ['process-absent', processCases],
  ['sel-contains', selCases],
  ['sql-query', sqlCases],
  ['unit-state', unitCases],
  ['file-absent', absentCases],
  ['harbor-test', harborCases],
  ['bmc-user-absent', userCases],
  ['bmc-boot-override', overrideCases],
  ['bmc-alerting', alertingCases],
  ['bmc-watchdog', watchdogCases],
  // Its sentences are long; its verdicts are tried below.
  ['file-content', []],
]);
t.test('no checker is left out', (t) => {
  t.same(
    [...checkers.keys()].filter((name) => !tried.has(name)),
    [],
  );
  t.end();
});

for (const [name, cases] of tried) if (cases.length > 0) judges(name, cases);

t.test('file-content judges by its evidence alone', (t) => {
  for (const [parameters, evidence, expected] of fileContentVerdicts)
    t.match(judged('file-content', parameters, evidence), new RegExp(`^${expected}: /etc/x `), {
      parameters,
      evidence,
    });
  t.end();
});
