/** The phases of a trial as data: their order, and what becomes of a trial whose controller died in one. */
import type { PhaseName } from '../../record/bundle/schema.js';

/** `infra_error`: the trial ends as such. `finish`: its bundle was sealed; only clean and release are left to do. */
export type AfterCrash = 'infra_error' | 'finish';

export interface PhaseRule {
  name: PhaseName;
  afterCrash: AfterCrash;
  /** Why, for a reader of docs/architecture.md. */
  because: string;
}

export const phaseRules: readonly PhaseRule[] = [
  { name: 'lease', afterCrash: 'infra_error', because: 'nothing was built yet' },
  {
    name: 'provision',
    afterCrash: 'infra_error',
    because: 'a half-provisioned node is not known to be fresh',
  },
  { name: 'baseline', afterCrash: 'infra_error', because: 'a baseline taken by two controllers is not one' },
  { name: 'bootstrap', afterCrash: 'infra_error', because: 'a fault injected twice is another fault' },
  { name: 'agent', afterCrash: 'infra_error', because: 'the gateway died with its controller' },
  { name: 'close', afterCrash: 'infra_error', because: 'the window watch died with its controller' },
  { name: 'immediate', afterCrash: 'infra_error', because: 'the window watch has a gap' },
  { name: 'running', afterCrash: 'infra_error', because: 'the window watch has a gap' },
  { name: 'reboot', afterCrash: 'infra_error', because: 'it is not known which node was cycled' },
  { name: 'decommission', afterCrash: 'infra_error', because: 'the window watch has a gap' },
  { name: 'seal', afterCrash: 'infra_error', because: 'an unsealed record proves nothing' },
  { name: 'clean', afterCrash: 'finish', because: 'the evidence is sealed; cleaning is idempotent' },
  { name: 'release', afterCrash: 'finish', because: 'the evidence is sealed; releasing is idempotent' },
];

/** What becomes of a trial whose last begun phase was this one. No phase at all counts as `lease`. */
export function afterCrash(phase: string | undefined): AfterCrash {
  return phaseRules.find((rule) => rule.name === phase)?.afterCrash ?? 'infra_error';
}
