/** The path outside the agent's reach: testimony from control groups and files of ours, commands through witness.py. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { z } from 'zod';
import { throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../../core/errors.js';
import { lastLines, start } from '../../../core/exec.js';
import { failpoint } from '../../../core/failpoint.js';
import { asset } from '../../../core/paths.js';
import type { CommandResult, NodeCommand, Power, Testimony, Witness } from '../driver.js';
import { fencedOff, markedEnvironment, stillHolds } from './fence.js';
import { fileTail, findInit, type NodePlace, type ProcessIdentity } from './node.js';
import { desiredPower } from './power.js';
import { networkFault } from './network.js';
import type { Supervisor } from './supervisor.js';

const defaultTimeoutMs = 60_000;
const defaultMaxOutputBytes = 1024 * 1024;
const testimonyTimeoutMs = 5000;
const consoleTailBytes = 4096;

export function containerWitness(
  place: NodePlace,
  power: Power,
  supervisor: Supervisor,
  clock: Clock,
): Witness {
  return {
    testify: (signal) => testify(place, power, supervisor, clock, signal),
    exec: (command) => execIn(place, command, true, clock),
    execOwn: (command) => execIn(place, command, false, clock),
  };
}

async function testify(
  place: NodePlace,
  power: Power,
  supervisor: Supervisor,
  clock: Clock,
  signal?: AbortSignal,
): Promise<Testimony> {
  const state = await power.state(signal);
  const init = await findInit(place.groups);
  return {
    power: state,
    initRunning: init !== undefined,
    bootId: init === undefined ? null : await readBootId(place, clock, signal),
    infrastructureFault: await infrastructureFault(place, state, supervisor),
    consoleTail: await fileTail(place.consolePath, consoleTailBytes),
  };
}

/** null where the node does not let itself be asked: that is testimony, too. */
async function readBootId(place: NodePlace, clock: Clock, signal?: AbortSignal): Promise<string | null> {
  const argv = ['cat', '/proc/sys/kernel/random/boot_id'];
  try {
    const command = { argv, timeoutMs: testimonyTimeoutMs, ...(signal ? { signal } : {}) };
    const result = await execIn(place, command, true, clock);
    return result.exitCode === 0 ? result.stdout.trim() : null;
  } catch (error) {
    if (isInfrabedError(error, 'IB_NODE_OFF') || isInfrabedError(error, 'IB_NODE_FAILED')) return null;
    throw error;
  }
}

/** Only what nothing on the node can bring about counts as ours. */
async function infrastructureFault(
  place: NodePlace,
  state: string,
  supervisor: Supervisor,
): Promise<string | null> {
  const network = await networkFault(place.names.netns);
  if (network !== null) return network;
  if (state !== 'off' || (await desiredPower(place.folder)) === 'off') return null;
  return (await supervisor.ending(place)).fault;
}

const resultSchema = z.union([
  z.object({
    error: z.string(),
    isOff: z.boolean(),
    isFenced: z.boolean().default(false),
    errno: z.number().default(0),
  }),
  z.object({ exitCode: z.number().optional(), signal: z.string().optional(), timedOut: z.boolean() }),
]);

/** What every command gets, and nothing else. */
const environment = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8', TERM: 'dumb' };

const pristineEnvironment = {
  // Settings in a home folder would be the node's own word.
  HOME: '/nonexistent',
  // systemctl refuses to ask an init whose root folder is not its own.
  SYSTEMD_IGNORE_CHROOT: '1',
};

async function execIn(
  place: NodePlace,
  command: NodeCommand,
  isPristine: boolean,
  clock: Clock,
): Promise<CommandResult> {
  throwIfAborted(command.signal);
  failpoint('container.exec.before-check');
  const init = await findInit(place.groups);
  if (init === undefined) throw (await stillHolds(place.holding)) ? nodeOff(place) : fencedOff(place.holding);
  failpoint('container.exec.checked');
  const startMs = clock.now();
  const group = join(
    place.groups.unified,
    `${isPristine ? 'witness' : 'setup'}-${randomBytes(4).toString('hex')}`,
  );
  // The group is told beside the mark, so that a take-over ends what the command started, too.
  const env = { ...process.env, ...markedEnvironment(place.holding), INFRABED_GROUP: group };
  const finished = await runWitness(request(place, init, command, isPristine, group), command, env);
  failpoint('container.exec.done');
  const common = {
    stdout: finished.stdout.text(),
    stderr: finished.stderr.text(),
    truncated: finished.stdout.isTruncated || finished.stderr.isTruncated,
    durationMs: clock.now() - startMs,
  };
  throwIfAborted(command.signal);
  if (finished.result === '' && !(await stillHolds(place.holding))) throw fencedOff(place.holding);
  const result = parseResult(finished.result, place, common.stderr);
  if ('error' in result) {
    if (result.isFenced) throw fencedOff(place.holding, result.error);
    if (result.isOff) throw nodeOff(place);
    // Status 127 is what a shell gives for a program that is not there, 126 for one that it may not run.
    if (result.errno === 2)
      return { ...common, exitCode: 127, signal: null, timedOut: false, stderr: `${result.error}\n` };
    if (result.errno === 13)
      return { ...common, exitCode: 126, signal: null, timedOut: false, stderr: `${result.error}\n` };
    throw new InfrabedError(
      'IB_NODE_FAILED',
      `A command could not be run in ${place.node.name}: ${result.error}`,
      {
        details: { argv: command.argv },
      },
    );
  }
  const { timedOut } = result;
  return {
    ...common,
    exitCode: timedOut ? null : (result.exitCode ?? null),
    signal: result.signal ?? null,
    timedOut,
  };
}

function nodeOff(place: NodePlace): InfrabedError {
  return new InfrabedError('IB_NODE_OFF', `${place.node.name} has no running init.`);
}

function parseResult(text: string, place: NodePlace, stderr: string): z.infer<typeof resultSchema> {
  try {
    return resultSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new InfrabedError(
      'IB_NODE_FAILED',
      `The witness of ${place.node.name} ended without a result: ${lastLines(stderr || messageOf(cause), 2)}`,
      { cause },
    );
  }
}

function request(
  place: NodePlace,
  init: ProcessIdentity,
  command: NodeCommand,
  isPristine: boolean,
  group: string,
): unknown {
  return {
    ...init,
    fence: place.holding.fence,
    mark: place.holding.mark,
    generation: place.holding.generation,
    isPristine,
    base: place.cluster.uidBase,
    idmapped: place.cluster.mapping === 'idmapped',
    lowers: place.cluster.lowers,
    scratch: join(place.folder, 'witness'),
    group,
    argv: command.argv,
    env: { ...environment, ...(isPristine ? pristineEnvironment : { HOME: '/root' }), ...command.env },
    timeoutMs: command.timeoutMs ?? defaultTimeoutMs,
  };
}

/** The first bytes of a stream; the rest is read and dropped, so that the command does not stand still. */
class Capture {
  private readonly chunks: Buffer[] = [];
  private sizeBytes = 0;
  isTruncated = false;

  constructor(stream: Readable | null, maxBytes: number) {
    stream?.on('data', (chunk: Buffer) => {
      const room = maxBytes - this.sizeBytes;
      if (chunk.length > room) this.isTruncated = true;
      if (room <= 0) return;
      this.chunks.push(chunk.subarray(0, room));
      this.sizeBytes += Math.min(chunk.length, room);
    });
    stream?.on('error', () => (this.isTruncated = true));
  }

  text(): string {
    return Buffer.concat(this.chunks).toString('utf8');
  }
}

/** How long output may go on after the command itself has ended: what it left behind may hold the streams open. */
const drainMs = 250;

async function runWitness(
  body: unknown,
  command: NodeCommand,
  env: NodeJS.ProcessEnv,
): Promise<{ result: string; stdout: Capture; stderr: Capture }> {
  const script = asset('src/testbed/driver/container/witness.py');
  const stdio = ['pipe', 'pipe', 'pipe', 'pipe', 'pipe'] as const;
  const child = start('/usr/bin/python3', ['-I', '-S', script], { stdio: [...stdio], cwd: '/', env });
  const maxBytes = command.maxOutputBytes ?? defaultMaxOutputBytes;
  const stdout = new Capture(child.stdout, maxBytes);
  const stderr = new Capture(child.stderr, maxBytes);
  const result = new Capture(child.stdio[3] as Readable, defaultMaxOutputBytes);
  // A command that does not read its input, or has ended, closes the pipe: no error of ours.
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(command.stdin ?? '');
  const requestPipe = child.stdio[4] as Writable;
  requestPipe.on('error', () => undefined);
  requestPipe.end(JSON.stringify(body));
  const onAbort = (): void => {
    child.kill('SIGTERM');
  };
  command.signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await new Promise<void>((resolve, reject) => {
      child.once('error', (cause) =>
        reject(
          new InfrabedError('IB_PROGRAM_MISSING', '/usr/bin/python3 is not installed.', {
            hint: 'Run "make setup".',
            cause,
          }),
        ),
      );
      child.once('close', () => resolve());
      child.once('exit', () => {
        setTimeout(resolve, drainMs).unref();
      });
    });
  } finally {
    command.signal?.removeEventListener('abort', onAbort);
    child.stdout?.destroy();
    child.stderr?.destroy();
  }
  return { result: result.text(), stdout, stderr };
}
