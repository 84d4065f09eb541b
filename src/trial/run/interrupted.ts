/** What can be told, from the store and the record alone, about a trial whose controller died. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Selectable } from 'kysely';
import { z } from 'zod';
import { bundleFiles, phaseNames, type PhaseName } from '../../record/bundle/schema.js';
import { readLedger } from '../../record/ledger/reader.js';
import type { LedgerRecord } from '../../record/ledger/record.js';
import type { TrialsTable } from '../../record/store/schema.js';
import type { Store } from '../../record/store/store.js';
import type { RebootResult } from '../gate/reboot.js';
import { rebootNodeNames } from '../task/effective-checks.js';
import { loadTask } from '../task/load.js';
import { teardownKind } from './gates.js';
import { afterCrash, type Continuation, type LastPhase } from './phases.js';

export type InterruptedTrial = Selectable<TrialsTable>;

export interface Interruption extends Continuation {
  /** The last phase that the dead controller wrote of, for people; `lease` where it wrote of none. */
  phase: PhaseName;
  /** Where the reboot gate had power-cycled all its nodes: what came of it, on record. */
  rebooted?: RebootResult[];
}

const lastPhaseSchema = z.object({
  phase: z.enum(phaseNames),
  state: z.enum(['begun', 'verified', 'failed']),
});

/** What is to be done about the trial. Looks, and changes nothing. */
export async function interruptionOf(store: Store, trial: InterruptedTrial): Promise<Interruption> {
  const row = await store.db
    .selectFrom('phases')
    .select(['phase', 'state'])
    .where('trial', '=', trial.id)
    .orderBy('id', 'desc')
    .executeTakeFirst();
  const last = row === undefined ? undefined : lastPhaseSchema.parse(row);
  const phase = last?.phase ?? 'lease';
  if (existsSync(join(trial.bundle, bundleFiles.seal)))
    return { what: 'finish', from: 'clean', begun: false, phase };
  const acts = await actsOf(trial, last);
  const continuation = afterCrash(last, () => acts.isAmbiguous);
  return {
    ...(isKept(trial) ? continuation : { ...continuation, what: 'infra_error' }),
    phase,
    ...(acts.rebooted === undefined ? {} : { rebooted: acts.rebooted }),
  };
}

/** Without these there is nothing to go on with; a control trial is made again by whoever needs it. */
function isKept({ request, progress, agent }: InterruptedTrial): boolean {
  return request !== null && progress !== null && agent !== 'control';
}

interface Acts {
  /** Something was begun that must not be done twice, and is not known to be whole. */
  isAmbiguous: boolean;
  rebooted?: RebootResult[];
}

/** What the ledger says was done since the last phase began: every act is on record before it is done. */
async function actsOf(trial: InterruptedTrial, last: LastPhase | undefined): Promise<Acts> {
  if (last?.state !== 'begun') return { isAmbiguous: false };
  if (last.phase === 'decommission') {
    const records = await recordsSince(trial.bundle, 'decommission');
    return { isAmbiguous: records.some(({ kind }) => kind === teardownKind) };
  }
  if (last.phase === 'reboot') return powerActs(trial, await recordsSince(trial.bundle, 'reboot'));
  return { isAmbiguous: false };
}

const rebootedSchema = z.discriminatedUnion('outcome', [
  z.looseObject({
    outcome: z.literal('booted'),
    bootIdBefore: z.string().nullable(),
    bootIdAfter: z.string(),
    durationMs: z.number(),
  }),
  z.looseObject({ outcome: z.literal('not-back') }),
]);

async function powerActs(trial: InterruptedTrial, records: readonly LedgerRecord[]): Promise<Acts> {
  if (!records.some(({ kind }) => kind.startsWith('power.'))) return { isAmbiguous: false };
  const { definition } = await loadTask(join(trial.bundle, bundleFiles.task));
  const rebooted: RebootResult[] = [];
  for (const node of rebootNodeNames(definition)) {
    const results = records.filter((record) => record.kind === 'node.rebooted' && record.node === node);
    if (results.length < definition.lifecycle.reboot.times) return { isAmbiguous: true };
    const parsed = rebootedSchema.safeParse(results.at(-1)?.payload);
    // A node that did not come back may be on its way still: who is to blame for it cannot be found out any more.
    if (!parsed.success || parsed.data.outcome !== 'booted') return { isAmbiguous: true };
    const { bootIdBefore, bootIdAfter, durationMs } = parsed.data;
    rebooted.push({ node, outcome: 'booted', bootIdBefore, bootIdAfter, durationMs });
  }
  return { isAmbiguous: false, rebooted };
}

/** From the first time that the phase was begun: a controller that went on with it may have died in it too. */
async function recordsSince(bundle: string, phase: PhaseName): Promise<LedgerRecord[]> {
  const records: LedgerRecord[] = [];
  let hasBegun = false;
  for await (const record of readLedger(join(bundle, bundleFiles.ledger))) {
    hasBegun ||= record.kind === 'phase.begin' && record.payload['phase'] === phase;
    if (hasBegun) records.push(record);
  }
  return records;
}
