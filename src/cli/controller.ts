/** What a command on this machine needs that runs trials itself: it is a controller, for as long as it runs. */
import type { HostBackend } from '../testbed/driver/index.js';
import type { TrialEnvironment } from '../trial/run/trial.js';
import type { Face } from './command.js';
import { openDesk } from './desk.js';
import { localActor } from './perform.js';

export interface Controller {
  environment: TrialEnvironment;
  close(): Promise<void>;
}

/** Opens the state folder as a controller. What a dead one left is cleaned up first, and said. */
export async function openController(face: Face, backend: HostBackend = 'container'): Promise<Controller> {
  const opened = await openDesk(face, { recovery: true });
  try {
    const environment = await opened.desk.trials(localActor(), face.io, backend);
    return { environment, close: () => opened.close() };
  } catch (error) {
    await opened.close();
    throw error;
  }
}
