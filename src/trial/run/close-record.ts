/** The end of a record whose controller died: sealed with the site's key, and saying so. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import { isInfrabedError } from '../../core/errors.js';
import { redactor } from '../../core/log.js';
import { disown, dropHalfFiles } from '../../record/bundle/interrupted.js';
import { bundleFiles, bundleVersion, manifestSchema, type Manifest } from '../../record/bundle/schema.js';
import { BundleWriter } from '../../record/bundle/writer.js';
import { readLedger } from '../../record/ledger/reader.js';
import type { SiteKey } from '../../record/ledger/site-key.js';
import { LedgerWriter } from '../../record/ledger/writer.js';
import { loadTask } from '../task/load.js';
import type { InterruptedTrial } from './interrupted.js';
import { storedProgress, storedRequest } from './progress.js';

export interface ClosingOptions {
  siteKey: SiteKey;
  clock: Clock;
  /** Of infrabed. */
  version: string;
  /** Of whoever closes the record: named where the trial was killed before it said its own. */
  backendName: string;
}

/** How a trial that was broken off ended, and why. */
export interface BrokenOff {
  ending: Exclude<Manifest['ending'], 'completed'>;
  error: NonNullable<Manifest['error']>;
}

/**
 * Ledger and bundle end with a record that says why, sealed by the same key. What was sealed already stays as it is, and
 * gets the manifest whose hash is in it. Doing it again changes nothing.
 */
export async function closeRecord(
  trial: InterruptedTrial,
  brokenOff: BrokenOff,
  options: ClosingOptions,
): Promise<void> {
  if (!existsSync(trial.bundle)) return;
  if (existsSync(join(trial.bundle, bundleFiles.manifest))) {
    await dropHalfFiles(trial.bundle);
    return;
  }
  await disown(trial.bundle);
  if (!existsSync(join(trial.bundle, bundleFiles.seal))) await sealAsIs(trial, brokenOff, options);
  const bundle = await BundleWriter.resume(trial.bundle);
  await bundle.finish(sealedManifest(trial) ?? (await interruptedManifest(trial, brokenOff, options)));
}

async function sealAsIs(
  trial: InterruptedTrial,
  { ending, error }: BrokenOff,
  { clock, siteKey }: ClosingOptions,
): Promise<void> {
  const ledgerFile = join(trial.bundle, bundleFiles.ledger);
  const ledger = await LedgerWriter.open(ledgerFile, { trial: trial.id, clock, redactor });
  const record = (kind: string, payload: Record<string, unknown>): void =>
    ledger.record({ kind, actor: 'controller', node: null, payload });
  record('trial.interrupted', { why: error.message });
  record('trial.end', { ending });
  await ledger.seal(siteKey);
}

/** The manifest that the dead controller had sealed the hash of, to the byte; undefined where it had not come so far. */
function sealedManifest(trial: InterruptedTrial): Manifest | undefined {
  if (trial.progress === null) return undefined;
  const { manifestText } = storedProgress(trial);
  return manifestText === null ? undefined : manifestSchema.parse(JSON.parse(manifestText));
}

async function interruptedManifest(
  trial: InterruptedTrial,
  { ending, error }: BrokenOff,
  options: ClosingOptions,
): Promise<Manifest> {
  return {
    version: bundleVersion,
    infrabed: options.version,
    trial: trial.id,
    task: { name: trial.task, hash: await bundledTaskHash(trial), admitted: false },
    agent: trial.agent,
    agentKind: trial.agent.split(':')[0] ?? trial.agent,
    attempt: trial.attempt,
    startedAt: trial.started_at,
    endedAt: options.clock.now(),
    backend: trial.request === null ? options.backendName : storedRequest(trial).backend,
    imageHash: '',
    network: await bundledNetwork(trial),
    nonce: '',
    nodes: [],
    ending,
    error,
    timedOut: false,
    agentExit: null,
    coverage: [`${error.message} Nothing after that is on record.`],
    timings: {},
    gateSeconds: {},
    versions: { node: process.version },
  };
}

/** What the ledger's first record says; without one nothing had begun, and no agent had any network. */
async function bundledNetwork(trial: InterruptedTrial): Promise<Manifest['network']> {
  for await (const { kind, payload } of readLedger(join(trial.bundle, bundleFiles.ledger))) {
    if (kind === 'trial.begin') return payload['network'] === 'host' ? 'host' : 'none';
  }
  return 'none';
}

async function bundledTaskHash(trial: InterruptedTrial): Promise<string> {
  try {
    return (await loadTask(join(trial.bundle, bundleFiles.task))).hash;
  } catch (error) {
    // Killed while the package was being copied: the bundle has no whole task, and says so by an empty hash.
    if (isInfrabedError(error)) return '';
    throw error;
  }
}
