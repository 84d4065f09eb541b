/** A controller of its own state folder inside the test process, and the proof that nothing of it is left behind. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { sha256 } from '../../src/core/ids.js';
import { defaultSettings } from '../../src/core/settings.js';
import { stateDir as defaultStateDir } from '../../src/core/paths.js';
import { loadSiteKey } from '../../src/record/ledger/site-key.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import { imageCacheDir } from '../../src/testbed/driver/container/image-cache.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import type { Backend } from '../../src/testbed/driver/driver.js';
import type { TrialEnvironment } from '../../src/trial/run/trial.js';
import { checkers } from '../../checkers/index.js';

// Images are shared by all tests and with ordinary use; everything else of a test is its own.
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(defaultStateDir());

export function newStateDir(): string {
  return mkdtempSync(join(tmpdir(), 'infrabed-e2e-'));
}

export async function openEnvironment(
  stateDir: string,
  wrap: (backend: Backend) => Backend = (backend) => backend,
): Promise<TrialEnvironment> {
  const store = await openStore(stateDir);
  return {
    stateDir,
    store,
    controller: await registerController(store, systemClock),
    backend: wrap(createContainerBackend({ stateDir, clock: systemClock })),
    checkers,
    clock: systemClock,
    io: silentHost,
    siteKey: await loadSiteKey(stateDir),
    version: 'test',
    owner: 'test',
    actor: { name: 'test', role: 'operator' },
    settings: defaultSettings,
    held: new Set(),
  };
}

/** What of this state folder is still on the machine, one sentence each. Empty is as it should be. */
export function leftovers(stateDir: string): string[] {
  const tag = sha256(stateDir).slice(0, 6);
  const found: string[] = [];
  const names = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder) : []);
  for (const name of names('/run/netns'))
    if (name.startsWith(`ib-${tag}-`)) found.push(`network namespace ${name}`);
  for (const root of ['/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/systemd']) {
    for (const name of names(join(root, 'infrabed'))) {
      if (name.startsWith(`${tag}-`)) found.push(`control group ${root}/infrabed/${name}`);
    }
  }
  for (const name of names(join(stateDir, 'clusters'))) found.push(`cluster folder ${name}`);
  for (const name of names(join(stateDir, 'work'))) found.push(`work folder ${name}`);
  for (const trial of names(join(stateDir, 'trials'))) {
    if (existsSync(join('/run/infrabed', trial))) found.push(`sockets of ${trial}`);
    for (const root of ['', 'memory/', 'pids/']) {
      if (existsSync(`/sys/fs/cgroup/${root}infrabed-agents/${trial}`)) found.push(`limits of ${trial}`);
    }
  }
  for (const line of readFileSync('/proc/self/mounts', 'utf8').split('\n')) {
    if (line.split(' ')[1]?.startsWith(stateDir)) found.push(`mount ${line}`);
  }
  for (const pid of names('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      if (Number(pid) !== process.pid && command.includes(stateDir))
        found.push(`process ${pid}: ${command.slice(0, 120)}`);
    } catch {
      // It ended while we looked.
    }
  }
  return found;
}

/** Leases still active and nodes that cannot be lent, of an open environment. */
export async function heldNodes({ store }: TrialEnvironment): Promise<string[]> {
  const leases = await store.db.selectFrom('leases').select('id').where('state', '=', 'active').execute();
  const nodes = await store.db
    .selectFrom('nodes')
    .select(['name', 'state'])
    .where('state', '!=', 'available')
    .execute();
  return [...leases.map(({ id }) => `lease ${id}`), ...nodes.map(({ name, state }) => `${name} is ${state}`)];
}

export function removeStateDir(stateDir: string): void {
  rmSync(stateDir, { recursive: true, force: true });
}
