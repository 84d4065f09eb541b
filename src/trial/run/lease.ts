/** A trial's nodes: under a lease of its own, or under one that a person reserved; and what the end of either means. */
import { InfrabedError } from '../../core/errors.js';
import { holdLease, putDownLease, refreshHeld, releaseLease, takeNodes } from '../../testbed/lease/lease.js';
import { clusterIdOf, longestTrialMs } from './set-up.js';
import type { Trial } from './trial.js';

export async function takeLease(trial: Trial): Promise<void> {
  assertFitting(trial);
  const { environment, request } = trial;
  const { store, settings, clock, controller, actor, owner, backend } = environment;
  const count = request.task.definition.environment.nodes.length;
  trial.lease =
    request.lease === undefined
      ? await takeNodes(store, {
          nodes: { count },
          owner,
          purpose: `trial ${trial.id}`,
          controller,
          backend: backend.name,
          durationMs: longestTrialMs(request.task),
          actor,
          gapMs: settings.lease.cleaning_gap_sec * 1000,
          clock,
        })
      : await holdLease({ store, settings, clock }, request.lease, controller, actor);
  trial.nodes = trial.lease.nodes.slice(0, count);
  followLease(trial);
  if (trial.nodes.length < count) throw tooFew(trial, trial.lease.nodes.length);
}

/** Said before anything is provisioned. A task names the least it needs: virtual machines run what containers can. */
function assertFitting({ request, environment: { backend } }: Trial): void {
  const { environment, task } = request.task.definition;
  const { nodes, bmc } = backend.offers;
  if (!suits[environment.type].includes(nodes)) {
    throw new InfrabedError(
      'IB_HOST_UNFIT',
      `The task ${task.name} needs ${environment.type} nodes; the backend ${backend.name} has ${nodes} nodes.`,
      { hint: 'Choose another backend (--backend) or task: "infrabed task list" shows what each needs.' },
    );
  }
  const wanting = environment.nodes.filter((node) => node.bmc && !bmc).map(({ name }) => name);
  if (wanting.length > 0) {
    throw new InfrabedError(
      'IB_BMC_NONE',
      `The task ${task.name} needs a BMC on ${wanting.join(', ')}, and nodes of the backend ${backend.name} have none.`,
      { hint: 'Choose a backend whose nodes have one: see docs/bmc.md.' },
    );
  }
  const onMachines = environment.nodes.filter(
    (node) => nodes === 'container' && (node.disks_mib.length > 0 || node.boots_from_disk),
  );
  if (onMachines.length > 0) {
    throw new InfrabedError(
      'IB_HOST_UNFIT',
      `The task ${task.name} needs disks or a boot loader of its own on ${onMachines.map(({ name }) => name).join(', ')}, which containers do not have.`,
      { hint: 'Set environment.type to "vm" or "vm-cluster" in task.toml.' },
    );
  }
}

type Offered = Trial['environment']['backend']['offers']['nodes'];
const machines: readonly Offered[] = ['vm', 'metal'];
const suits: Record<Trial['request']['task']['definition']['environment']['type'], readonly Offered[]> = {
  docker: ['container', ...machines],
  'container-cluster': ['container', ...machines],
  vm: machines,
  'vm-cluster': machines,
  cloudlab: ['metal'],
  metal: ['metal'],
};

function tooFew({ lease, request }: Trial, there: number): InfrabedError {
  const { environment, task } = request.task.definition;
  return new InfrabedError(
    'IB_NOT_ENOUGH_NODES',
    `The task ${task.name} needs ${String(environment.nodes.length)} nodes, and the lease ${lease?.id ?? ''} has ${String(there)}.`,
    { hint: 'Reserve more nodes ("infrabed reserve"), or run it without --lease.' },
  );
}

const lookMs = 1000;

/**
 * The trial ends in order when its lease does: its signal follows the lease's, and the store is asked now and then,
 * since an extension moves the end and another controller may have taken the lease over.
 */
export function followLease(trial: Trial): void {
  const { lease, leaseOver } = trial;
  if (lease === undefined) return;
  const over = (): void => leaseOver.abort(lease.signal.reason);
  if (lease.signal.aborted) over();
  else lease.signal.addEventListener('abort', over, { once: true });
  const stop = new AbortController();
  const watch = watchLease(trial, stop.signal).catch((error: unknown) => {
    if (!stop.signal.aborted) leaseOver.abort(error);
  });
  trial.cleanups.push({
    what: 'watch of the lease',
    end: async () => {
      stop.abort();
      lease.signal.removeEventListener('abort', over);
      await watch;
    },
  });
}

async function watchLease(trial: Trial, stop: AbortSignal): Promise<void> {
  const { lease, environment } = trial;
  const { store, clock, io, settings } = environment;
  if (lease === undefined) return;
  let warnedOf: number | undefined;
  for (;;) {
    await clock.sleep(lookMs, stop);
    await refreshHeld(store, [lease], clock);
    const row = await store.db
      .selectFrom('leases')
      .select('ends_at')
      .where('id', '=', lease.id)
      .executeTakeFirst();
    const endsAt = row?.ends_at;
    if (endsAt === undefined || endsAt === warnedOf) continue;
    const leftMs = endsAt - clock.now();
    if (leftMs > settings.lease.warning_sec * 1000) continue;
    warnedOf = endsAt;
    const left = `${String(Math.max(0, Math.round(leftMs / 1000)))} s`;
    io.notify({
      type: 'warning',
      message: `The lease ${lease.id} ends in ${left}: the trial ends in order then ("infrabed lease extend ${lease.id}").`,
    });
  }
}

/** A lease of the trial's own is released; a person's is put down, its nodes clean again and still reserved. */
export async function giveBack(trial: Trial): Promise<true> {
  const { lease, request, environment } = trial;
  const { store, clock } = environment;
  if (lease === undefined || (request.keep && trial.owned !== undefined)) return true;
  const clean = trial.proofs ?? new Map<string, never>();
  const removed = [clusterIdOf(trial)];
  if (request.lease === undefined) await releaseLease(store, lease, { clock, clean, removed });
  else await putDownLease(store, lease, clean, { clock, removed });
  return true;
}
