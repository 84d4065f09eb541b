/** Nodes as transient units of a host's systemd: on a host without one, inside an emulated host that has it. */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { run } from '../../src/core/exec.js';
import { silentHost } from '../../src/core/io.js';
import { packageRoot, stateDir } from '../../src/core/paths.js';
import { emptyGroup, groupPids, removeGroup } from '../../src/testbed/driver/container/cgroup.js';
import { cgroupLayout, hierarchies } from '../../src/testbed/driver/container/host.js';
import { ImageCache, imageCacheDir } from '../../src/testbed/driver/container/index.js';

t.setTimeout(1_200_000);
const layout = cgroupLayout();

if (process.getuid?.() !== 0 || layout.unified === undefined || existsSync('/run/systemd/system')) {
  // On a host with systemd container.test.ts is the test of this mode.
  t.pass('not on this host');
} else {
  const { unified } = layout;
  t.test('the common suite holds on a host with systemd', async (t) => {
    const cache = process.env['INFRABED_IMAGE_CACHE'] ?? imageCacheDir(stateDir());
    await new ImageCache(cache).prepare(['os'], silentHost);
    const folder = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-emulated-')));
    const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-emulated-state-')));
    const group = `infrabed-emulated-${String(process.pid)}`;
    const script = join(packageRoot, 'test/e2e/emulated-host.sh');
    const shared = [cache, state, packageRoot];
    const host = spawn(script, [group, folder, ...shared], { stdio: ['ignore', 'ignore', 'inherit'] });
    t.teardown(async () => {
      await emptyGroup(join(unified, group));
      for (const root of hierarchies(layout)) await removeGroup(join(root, group));
      for (const path of [folder, state]) rmSync(path, { recursive: true, force: true });
    });
    const init = await waitFor(
      'the emulated host',
      async () => {
        if (host.exitCode !== null) throw new Error(`the emulated host ended with ${String(host.exitCode)}`);
        for (const pid of await groupPids(join(unified, group, 'payload'))) {
          if (!existsSync(`/proc/${String(pid)}/root/run/systemd/private`)) continue;
          if (/^NSpid:\s+\d+\s+1$/m.test(readFileSync(`/proc/${String(pid)}/status`, 'utf8'))) return pid;
        }
        return undefined;
      },
      { timeoutMs: 60_000 },
    );
    const inside = [
      '--target',
      String(init),
      '--all',
      `--wdns=${packageRoot}`,
      '--',
      'env',
      `INFRABED_IMAGE_CACHE=${cache}`,
    ];
    await run('nsenter', [...inside.slice(0, 5), 'systemctl', 'is-system-running', '--wait'], {
      allowFailure: true,
      timeoutMs: 60_000,
    });
    const suite = [
      process.execPath,
      '--import=tsx',
      join(packageRoot, 'test/e2e/host-systemd-suite.ts'),
      state,
    ];
    const result = await run('nsenter', [...inside, ...suite], { allowFailure: true, timeoutMs: 900_000 });
    if (result.exitCode !== 0) t.comment(result.stdout);
    t.equal(result.exitCode, 0, result.stderr);
    t.match(result.stdout, /ok 3 - the common suite/);
  });
}
