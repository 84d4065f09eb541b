/** The desk of a command on this machine: the state folder, opened for one operation. */
import { systemClock } from '../core/clock.js';
import { stateDir } from '../core/paths.js';
import { loadSettings, type Settings } from '../core/settings.js';
import { loadSiteKey } from '../record/ledger/site-key.js';
import { registerController, unregisterController } from '../record/store/controllers.js';
import { openStore, type Store } from '../record/store/store.js';
import { backends } from '../testbed/driver/index.js';
import type { Backend } from '../testbed/driver/driver.js';
import { assertRecovered, describeRecovery, recover, type Recovery } from '../trial/run/recover.js';
import type { Desk } from '../web/api/operation.js';
import type { Face } from './command.js';
import { version } from './version.js';

export interface OpenDesk {
  desk: Desk;
  /** Forgets the controller, if there was one, and closes the store. */
  close(): Promise<void>;
}

/**
 * With `recovery`, what dead controllers left is dealt with first. What could not be is told; it stops an operation that
 * acts on nodes, when that asks for its controller, except with `goOn`: what could not be removed is quarantined, and
 * that keeps a server from nobody else's nodes.
 */
export async function openDesk(
  face: Face,
  options: { recovery: boolean; goOn?: boolean },
): Promise<OpenDesk> {
  const dir = stateDir();
  const settings = await loadSettings(dir);
  const store = await openStore(dir);
  const backend = backends.container({ stateDir: dir, clock: systemClock });
  let recovery: Promise<Recovery> | undefined;
  let controller: Promise<string> | undefined;
  const recovered = (): Promise<Recovery> =>
    (recovery ??= recoverHere(face, { stateDir: dir, settings, store, backend }));
  const desk: Desk = {
    store,
    stateDir: dir,
    settings,
    clock: systemClock,
    io: face.io,
    signal: face.signal,
    backend,
    controller: () =>
      (controller ??= recovered().then((done) => {
        if (options.goOn !== true) assertRecovered(done);
        return registerController(store, systemClock);
      })),
  };
  const close = async (): Promise<void> => {
    try {
      if (controller !== undefined) await unregisterController(store, await controller);
    } finally {
      await store.close();
    }
  };
  try {
    if (options.recovery) await recovered();
  } catch (error) {
    await store.close();
    throw error;
  }
  return { desk, close };
}

async function recoverHere(
  face: Face,
  grounds: { stateDir: string; settings: Settings; store: Store; backend: Backend },
): Promise<Recovery> {
  const siteKey = await loadSiteKey(grounds.stateDir);
  const recovery = await recover({ ...grounds, siteKey, clock: systemClock, version: version() });
  for (const message of describeRecovery(recovery)) face.io.notify({ type: 'warning', message });
  return recovery;
}
