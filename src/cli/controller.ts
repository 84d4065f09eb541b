/** What a command that changes something needs: store, backend, site key, and the recovery of what died before it. */
import { systemClock } from '../core/clock.js';
import { stateDir } from '../core/paths.js';
import { loadSettings } from '../core/settings.js';
import { loadSiteKey } from '../record/ledger/site-key.js';
import { registerController, unregisterController } from '../record/store/controllers.js';
import { openStore } from '../record/store/store.js';
import { backends } from '../testbed/driver/index.js';
import type { CheckerMap } from '../trial/gate/checker.js';
import { assertRecovered, describeRecovery, recover } from '../trial/run/recover.js';
import type { Recovery, RecoveryOptions } from '../trial/run/recover.js';
import type { TrialEnvironment } from '../trial/run/trial.js';
import type { Face } from './command.js';
import { localActor } from './perform.js';
import { version } from './version.js';

export interface Controller {
  environment: TrialEnvironment;
  close(): Promise<void>;
}

/** The state folder opened, after what dead controllers left in it was dealt with. The caller closes the store. */
export async function recoverState(): Promise<{ grounds: RecoveryOptions; recovery: Recovery }> {
  const dir = stateDir();
  const store = await openStore(dir);
  try {
    const grounds: RecoveryOptions = {
      stateDir: dir,
      store,
      settings: await loadSettings(dir),
      siteKey: await loadSiteKey(dir),
      backend: backends.container({ stateDir: dir, clock: systemClock }),
      clock: systemClock,
      version: version(),
    };
    return { grounds, recovery: await recover(grounds) };
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Opens the state folder as a controller. What a dead one left is cleaned up first, and said. */
export async function openController(face: Face, checkers: CheckerMap): Promise<Controller> {
  const { grounds, recovery } = await recoverState();
  const { store } = grounds;
  try {
    for (const message of describeRecovery(recovery)) face.io.notify({ type: 'warning', message });
    assertRecovered(recovery);
    const controller = await registerController(store, systemClock);
    const held = new Set<string>();
    const actor = localActor();
    face.onSecondInterrupt(() => [...held]);
    return {
      environment: {
        ...grounds,
        controller,
        checkers,
        io: face.io,
        owner: actor.name,
        actor,
        held,
      },
      async close() {
        await unregisterController(store, controller);
        await store.close();
      },
    };
  } catch (error) {
    await store.close();
    throw error;
  }
}
