/** A task's own checker, ./checks/NAME.mjs, run in a child process: its faults and hangs are its own. */
import type { ChildProcess } from 'node:child_process';
import { dirname, resolve } from 'node:path';
import { z } from 'zod';
import { throwIfAborted } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { lastLines, runSync, start } from '../../core/exec.js';
import { asset } from '../../core/paths.js';
import { readOnlyRoom } from '../agent/sandbox.js';
import type { CheckContext, Checker, Json, Judgement } from './checker.js';

const host = asset('src/trial/gate/local-checker-host.mjs');
const pureTimeoutMs = 10_000;

const announcement = z.strictObject({
  summary: z.string().nullable(),
  hasWith: z.boolean(),
  hasEvidence: z.boolean(),
});
const judgement = z.object({ verdict: z.enum(['pass', 'fail']), why: z.string().min(1) });

/**
 * Loads the module at `path`, whose default export is
 * `{ summary?, with?(value), evidence?(value), gather(api, parameters), judge(evidence, parameters) }`;
 * `with` and `evidence` return the parsed value or throw.
 * @throws InfrabedError IB_CHECKER_FAILED when it cannot be loaded or lacks `gather` or `judge`.
 */
export function loadLocalChecker(path: string): Checker {
  const file = resolve(path);
  const about = announcement.parse(ask(file, 'describe', null));
  return {
    name: file.replace(/^.*\/(checks\/)/, './$1'),
    summary: about.summary ?? 'A checker of the task itself.',
    with: about.hasWith ? parsedBy(file, 'with') : z.record(z.string(), z.unknown()),
    evidence: about.hasEvidence ? parsedBy(file, 'evidence') : z.json(),
    gather: (context, parameters) => gatherInChild(file, context, parameters),
    judge: (evidence, parameters) => judge(file, evidence, parameters),
  };
}

function judge(file: string, evidence: unknown, parameters: unknown): Judgement {
  const result = judgement.safeParse(ask(file, 'judge', { evidence, parameters }));
  if (result.success) return result.data;
  throw new InfrabedError(
    'IB_CHECKER_FAILED',
    `${file}: "judge" returned no { verdict: "pass" | "fail", why }.`,
    {
      cause: result.error,
    },
  );
}

/** A schema whose parsing the module does. */
function parsedBy(file: string, part: 'with' | 'evidence'): z.ZodType<Json> {
  return z.unknown().transform((value, context) => {
    try {
      return ask(file, part, value) as Json;
    } catch (error) {
      context.addIssue({ code: 'custom', message: messageOf(error) });
      return z.NEVER;
    }
  });
}

const answerSchema = z.union([z.strictObject({ value: z.unknown() }), z.strictObject({ error: z.string() })]);

/** One call of a pure part, in a process that can read its package and nothing else: bundles come from anywhere. */
function ask(file: string, part: string, argument: unknown): unknown {
  const input = JSON.stringify(argument);
  const readable = [process.execPath, host, dirname(dirname(file))];
  const [program = '', ...args] = readOnlyRoom(readable, [process.execPath, host, part, file]);
  const result = runSync(program, args, { input, timeoutMs: pureTimeoutMs });
  const answer = answerSchema.safeParse(parseLastLine(result.stdout));
  if (!answer.success) {
    throw new InfrabedError(
      'IB_CHECKER_FAILED',
      `${file}: "${part}" gave no answer: ${lastLines(result.stderr, 3)}`,
    );
  }
  if ('error' in answer.data) throw new InfrabedError('IB_CHECKER_FAILED', `${file}: ${answer.data.error}`);
  return answer.data.value;
}

function parseLastLine(text: string): unknown {
  try {
    return JSON.parse(text.trimEnd().split('\n').at(-1) ?? '');
  } catch {
    return undefined;
  }
}

const command = z.object({
  argv: z.array(z.string()).min(1),
  stdin: z.string().optional(),
  env: z.record(z.string(), z.string()).optional(),
  timeoutMs: z.number().positive().optional(),
});
const messageSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('exec'), id: z.number(), node: z.string().nullable(), command }),
  z.object({ type: z.literal('read'), id: z.number(), node: z.string().nullable(), path: z.string() }),
  z.object({ type: z.literal('done'), value: z.json() }),
  z.object({ type: z.literal('failed'), error: z.string() }),
]);
type Message = z.output<typeof messageSchema>;
type Request = Extract<Message, { id: number }>;

/** Runs `gather`, answering what it asks of the nodes, and kills the process when the time is over. */
async function gatherInChild(file: string, context: CheckContext, parameters: unknown): Promise<Json> {
  throwIfAborted(context.signal);
  const child = start(process.execPath, [host, 'gather', file], {
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  const kill = (): void => {
    child.kill('SIGKILL');
  };
  context.signal.addEventListener('abort', kill, { once: true });
  try {
    return await converse(child, file, context, parameters);
  } finally {
    context.signal.removeEventListener('abort', kill);
    kill();
  }
}

function converse(
  child: ChildProcess,
  file: string,
  context: CheckContext,
  parameters: unknown,
): Promise<Json> {
  return new Promise((fulfil, reject) => {
    let nodeError: unknown;
    let stderr = '';
    const fail = (why: string): void => {
      // What the node refused is told as such, so that it can be attributed; the module may have wrapped it.
      if (isInfrabedError(nodeError)) reject(nodeError);
      else reject(new InfrabedError('IB_CHECKER_FAILED', `${file}: ${why}`));
    };
    child.stderr?.on('data', (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-4000)));
    child.on('error', (error) => fail(`its process could not be started: ${error.message}`));
    child.on('close', (status, signal) => {
      const how = signal === null ? `status ${String(status)}` : signal;
      fail(`its process ended with ${how} before "gather" did: ${lastLines(stderr, 3)}`);
    });
    child.on('message', (raw) => {
      const message = messageSchema.safeParse(raw);
      if (!message.success) fail('it sent a message that is none');
      else if (message.data.type === 'done') fulfil(message.data.value);
      else if (message.data.type === 'failed') fail(message.data.error);
      else void answer(child, message.data, context, (error) => (nodeError = error));
    });
    const { node, moment } = context;
    const nodes = context.cluster.nodes.map(({ name, address, roles }) => ({ name, address, roles }));
    child.send({ type: 'gather', node, moment, nodes, parameters });
  });
}

async function answer(
  child: ChildProcess,
  request: Request,
  context: CheckContext,
  onError: (error: unknown) => void,
): Promise<void> {
  try {
    const value = await serve(request, context);
    if (child.connected) child.send({ type: 'answer', id: request.id, value });
  } catch (error) {
    onError(error);
    if (child.connected) child.send({ type: 'answer', id: request.id, error: messageOf(error) });
  }
}

function serve(
  request: Request,
  { cluster, node: own, signal, commandTimeoutMs }: CheckContext,
): Promise<unknown> {
  const node = request.node ?? own;
  if (request.type === 'read') return cluster.read(node, request.path);
  const { argv, stdin, env, timeoutMs } = request.command;
  return cluster.exec(node, {
    argv,
    ...(stdin === undefined ? {} : { stdin }),
    ...(env === undefined ? {} : { env }),
    timeoutMs: Math.min(timeoutMs ?? commandTimeoutMs, commandTimeoutMs),
    signal,
  });
}
