/** The end of the gathering: consoles, hashes of all files into the ledger, the seal, and the manifest last. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { nullJournal } from '../../core/journal.js';
import { run } from '../../core/exec.js';
import { errnoOf, isInfrabedError, messageOf } from '../../core/errors.js';
import { failpoint } from '../../core/failpoint.js';
import { sha256 } from '../../core/ids.js';
import { bundleFilesKind, hashBundleFiles } from '../../record/bundle/files.js';
import { bundleFiles, bundleVersion, type Manifest } from '../../record/bundle/schema.js';
import { manifestText } from '../../record/bundle/writer.js';
import type { NodeDriver } from '../../testbed/driver/driver.js';
import { parseAgent } from '../agent/agent.js';
import { labelOf, type Trial } from './trial.js';

export interface Ending {
  ending: Manifest['ending'];
  error: unknown;
}

/** Closes the record. What can be kept is kept: a trial that failed early leaves a bundle too. */
export async function seal(trial: Trial, { ending, error }: Ending): Promise<Manifest> {
  for (const node of trial.owned?.cluster.nodes ?? []) {
    await trial.bundle.console(node.name, clusterConsole(trial, node.name));
  }
  for (const node of trial.owned?.driverCluster.nodes ?? [])
    for (const payload of await bmcRequests(node)) {
      trial.ledger.record({ kind: 'bmc.request', actor: 'bmc', node: node.name, payload });
    }
  await trial.bundle.drift(trial.drift);
  const manifest = await manifestOf(trial, { ending, error });
  // Kept in the store first: its hash is sealed before it is written, and only these very bytes fit it.
  trial.manifestText = manifestText(manifest);
  await trial.phases.save();
  trial.ledger.record({
    kind: bundleFilesKind,
    actor: 'controller',
    node: null,
    // The manifest is written after the seal, but what it will say is sealed too.
    payload: {
      files: {
        ...(await hashBundleFiles(trial.bundle.dir)),
        [bundleFiles.manifest]: sha256(trial.manifestText),
      },
    },
  });
  trial.ledger.record({ kind: 'trial.end', actor: 'controller', node: null, payload: { ending } });
  trial.journal.switchTo(nullJournal);
  await trial.ledger.flush();
  failpoint('seal.recorded');
  await trial.ledger.seal(trial.environment.siteKey);
  failpoint('seal.sealed');
  await trial.bundle.finish(manifest);
  failpoint('seal.finished');
  return manifest;
}

/** What was done to a node's power by way of its BMC: not by us, so it stands in no intent of ours. */
async function bmcRequests({ bmcRequests: path }: NodeDriver): Promise<Record<string, unknown>[]> {
  if (path === undefined) return [];
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    // Made with the first request.
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
  return text.split('\n').filter(Boolean).map(bmcRequest);
}

/** The last line may have been cut short with whoever wrote it. */
function bmcRequest(line: string): Record<string, unknown> {
  try {
    return z.record(z.string(), z.unknown()).parse(JSON.parse(line));
  } catch {
    return { unreadable: line };
  }
}

function clusterConsole(trial: Trial, node: string): string {
  return trial.owned?.cluster.console(node).path ?? '';
}

async function manifestOf(trial: Trial, { ending, error }: Ending): Promise<Manifest> {
  const { request, environment } = trial;
  const { definition } = request.task;
  return {
    version: bundleVersion,
    infrabed: environment.version,
    trial: trial.id,
    task: { name: definition.task.name, hash: request.task.hash, admitted: request.admitted },
    agent: labelOf(request),
    agentKind: request.control ? 'control' : parseAgent(request.agent, request.task).kind,
    attempt: request.attempt,
    startedAt: trial.startedAt,
    endedAt: environment.clock.now(),
    backend: trial.backendName,
    imageHash: trial.owned?.cluster.imageHash ?? '',
    network: request.network,
    nonce: trial.nonce,
    nodes: (trial.owned?.cluster.nodes ?? []).map(({ name, address, roles, hostKey }) => ({
      name,
      address,
      roles: [...roles],
      hostKey,
      agent: trial.agentNodes.includes(name),
    })),
    ending,
    ...(error === undefined ? {} : { error: describe(error) }),
    timedOut: trial.timedOut,
    agentExit: trial.agentExit,
    coverage: trial.coverage,
    timings: { ...trial.phases.timings },
    gateSeconds: trial.gateSeconds,
    versions: await versions(),
  };
}

/** Code, sentence and hint of any thrown value. */
export function describe(error: unknown): { code: string; message: string; hint?: string } {
  if (!isInfrabedError(error)) return { code: 'IB_INTERNAL', message: messageOf(error) };
  return {
    code: error.code,
    message: error.message,
    ...(error.hint === undefined ? {} : { hint: error.hint }),
  };
}

/** Versions of what the trial stood on; a program that does not answer is said to be unknown. */
async function versions(): Promise<Record<string, string>> {
  const first = async (program: string, args: string[]): Promise<string> => {
    try {
      return (await run(program, args, { timeoutMs: 10_000 })).stdout.split('\n')[0]?.trim() ?? 'unknown';
    } catch (error) {
      return `unknown (${messageOf(error)})`;
    }
  };
  const [kernel, nspawn, bubblewrap] = await Promise.all([
    first('uname', ['-sr']),
    first('systemd-nspawn', ['--version']),
    first('bwrap', ['--version']),
  ]);
  return { node: process.version, kernel, 'systemd-nspawn': nspawn, bubblewrap };
}
