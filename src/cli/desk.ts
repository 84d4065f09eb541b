/**
 * The state folder of this machine, opened for a command: its store and settings, what dead controllers left dealt with,
 * and this process registered as a controller with a heartbeat once it acts on nodes.
 */
import { checkers } from '../../checkers/index.js';
import type { Actor } from '../core/actor.js';
import { systemClock } from '../core/clock.js';
import type { IoHost } from '../core/io.js';
import { stateDir } from '../core/paths.js';
import { loadSettings } from '../core/settings.js';
import { loadSiteKey } from '../record/ledger/site-key.js';
import { registerController, unregisterController } from '../record/store/controllers.js';
import { openStore } from '../record/store/store.js';
import { hostBackends, type HostBackend } from '../testbed/driver/index.js';
import { assertRecovered, describeRecovery, recover, type Recovery } from '../trial/run/recover.js';
import type { TrialEnvironment } from '../trial/run/trial.js';
import type { Desk } from '../web/api/operation.js';
import type { Face } from './command.js';
import { passTime, startHeartbeat, tellNotices } from './keeper.js';
import { version } from './version.js';

export interface OpenDesk {
  desk: Desk;
  /** Deals with what dead controllers left, once, and returns what that was. */
  recover(): Promise<Recovery>;
  /** Forgets the controller, if there was one, tells what is to be told, and closes the store. */
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
  const clock = systemClock;
  const onThisMachine = hostBackends({ stateDir: dir, clock });
  const backend = onThisMachine('container');
  const kept = { store, settings, clock, io: face.io };
  const held = new Set<string>();
  let recovery: Promise<Recovery> | undefined;
  let running: Promise<{ id: string; heartbeat: { stop(): Promise<void> } }> | undefined;
  const grounds = async (): Promise<Parameters<typeof recover>[0]> => {
    return { ...kept, stateDir: dir, backend, siteKey: await loadSiteKey(dir), version: version() };
  };
  const recovered = (): Promise<Recovery> =>
    (recovery ??= grounds().then((found) => recoverHere(found, face)));
  const start = async (): Promise<{ id: string; heartbeat: { stop(): Promise<void> } }> => {
    const done = await recovered();
    if (options.goOn !== true) assertRecovered(done);
    const id = await registerController(store, clock);
    face.onSecondInterrupt(() => [...held]);
    return { id, heartbeat: startHeartbeat(kept, id) };
  };
  const controller = async (): Promise<string> => (await (running ??= start())).id;
  const desk: Desk = {
    ...kept,
    stateDir: dir,
    signal: face.signal,
    backend,
    controller,
    backendNamed: onThisMachine,
    checkers,
    trials: async (actor: Actor, io: IoHost, name: HostBackend): Promise<TrialEnvironment> => ({
      ...(await grounds()),
      backend: onThisMachine(name),
      controller: await controller(),
      checkers,
      io,
      owner: actor.name,
      actor,
      held,
    }),
  };
  const close = async (): Promise<void> => {
    try {
      if (running === undefined) return;
      const { id, heartbeat } = await running;
      await heartbeat.stop();
      await tellNotices(kept);
      await unregisterController(store, id);
    } finally {
      await store.close();
    }
  };
  try {
    await passTime(kept);
    if (options.recovery) await recovered();
  } catch (error) {
    await store.close();
    throw error;
  }
  return { desk, recover: recovered, close };
}

async function recoverHere(grounds: Parameters<typeof recover>[0], face: Face): Promise<Recovery> {
  const recovery = await recover(grounds);
  for (const message of describeRecovery(recovery)) face.io.notify({ type: 'warning', message });
  return recovery;
}
