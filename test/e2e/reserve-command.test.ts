// Reservations, nodes and sites from the command line, as processes of their own on a temporary state folder.
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { run, type RunResult } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { needsRoot } from './needs-root.js';

needsRoot(t);
t.setTimeout(900_000);

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-reserve-')));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));
const env = { INFRABED_STATE_DIR: join(folder, 'state'), TZ: 'Europe/Berlin' };

function infrabed(...words: string[]): Promise<RunResult> {
  const argv = ['--import=tsx', asset('test/e2e/command.ts'), ...words];
  return run(process.execPath, argv, { env, allowFailure: true, timeoutMs: 300_000 });
}

interface Lease {
  id: string;
  owner: string;
  nodes: string[];
  start: string;
  end: string;
  state: string;
  generation: number;
}

async function objects<T>(...words: string[]): Promise<T[]> {
  const { stdout, stderr, exitCode } = await infrabed(...words, '--json');
  if (exitCode !== 0) throw new Error(stderr);
  return stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as T);
}

t.test('a lease from its reservation to its end', async (t) => {
  t.match((await infrabed('lease', 'list')).stdout, /There is no lease.*infrabed reserve/);
  const made = await infrabed('reserve', '--nodes', '3', '--for', '4h', '--why', 'a fail-over');
  t.match(made, { exitCode: 0, stdout: /^l-\S+: local\/n\[01-03\] from .* \+0[12]:00 \(4h\)\n/ });
  const [lease] = await objects<Lease>('lease', 'list');
  if (lease === undefined) throw new Error('there is no lease');
  t.match(lease, {
    nodes: ['local/n01', 'local/n02', 'local/n03'],
    state: 'active',
    generation: 1,
    purpose: 'a fail-over',
    site: 'local',
  });
  t.equal(Date.parse(lease.end) - Date.parse(lease.start), 4 * 3_600_000);
  t.match(lease.start, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

  const refused = await infrabed('reserve', '--nodes', '6', '--for', '2h', '--why', 'all of it');
  t.match(refused, { exitCode: 3, stderr: /IB_NOT_ENOUGH_NODES/ });
  const line = /: infrabed (reserve .*)$/m.exec(refused.stderr)?.[1] ?? '';
  t.match(line, /--nodes 6 --for 2h --at \S+ --why 'all of it'$/);
  const words = line.replace("'all of it'", 'all_of_it').split(' ');
  t.match(await infrabed(...words), { exitCode: 0 }, 'the hint is a command line that works');

  const [extended] = await objects<Lease>('lease', 'extend', lease.id, '--by', '1s').catch(() => []);
  t.equal(extended, undefined, 'not into the next reservation');
  t.match((await infrabed('calendar', '--days', '2')).stdout, /now[^]*n01 .*[Aa][^]*A {2}l-/);
  t.match((await infrabed('slots', '--nodes', '1', '--for', '1h')).stdout, /local\/n0/);

  const release = ['lease', 'release', lease.id];
  t.match(await infrabed(...release, '--dry-run'), { exitCode: 0, stdout: /^would give back l-/ });
  t.match(await infrabed(...release), { exitCode: 2, stderr: /Nothing was given back[^]*--yes/ });
  t.match(await infrabed(...release, '--yes'), { exitCode: 0, stdout: /^released: l-/ });
  t.match(await infrabed('lease', 'extend', lease.id, '--by', '1h'), {
    exitCode: 3,
    stderr: /IB_LEASE_ENDED/,
  });
  const [next] = await objects<Lease>('lease', 'list');
  t.match(await infrabed('lease', 'transfer', next?.id ?? '', '--to', 'grace'), {
    stdout: /belongs to grace/,
  });
  t.match(
    await infrabed('lease', 'release', next?.id ?? ''),
    { stdout: /^cancelled/ },
    'not begun: no question',
  );
});

t.test('what cannot be reserved is refused with a code, a hint and the right exit status', async (t) => {
  const reserve = (nodes: string[], time: string[]): string[] => ['reserve', ...nodes, ...time, '--why', 'x'];
  const table: [string[], number, RegExp][] = [
    [reserve(['--nodes', '1'], ['--for', '0h']), 2, /^IB_LEASE_INVALID/],
    [reserve(['--nodes', '1'], ['--for', '-4h']), 2, /^IB_LEASE_INVALID/],
    [reserve(['--nodes', '1'], ['--for', '4']), 2, /^IB_USAGE: --for "4" is no duration/],
    [reserve(['--nodes', '1'], ['--for', '4h', '--at', '-2h']), 2, /^IB_LEASE_INVALID.*in the past/],
    [reserve(['--nodes', '1'], ['--for', '4h', '--at', '2027-02-30']), 2, /^IB_USAGE.*no 2027-02-30/],
    [reserve(['--nodes', '99'], ['--for', '4h']), 3, /^IB_NOT_ENOUGH_NODES.*at most 8 .*could ever be free/],
    [
      reserve(['--nodes', '1', '--tag', 'nvme'], ['--for', '4h']),
      2,
      /^IB_LEASE_INVALID.*"nvme"\.\n.*container/,
    ],
    [reserve(['--node', 'n99'], ['--for', '4h']), 2, /^IB_NODE_UNKNOWN/],
    [reserve([], ['--for', '4h']), 2, /^IB_USAGE: Which nodes/],
    [['lease', 'show', 'l-none'], 2, /^IB_LEASE_UNKNOWN/],
    [['calendar', '--days', '0'], 2, /^IB_USAGE/],
  ];
  const all = await Promise.all(table.map(([words]) => infrabed(...words)));
  for (const [index, [words, exitCode, stderr]] of table.entries()) {
    const ended = all[index]!;
    t.match(ended, { exitCode, stderr, stdout: '' }, words.join(' '));
    t.match(ended.stderr, /\n {2}\S/, `a hint: ${words.join(' ')}`);
  }
});

t.test('an operator holds a node and takes one out, and its history says so', async (t) => {
  t.match(await infrabed('node', 'maintenance', 'on', 'n08', '--why', 'new disk'), { exitCode: 0 });
  t.match(await infrabed('node', 'quarantine', 'n07', '--why', 'noise'), { exitCode: 2, stderr: /--yes/ });
  t.match(await infrabed('node', 'quarantine', 'n07', '--why', 'noise', '--yes'), { exitCode: 0 });
  t.match(await objects('node', 'list', '--state', 'quarantined'), [
    { node: 'local/n07', fault: { code: 'reported', message: 'noise' } },
  ]);
  t.match((await infrabed('node', 'show', 'n08')).stdout, /maintenance since[^]*new disk/);
  t.match((await infrabed('node', 'history', 'n07')).stdout, /quarantined .*reported; noise/);
  t.match(await infrabed('node', 'show', 'n99'), { exitCode: 2, stderr: /IB_NODE_UNKNOWN/ });
  t.match(await infrabed('reserve', '--nodes', '7', '--for', '1h', '--why', 'x'), {
    exitCode: 3,
    stderr: /at most 7 such nodes/,
  });
});

t.test('an inventory is checked, planned, taken in, and retires nodes only after a question', async (t) => {
  const file = join(folder, 'lab.yaml');
  const write = (nodes: string): void =>
    writeFileSync(file, `name: lab\nnodes:\n  - name: ${nodes}\n    backend: container\n`);
  write('a[1-2]');
  t.match(await infrabed('site', 'validate', file), { exitCode: 0, stdout: 'ok: site lab with 2 nodes\n' });
  t.match(await infrabed('site', 'add', file, '--dry-run'), { stdout: /would be enrolled: lab\/a\[1-2\]/ });
  t.match(await infrabed('site', 'add', file), { exitCode: 0, stdout: /site lab is added/ });
  write('a1');
  t.match(await infrabed('site', 'add', file), { exitCode: 2, stderr: /Nothing was changed/ });
  t.match(await infrabed('site', 'add', file, '--yes'), { exitCode: 0, stdout: /retired: lab\/a2/ });
  t.match(await objects('site', 'list'), [
    { site: 'lab', nodes: 1, retired: 1 },
    { site: 'local', nodes: 8 },
  ]);
  writeFileSync(file, 'name: lab\nnodes:\n  - name: a1\n    backend: contaner\n  - name: a1\n');
  t.match(await infrabed('site', 'validate', file), {
    exitCode: 2,
    stderr: /IB_SITE_INVALID[^]*lab\.yaml:4: .*container/,
  });
  t.match(await infrabed('site', 'validate', join(folder, 'none.yaml')), { exitCode: 2, stderr: /IB_USAGE/ });
  t.match(await infrabed('site', 'diff', 'mars'), { exitCode: 2, stderr: /IB_SITE_UNKNOWN/ });
});
