/**
 * What a controller does beside its work. Every one writes its heartbeat and tells what is to be told; a server also
 * begins and ends leases in their time, takes over what others left, goes on with broken-off trials and probes idle nodes.
 */
import { failpoint } from '../core/failpoint.js';
import type { Clock } from '../core/clock.js';
import { messageOf } from '../core/errors.js';
import type { IoHost } from '../core/io.js';
import type { Settings } from '../core/settings.js';
import { deliverNotices } from '../record/notice/deliver.js';
import { beat, deadControllers } from '../record/store/controllers.js';
import type { Store } from '../record/store/store.js';
import { beginDue, endDue, warnDue } from '../testbed/lease/due.js';
import { cleanDue } from '../testbed/lease/clean-node.js';
import { probeDue } from '../testbed/node/health.js';
import { resumeAll } from '../study/attempt/resume.js';
import { describeRecovery, recover } from '../trial/run/recover.js';
import type { TrialEnvironment } from '../trial/run/trial.js';

const heartbeatMs = 5_000;
const roundMs = 2_000;

export interface KeptStore {
  store: Store;
  settings: Settings;
  clock: Clock;
  io: IoHost;
}

/**
 * What has become due by the calendar is written down: it needs no node and no controller, so whoever comes first does it.
 * Returns true where something is past its grace and has to be taken away by force.
 */
export async function passTime(ground: Pick<KeptStore, 'store' | 'settings' | 'clock'>): Promise<boolean> {
  const { overdue } = await endDue(ground);
  await beginDue(ground);
  await warnDue(ground);
  return overdue.length > 0;
}

/** Repeats until `stop`, which waits for the round under way. A failure is told once for as long as it stays the same. */
export function repeat(
  what: string,
  { io, clock }: Pick<KeptStore, 'io' | 'clock'>,
  intervalMs: number,
  round: (signal: AbortSignal) => Promise<void>,
): { stop(): Promise<void> } {
  const end = new AbortController();
  const isOver = (): boolean => end.signal.aborted;
  let told = '';
  const ended = (async () => {
    while (!isOver()) {
      try {
        await round(end.signal);
        told = '';
      } catch (error) {
        const message = `${what}: ${messageOf(error)}`;
        if (!isOver() && message !== told) io.notify({ type: 'warning', message });
        told = message;
      }
      await clock.sleep(intervalMs, end.signal).catch(() => undefined);
    }
  })();
  return {
    async stop() {
      end.abort();
      await ended;
    },
  };
}

/** The heartbeat of a controller, and the notices that its work brings about. */
export function startHeartbeat(ground: KeptStore, controller: string): { stop(): Promise<void> } {
  const { store, settings, clock, io } = ground;
  return repeat('The heartbeat failed', ground, heartbeatMs, async (signal) => {
    if (!(await beat(store, controller, clock))) {
      throw new Error(
        'the store does not know this controller any more; another one has taken over its work',
      );
    }
    await warnDue(ground);
    await tellNotices({ store, settings, clock, io }, signal);
  });
}

/** Delivers what is due, and says what could not be told. */
export async function tellNotices(ground: KeptStore, signal?: AbortSignal): Promise<void> {
  const { store, settings, clock, io } = ground;
  const { failed } = await deliverNotices(store, settings.notices, clock, signal);
  for (const message of failed) io.notify({ type: 'warning', message });
}

/** Keeps a site until the signal aborts. `environment` is the controller's own, for what is gone on with. */
export async function keepSite(environment: TrialEnvironment, signal: AbortSignal): Promise<void> {
  const { io } = environment;
  const loops = [
    repeat('Keeping the calendar failed', environment, roundMs, async () => {
      const isOverdue = await passTime(environment);
      const isLeft = (await deadControllers(environment.store, environment.clock)).length > 0;
      if (!isOverdue && !isLeft) return;
      failpoint('keeper.recover');
      for (const message of describeRecovery(await recover(environment)))
        io.notify({ type: 'warning', message });
    }),
    repeat('Going on with trials failed', environment, roundMs, (stop) =>
      resumeAll(environment, {
        signal: stop,
        onBegin: ({ trial }) => io.notify({ type: 'info', message: `Going on with ${trial}.` }),
        onEnd: ({ trial }, { score }) =>
          io.notify({ type: 'info', message: `${trial}: ${score.outcome}, reward ${String(score.reward)}` }),
      }),
    ),
    repeat('Cleaning nodes failed', environment, roundMs, async (stop) => {
      for (const { node, error } of await cleanDue({ ...environment, signal: stop }))
        io.notify({
          type: 'info',
          message: `${node}: ${error === undefined ? 'cleaned' : messageOf(error)}`,
        });
    }),
    repeat('Probing idle nodes failed', environment, roundMs, async (stop) => {
      for (const { node, fault } of await probeDue({ ...environment, signal: stop }))
        if (fault !== null) io.notify({ type: 'warning', message: `${node}: ${fault.message}` });
    }),
  ];
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await Promise.all(loops.map((loop) => loop.stop()));
}
