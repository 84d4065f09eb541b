/** The phases of a trial as data: their order, and what becomes of a trial whose controller died in one. */
import { phaseNames, type PhaseName } from '../../record/bundle/schema.js';

/**
 * `infra_error`: the trial ends as such. `resume`: another controller makes the phase again from its start and goes on.
 * `resume-unless-acted`: so where the record proves that what must not be done twice was not begun, or was done wholly;
 * `infra_error` otherwise. `finish`: the bundle is sealed; what is left is to clean, to release and to grade.
 */
export type AfterCrash = 'infra_error' | 'resume' | 'resume-unless-acted' | 'finish';

export interface PhaseRule {
  name: PhaseName;
  afterCrash: AfterCrash;
  /** Why, for a reader of docs/crash-safety.md. */
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
  {
    name: 'close',
    afterCrash: 'infra_error',
    because: 'what the agent left running on the nodes has had longer than its time',
  },
  {
    name: 'immediate',
    afterCrash: 'resume',
    because:
      'the window is closed and checks only look: the gate is made again, and the watch has a marked gap',
  },
  {
    name: 'running',
    afterCrash: 'resume',
    because: 'checks only look: the gate is made again from its start, with the workload running anew',
  },
  {
    name: 'reboot',
    afterCrash: 'resume-unless-acted',
    because: 'a node is not power-cycled twice, and one that was cycled half is not known',
  },
  {
    name: 'decommission',
    afterCrash: 'resume-unless-acted',
    because: "checks only look, but the task's teardown is not run twice",
  },
  {
    name: 'seal',
    afterCrash: 'resume',
    because: 'all was gathered: the record is closed with what is in it, and what was sealed already stays',
  },
  { name: 'clean', afterCrash: 'finish', because: 'the evidence is sealed; cleaning is idempotent' },
  { name: 'release', afterCrash: 'finish', because: 'the evidence is sealed; releasing is idempotent' },
];

/** The last line that a trial wrote about its phases. */
export interface LastPhase {
  phase: PhaseName;
  state: 'begun' | 'verified' | 'failed';
}

/** What is to be done about a trial whose controller died. */
export interface Continuation {
  what: 'infra_error' | 'resume' | 'finish';
  /** The phase to go on with. */
  from: PhaseName;
  /** True if the phase was begun, so that traces of it are to be set aside. */
  begun: boolean;
}

/**
 * @param last undefined where no phase was begun.
 * @param acted whether an act of the phase that must not be repeated was begun and is not known to be whole.
 */
export function afterCrash(last: LastPhase | undefined, acted: (phase: PhaseName) => boolean): Continuation {
  const { phase, begun } = reached(last);
  const continuation = (what: Continuation['what']): Continuation => ({ what, from: phase, begun });
  // Its own error had ended the gathering, and how it was to be told died with the controller.
  if (last?.state === 'failed')
    return continuation(phase === 'clean' || phase === 'release' ? 'finish' : 'infra_error');
  const rule = phaseRules.find(({ name }) => name === phase)?.afterCrash ?? 'infra_error';
  if (rule !== 'resume-unless-acted') return continuation(rule);
  return continuation(begun && acted(phase) ? 'infra_error' : 'resume');
}

/** Between two phases nothing is done, so a trial that ended one stands at the start of the next. */
function reached(last: LastPhase | undefined): { phase: PhaseName; begun: boolean } {
  if (last === undefined) return { phase: 'lease', begun: false };
  if (last.state !== 'verified') return { phase: last.phase, begun: true };
  const next = phaseNames[phaseNames.indexOf(last.phase) + 1];
  return next === undefined ? { phase: last.phase, begun: true } : { phase: next, begun: false };
}
