/** The agent's route to the nodes for one window: its key, the sockets and the gateway behind them. */
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, isInfrabedError } from '../../core/errors.js';
import { runtimeDir } from '../../core/paths.js';
import { connect } from '../../testbed/ssh/connect.js';
import { generateKeyPair } from '../../testbed/ssh/keys.js';
import { startGateway, type GatewayNode } from '../gateway/index.js';
import { clusterOf, type Trial } from './trial.js';

export interface Route {
  /** One socket a node, `<node>.sock`, that only the agent's user can connect to. */
  socketDir: string;
  agentKey: { privateKey: string; publicKey: string };
  /** `ssh-ed25519 AAAA...` of the gateway. */
  hostKey: string;
  /** Aborts when something could not be recorded: what cannot be recorded must not go on. */
  recordLost: AbortSignal;
  /**
   * Revokes the key and ends all sessions.
   * @throws the fault of the record, or IB_LEDGER_INVALID with what the gateway says is missing.
   */
  close(): Promise<void>;
}

/** Opens the route; it is closed at the end of the trial at the latest. */
export async function openRoute(trial: Trial, agentUid: number): Promise<Route> {
  const agentKey = generateKeyPair('agent');
  const socketDir = await makeSocketDir(trial);
  const recordLost = new AbortController();
  const gateway = await startGateway({
    trial: trial.id,
    journal: trial.journal,
    objects: trial.bundle.objects,
    sessionsDir: trial.bundle.sessionsDir,
    socketDir,
    agentUid,
    agentPublicKey: agentKey.publicKey,
    clock: trial.environment.clock,
    onFault: (fault) => recordLost.abort(fault),
    nodes: trial.agentNodes.map((name) => loginTo(trial, name)),
  });
  trial.cleanups.push({ what: 'gateway', end: () => gateway.close('end of trial').then(() => undefined) });
  return {
    socketDir,
    agentKey,
    hostKey: gateway.hostKeyLine,
    recordLost: recordLost.signal,
    async close() {
      const { faults } = await gateway.close('window closed');
      assertRecorded(faults, recordLost.signal.reason);
    },
  };
}

async function makeSocketDir(trial: Trial): Promise<string> {
  const folder = join(runtimeDir, trial.id);
  const socketDir = join(folder, 'sockets');
  await mkdir(socketDir, { recursive: true, mode: 0o711 });
  await chmod(folder, 0o711);
  return socketDir;
}

function loginTo(trial: Trial, name: string): GatewayNode {
  const cluster = clusterOf(trial);
  return {
    name,
    connect: (signal) =>
      connect({
        name,
        dial: (dialSignal) => cluster.dial(name, 22, dialSignal),
        hostKey: cluster.node(name).hostKey,
        username: 'root',
        privateKey: trial.owned?.controllerKey ?? '',
        keepAliveMs: 0,
        signal,
      }),
  };
}

function assertRecorded(faults: readonly string[], reason: unknown): void {
  if (faults.length === 0) return;
  if (isInfrabedError(reason)) throw reason;
  throw new InfrabedError(
    'IB_LEDGER_INVALID',
    `The record of the agent's sessions is not whole: ${faults.join(' ')}`,
    { hint: 'Run the trial again; "df -h" shows whether the disk is full.', cause: reason },
  );
}
