/** `infrabed serve` and its callers as processes of their own. */
import t from 'tap';
import { once } from 'node:events';
import { existsSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { run, start, type RunResult } from '../../src/core/exec.js';
import { asset } from '../../src/core/paths.js';
import { openStore } from '../../src/record/store/store.js';
import { call } from '../../src/web/api/client.js';
import { wait } from '../web/things.js';
import { needsRoot } from './needs-root.js';

needsRoot(t);
t.setTimeout(600_000);

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-serve-')));
const stateDir = join(folder, 'state');
const socketPath = join(folder, 'api.sock');
const env = { INFRABED_STATE_DIR: stateDir };
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

/** One command line; of the caller's environment it has a state folder, and a server where one is given. */
function infrabed(words: string[], more: Record<string, string> = {}): Promise<RunResult> {
  const argv = ['--import=tsx', asset('test/e2e/command.ts'), ...words];
  return run(process.execPath, argv, { env: { ...env, ...more }, allowFailure: true, timeoutMs: 120_000 });
}

t.test('the same command works on this machine and through a server', async (t) => {
  const added = await infrabed(['user', 'add', 'ada']);
  t.equal(added.exitCode, 0, added.stderr);
  const token = added.stdout.trim();
  t.match(token, /^ib_[\w-]{43}$/, 'standard output is the token alone');
  t.notOk(added.stderr.includes(token));
  t.match(await infrabed(['user', 'whoami', '--json'], { SUDO_USER: 'eve' }), {
    exitCode: 0,
    stdout: '{"name":"eve","role":"operator"}\n',
  });

  const child = start(process.execPath, ['--import=tsx', asset('test/e2e/serving-child.ts'), socketPath], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env, INFRABED_LOG: 'silent' },
  });
  t.teardown(() => void child.kill('SIGKILL'));
  if (child.stdout === null) throw new Error('It has a standard output.');
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout }).on('line', (line) => lines.push(line));
  await once(reader, 'line');
  t.same(lines, [`listening at unix:${socketPath}`]);

  const remote = { INFRABED_SERVER: `unix:${socketPath}`, INFRABED_TOKEN: token, XDG_CONFIG_HOME: folder };
  t.match(await infrabed(['user', 'whoami'], remote), { exitCode: 0, stdout: 'ada (user)\n' });
  t.match(await infrabed(['user', 'list'], remote), { exitCode: 3, stderr: /^IB_NOT_ALLOWED: .*operator/ });
  t.match(await infrabed(['sweep'], remote), {
    exitCode: 2,
    stderr: /^IB_USAGE: "infrabed sweep" does not go/,
  });

  // SIGTERM in the middle of what takes long: it ends in order, its caller is told, then the server is gone.
  const signal = new AbortController().signal;
  const told: string[] = [];
  const io = {
    notify: ({ type }: { type: string }) => {
      if (type === 'phase') child.kill('SIGTERM');
      told.push(type);
    },
    ask: () => Promise.resolve(false),
  };
  const address = { kind: 'unix', socketPath } as const;
  await t.rejects(call(address, token, wait, { until: 'aborted' }, { io, signal, version: '' }), {
    code: 'IB_CANCELLED',
    message: 'The server is ending.',
  });
  const [status] = (await once(child, 'close')) as [number | null];
  t.equal(status, 0);
  t.same(lines.slice(1), ['ended', 'asked to end: The server is ending.', 'wound down']);
  t.ok(told.includes('phase'));
  t.notOk(existsSync(socketPath), 'no socket is left');
  const store = await openStore(stateDir);
  t.same(await store.db.selectFrom('controllers').selectAll().execute(), [], 'and no controller');
  await store.close();
  t.match(await infrabed(['user', 'whoami'], remote), { exitCode: 3, stderr: /no server listens there/ });
});
