/** The agent's window: gateway, sandbox, the agent itself, and the orderly end of everything it started. */
import { chmod, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, isInfrabedError } from '../../core/errors.js';
import { packageRoot, runtimeDir } from '../../core/paths.js';
import { connect } from '../../testbed/ssh/connect.js';
import { generateKeyPair } from '../../testbed/ssh/keys.js';
import { parseAgent } from '../agent/agent.js';
import { defaultLimits, makeRoom } from '../agent/limits.js';
import { runAgent } from '../agent/run-agent.js';
import { programFolder } from '../agent/sandbox.js';
import { agentEnvironment, makeWorkspace } from '../agent/workspace.js';
import { openToolGuard } from '../gate/tool-guard.js';
import { startGateway } from '../gateway/index.js';
import { effectiveChecks } from '../task/effective-checks.js';
import { closeNodes, snapshotUnits } from './close-nodes.js';
import { clusterOf, type Trial } from './trial.js';

/** Agents run under host users of this range: no account, above every range that nodes get. */
const firstAgentUid = 1_900_000_000;
const agentUids = 100_000_000;

/** One user a trial, so that two agents on one host are strangers. */
function agentUid(trialId: string): number {
  return firstAgentUid + ((parseInt(trialId.slice(-4), 16) * 1021 + process.pid) % agentUids);
}

export async function agentWindow(trial: Trial): Promise<void> {
  const { environment, request } = trial;
  const cluster = clusterOf(trial);
  const { task, signal } = request;
  const agent = parseAgent(request.agent, task);
  for (const node of trial.agentNodes) trial.units.set(node, await snapshotUnits(cluster, node));
  await guardTools(trial);
  const uid = agentUid(trial.id);
  const agentKey = generateKeyPair('agent');
  const socketDir = join(runtimeDir, trial.id, 'sockets');
  await mkdir(socketDir, { recursive: true, mode: 0o711 });
  await chmod(join(runtimeDir, trial.id), 0o711);
  trial.cleanups.push({
    what: 'sockets',
    end: () => rm(join(runtimeDir, trial.id), { recursive: true, force: true }),
  });
  const recordLost = new AbortController();
  const gateway = await startGateway({
    trial: trial.id,
    journal: trial.journal,
    objects: trial.bundle.objects,
    sessionsDir: trial.bundle.sessionsDir,
    socketDir,
    agentUid: uid,
    agentPublicKey: agentKey.publicKey,
    clock: environment.clock,
    // What cannot be recorded must not go on: the agent is ended, and the trial with it.
    onFault: (fault) => recordLost.abort(fault),
    nodes: trial.agentNodes.map((name) => ({
      name,
      connect: (nodeSignal) =>
        connect({
          name,
          dial: (dialSignal) => cluster.dial(name, 22, dialSignal),
          hostKey: cluster.node(name).hostKey,
          username: 'root',
          privateKey: trial.owned?.controllerKey ?? '',
          keepAliveMs: 0,
          signal: nodeSignal,
        }),
    })),
  });
  trial.cleanups.push({ what: 'gateway', end: () => gateway.close('end of trial').then(() => undefined) });
  const workspaceDir = join(environment.stateDir, 'work', trial.id, 'agent');
  const deadlineMs = environment.clock.now() + task.definition.agent.timeout_sec * 1000;
  const workspace = await makeWorkspace({
    dir: workspaceDir,
    uid,
    instruction: task.instruction,
    nodes: trial.agentNodes,
    ...agentKey,
    gatewayHostKey: gateway.hostKeyLine,
    deadlineMs,
    program: agent.program,
  });
  const room = await makeRoom(trial.id, defaultLimits);
  trial.cleanups.push({ what: 'agent limits', end: () => room.remove() });
  trial.journal.record({
    kind: 'agent.start',
    actor: 'controller',
    node: null,
    payload: { agent: agent.label, argv: [...agent.argv], uid, network: request.network, deadlineMs },
  });
  try {
    const exit = await runAgent({
      plan: {
        ...workspace,
        socketDir,
        extraPaths: [...request.agentPaths, ...ownProgram(agent.kind, request.agent)],
        hiddenPaths: [environment.stateDir, packageRoot, task.dir],
        uid,
        network: request.network,
        env: agentEnvironment(trial.agentNodes, deadlineMs),
      },
      argv: agent.argv,
      room,
      deadlineMs,
      outputDir: trial.bundle.agentDir,
      signal: AbortSignal.any([signal, recordLost.signal]),
      clock: environment.clock,
    });
    trial.timedOut = exit.timedOut;
    trial.agentExit = { exitCode: exit.exitCode, signal: exit.signal, durationMs: exit.durationMs };
    trial.journal.record({ kind: 'agent.exit', actor: 'agent', node: null, payload: { ...exit } });
  } finally {
    // Closing belongs to the window: nothing of the agent may reach a node once its time is over.
    const { faults } = await gateway.close('window closed');
    assertRecorded(faults, recordLost.signal.reason);
  }
}

/** @throws the fault of the record, or IB_LEDGER_INVALID with what the gateway says is missing. */
function assertRecorded(faults: readonly string[], reason: unknown): void {
  if (faults.length === 0) return;
  if (isInfrabedError(reason)) throw reason;
  throw new InfrabedError(
    'IB_LEDGER_INVALID',
    `The record of the agent's sessions is not whole: ${faults.join(' ')}`,
    {
      hint: 'Run the trial again; "df -h" shows whether the disk is full.',
      cause: reason,
    },
  );
}

/** Nodes without a witness run checks with their own programs: those must be the ones of the window's opening. */
async function guardTools(trial: Trial): Promise<void> {
  const { environment, request, owned } = trial;
  const unwitnessed = (owned?.driverCluster.nodes ?? []).filter((node) => node.witness === undefined);
  if (unwitnessed.length === 0) return;
  const uses = new Set(effectiveChecks(request.task.definition).map((check) => check.uses));
  trial.guard = await openToolGuard({
    cluster: clusterOf(trial),
    nodes: unwitnessed.map((node) => node.name),
    programs: [...uses].flatMap((name) => environment.checkers.get(name)?.programs ?? []),
    signal: request.signal,
  });
}

/** `command:/opt/agent/run ...`: the folder of a program that is no part of the system is shown too. */
function ownProgram(kind: string, label: string): string[] {
  if (kind !== 'command') return [];
  const [program = ''] = label.slice('command:'.length).trim().split(/\s+/);
  const folder = programFolder(program);
  return folder === null ? [] : [folder];
}

/** Sessions are ended and the key revoked by now; what logins left on the nodes is killed. */
export async function closeWindow(trial: Trial): Promise<void> {
  // Pooled connections of the controller are logins too, and would be killed under its feet.
  await clusterOf(trial).close();
  await closeNodes(clusterOf(trial), trial.units, trial.journal);
  trial.coverage.push(
    'Every command, session and file transfer that reached a node through the gateway is on record.',
    'Commands inside scripts, and those a node ran on another node, are on record only as the text that started them.',
    'Commands that the agent ran in its own sandbox are not on record.',
  );
}
