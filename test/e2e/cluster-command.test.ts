/** `infrabed cluster` as a person uses it: make, log in, end, two at once, and a kill in the middle. */
import t from 'tap';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '../../src/core/clock.js';
import { run, start } from '../../src/core/exec.js';
import type { RunOptions, RunResult } from '../../src/core/exec.js';
import { asset, stateDir as defaultStateDir } from '../../src/core/paths.js';
import { openStore } from '../../src/record/store/store.js';
import { imageCacheDir } from '../../src/testbed/driver/container/index.js';

t.setTimeout(900_000);

const skip = process.getuid?.() === 0 ? false : 'container nodes need root';
const argv = (...words: string[]): string[] => ['--import=tsx', asset('test/e2e/command.ts'), ...words];

/** Name of the first cluster folder, if there is one by now. */
function begunCluster(stateDir: string): string | undefined {
  const folder = join(stateDir, 'clusters');
  return existsSync(folder) ? readdirSync(folder).at(0) : undefined;
}

t.test('infrabed cluster', { skip }, async (t) => {
  const stateDir = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-command-')));
  const env = {
    INFRABED_STATE_DIR: stateDir,
    INFRABED_IMAGE_CACHE: process.env['INFRABED_IMAGE_CACHE'] ?? imageCacheDir(defaultStateDir()),
  };
  const infrabed = (words: string[], options: RunOptions = {}): Promise<RunResult> =>
    run(process.execPath, argv(...words), { env, allowFailure: true, timeoutMs: 300_000, ...options });
  t.teardown(async () => {
    await infrabed(['cluster', 'down', '--all', '--yes']);
    rmSync(stateDir, { recursive: true, force: true });
  });
  const list = async (): Promise<{ cluster: string; nodes: { node: string }[] }[]> => {
    const { stdout } = await infrabed(['cluster', 'list', '--json']);
    return stdout
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as { cluster: string; nodes: { node: string }[] });
  };

  await t.test('up makes a cluster that outlives the command', async (t) => {
    const up = await infrabed(['cluster', 'up', '--nodes', '2', '--json']);
    t.equal(up.exitCode, 0, up.stderr);
    const made = JSON.parse(up.stdout) as Record<string, unknown>;
    t.match(made, {
      kept: true,
      layers: ['os'],
      nodes: [{ name: 'node0' }, { name: 'node1' }],
      purpose: 'cluster up',
    });
    t.match(await list(), [{ cluster: made['cluster'] }]);
  });

  await t.test('ssh passes arguments, standard input and the exit status through', async (t) => {
    const ssh = (...words: string[]): Promise<RunResult> => infrabed(['cluster', 'ssh', ...words]);
    t.match(await ssh('node1', '--', 'hostname'), { exitCode: 0, stdout: 'node1\n' });
    t.match(await ssh('node0', '--', 'sh', '-c', 'printf "%s|" "$@"; exit 7', 'sh', 'a  b', '007', '--yes'), {
      exitCode: 7,
      stdout: 'a  b|007|--yes|',
    });
    t.match(await ssh('node0', '--', 'echo one | tr o 0'), { exitCode: 0, stdout: '0ne\n' });
    t.match(await infrabed(['cluster', 'ssh', 'node0', '--', 'cat'], { input: 'piped' }), {
      stdout: 'piped',
    });
    t.match(await ssh('node9'), { exitCode: 2, stderr: /IB_NODE_UNKNOWN/ });
  });

  await t.test('down only says what it would do, asks, and then leaves nothing', async (t) => {
    t.match(await infrabed(['cluster', 'down', '--dry-run']), { exitCode: 0, stdout: /would end/ });
    t.match(
      await infrabed(['cluster', 'down']),
      { exitCode: 2, stderr: /Give --yes/ },
      'nobody there to be asked',
    );
    t.equal((await list()).length, 1);
    t.match(await infrabed(['cluster', 'down', '--yes']), { exitCode: 0, stdout: /ended/ });
    t.strictSame(await list(), []);
    t.strictSame(readdirSync(join(stateDir, 'cluster-keys')), []);
    t.strictSame(readdirSync(join(stateDir, 'clusters')), []);
  });

  await t.test('two at once hold different nodes', async (t) => {
    const ups = await Promise.all([
      infrabed(['cluster', 'up', '--nodes', '1']),
      infrabed(['cluster', 'up', '--nodes', '1']),
    ]);
    t.strictSame(
      ups.map((up) => up.exitCode),
      [0, 0],
      ups.map((up) => up.stderr).join('\n'),
    );
    const nodes = (await list()).flatMap((one) => one.nodes.map((node) => node.node));
    t.equal(new Set(nodes).size, 2);
    t.match(await infrabed(['cluster', 'ssh', 'node0']), { exitCode: 2, stderr: /--cluster/ });
    t.equal((await infrabed(['cluster', 'down', '--all', '--yes'])).exitCode, 0);
  });

  await t.test('after a kill in the middle the next start cleans up and says so', async (t) => {
    const child = start(process.execPath, argv('cluster', 'up', '--nodes', '2'), {
      stdio: 'ignore',
      env: { ...process.env, ...env },
    });
    const ended = new Promise((resolve) => child.once('exit', resolve));
    await waitFor('the cluster to be begun', () => begunCluster(stateDir), {
      timeoutMs: 60_000,
    });
    child.kill('SIGKILL');
    await ended;
    mkdirSync(join(stateDir, 'work', 'c-gone'), { recursive: true });
    const swept = await infrabed(['sweep']);
    t.equal(swept.exitCode, 0, swept.stderr);
    t.match(`${swept.stdout}${swept.stderr}`, /Lease l-.*cluster up/);
    t.strictSame(await list(), []);
    t.strictSame(readdirSync(join(stateDir, 'clusters')), []);
    t.strictSame(readdirSync(join(stateDir, 'cluster-keys')), []);
    t.notOk(existsSync(join(stateDir, 'work', 'c-gone')), 'nor a folder with its key');
    const store = await openStore(stateDir);
    const rows = await store.db.selectFrom('nodes').select('state').execute();
    await store.close();
    t.equal(rows.filter((row) => row.state === 'available').length, 8);
  });
});
