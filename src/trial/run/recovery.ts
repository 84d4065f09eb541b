/** What recovery is given and what it says. */
import type { Clock } from '../../core/clock.js';
import type { Settings } from '../../core/settings.js';
import type { SiteKey } from '../../record/ledger/site-key.js';
import type { Store } from '../../record/store/store.js';
import type { Backend } from '../../testbed/driver/driver.js';

export interface RecoveryOptions {
  store: Store;
  backend: Backend;
  stateDir: string;
  settings: Settings;
  siteKey: SiteKey;
  clock: Clock;
  version: string;
}

export interface Recovery {
  /**
   * Trials that were ended here. `phase`: in which their controller died; null for one whose lease was over while its
   * controller, alive but deaf, did not end it (`cancelled`).
   */
  trials: { trial: string; phase: string | null; ended: 'infra_error' | 'finish' | 'cancelled' }[];
  /** Trials that `resumeTrial` can go on with; their nodes stay as they are. */
  resumable: { trial: string; phase: string }[];
  removed: string[];
  failed: string[];
}
