/** The agent's window: gateway, sandbox, the agent itself, and the orderly end of everything it started. */
import { join } from 'node:path';
import { throwIfAborted } from '../../core/clock.js';
import { failpoint } from '../../core/failpoint.js';
import { packageRoot } from '../../core/paths.js';
import { parseAgent, type Agent } from '../agent/agent.js';
import { defaultLimits, makeRoom } from '../agent/limits.js';
import { runAgent } from '../agent/run-agent.js';
import { programFolder, type SandboxPlan } from '../agent/sandbox.js';
import { agentEnvironment, makeWorkspace } from '../agent/workspace.js';
import { openToolGuard } from '../gate/tool-guard.js';
import { effectiveChecks } from '../task/effective-checks.js';
import { closeNodes, snapshotUnits } from './close-nodes.js';
import { openRoute, type Route } from './route.js';
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
  const agent = parseAgent(request.agent, request.task);
  for (const node of trial.agentNodes) trial.units.set(node, await snapshotUnits(cluster, node));
  await guardTools(trial);
  const uid = agentUid(trial.id);
  const route = await openRoute(trial, uid);
  failpoint('agent.route');
  const deadlineMs = environment.clock.now() + request.task.definition.agent.timeout_sec * 1000;
  const plan = await planSandbox(trial, agent, { uid, route, deadlineMs });
  const room = await makeRoom(trial.id, defaultLimits);
  trial.cleanups.push({ what: 'agent limits', end: () => room.remove() });
  failpoint('agent.room');
  trial.journal.record({
    kind: 'agent.start',
    actor: 'controller',
    node: null,
    payload: { agent: agent.label, argv: [...agent.argv], uid, network: request.network, deadlineMs },
  });
  try {
    const exit = await runAgent({
      plan,
      argv: agent.argv,
      room,
      deadlineMs,
      outputDir: trial.bundle.agentDir,
      signal: AbortSignal.any([request.signal, route.recordLost]),
      clock: environment.clock,
    });
    failpoint('agent.exited');
    trial.timedOut = exit.timedOut;
    trial.agentExit = { exitCode: exit.exitCode, signal: exit.signal, durationMs: exit.durationMs };
    trial.journal.record({ kind: 'agent.exit', actor: 'agent', node: null, payload: { ...exit } });
  } finally {
    // Closing belongs to the window: nothing of the agent may reach a node once its time is over.
    await route.close();
    failpoint('agent.closed');
  }
  throwIfAborted(request.signal);
}

/** What the agent will see: its folder with instruction, keys and deadline, the sockets, its program. */
async function planSandbox(
  trial: Trial,
  agent: Agent,
  { uid, route, deadlineMs }: { uid: number; route: Route; deadlineMs: number },
): Promise<SandboxPlan> {
  const { environment, request, agentNodes } = trial;
  const { stateDir } = environment;
  const workspace = await makeWorkspace({
    dir: join(stateDir, 'work', trial.id, 'agent'),
    uid,
    instruction: request.task.instruction,
    nodes: agentNodes,
    ...route.agentKey,
    gatewayHostKey: route.hostKey,
    deadlineMs,
    program: agent.program,
  });
  return {
    ...workspace,
    socketDir: route.socketDir,
    extraPaths: [...request.agentPaths, ...ownProgram(agent.kind, request.agent)],
    hiddenPaths: [stateDir, packageRoot, request.task.dir],
    uid,
    network: request.network,
    env: agentEnvironment(agentNodes, deadlineMs),
  };
}

/** Nodes without a witness run checks with their own programs: those must be the ones of the window's opening. */
async function guardTools(trial: Trial): Promise<void> {
  const { environment, request } = trial;
  const nodes = unwitnessed(trial);
  if (nodes.length === 0) return;
  const uses = new Set(effectiveChecks(request.task.definition).map((check) => check.uses));
  trial.guard = await openToolGuard({
    cluster: clusterOf(trial),
    nodes,
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

/**
 * Where there is no witness the controller's own commands are logins: watches and workloads stand still meanwhile, since
 * nothing on the node tells their logins from the agent's.
 */
async function endLogins(trial: Trial): Promise<string[]> {
  const { background } = trial;
  const cluster = clusterOf(trial);
  const nodes = unwitnessed(trial).filter((node) => trial.units.has(node));
  if (nodes.length > 0) background?.window.pause(nodes, 'the controller ends every login');
  for (const node of nodes) await background?.workloads.halt(node);
  // Connections of the controller are logins too, and would be killed under its feet.
  cluster.hangUp();
  const silent = await closeNodes(cluster, trial.units, trial.journal);
  for (const node of nodes) await background?.workloads.restart(node);
  background?.window.resume();
  return silent;
}

function unwitnessed({ owned }: Trial): string[] {
  const nodes = owned?.driverCluster.nodes ?? [];
  return nodes.filter(({ witness }) => witness === undefined).map(({ name }) => name);
}

/** Sessions are ended and the key revoked by now; what logins left on the nodes is killed. */
export async function closeWindow(trial: Trial): Promise<void> {
  const silent = await endLogins(trial);
  trial.coverage.push(
    'Every command, session and file transfer that reached a node through the gateway is on record.',
    'Commands inside scripts, and those a node ran on another node, are on record only as the text that started them.',
    'Commands that the agent ran in its own sandbox are not on record.',
    ...silent,
  );
}
