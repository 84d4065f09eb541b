/** Reads one path of a node through whatever runs commands there, by a script that follows no link. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { InfrabedError } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import { asset } from '../../core/paths.js';
import type { CommandResult, NodeCommand } from '../driver/driver.js';
import type { FileState } from './cluster.js';

const owned = { mode: z.string(), owner: z.string(), group: z.string() };
const replySchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('absent') }),
  z.strictObject({
    type: z.literal('file'),
    ...owned,
    sizeBytes: z.number(),
    sha256: z.string(),
    content: z.base64(),
    truncated: z.boolean(),
  }),
  z.strictObject({ type: z.enum(['directory', 'other']), ...owned }),
  z.strictObject({ type: z.literal('symlink'), ...owned, target: z.string(), at: z.string().optional() }),
]);

export const defaultReadBytes = 1024 * 1024;
/** Room in the reply for everything that is not content. */
const replyOverheadBytes = 64 * 1024;

/**
 * @param run runs a command on the node.
 * @throws InfrabedError IB_USAGE for a relative path, IB_NODE_FAILED when the script could not tell.
 */
export async function readPath(
  run: (command: NodeCommand) => Promise<CommandResult>,
  node: string,
  path: string,
  maxBytes = defaultReadBytes,
): Promise<FileState> {
  if (!path.startsWith('/')) throw new InfrabedError('IB_USAGE', `"${path}" is not an absolute path.`);
  const result = await run({
    argv: ['python3', '-I', '-', path, String(maxBytes)],
    stdin: await readFile(asset('src/testbed/cluster/read-path.py')),
    maxOutputBytes: Math.ceil((maxBytes * 4) / 3) + replyOverheadBytes,
  });
  if (result.exitCode !== 0 || result.truncated) throw unreadable(node, path, result);
  return parseReply(node, path, result);
}

function parseReply(node: string, path: string, result: CommandResult): FileState {
  let reply;
  try {
    reply = replySchema.parse(JSON.parse(result.stdout));
  } catch (error) {
    throw unreadable(node, path, result, error);
  }
  if (reply.type === 'file') {
    return { ...reply, content: Buffer.from(reply.content, 'base64').toString('utf8') };
  }
  if (reply.type === 'symlink') {
    const { at, ...link } = reply;
    return at === undefined ? link : { ...link, at };
  }
  return reply;
}

function unreadable(node: string, path: string, result: CommandResult, cause?: unknown): InfrabedError {
  const how = result.timedOut
    ? 'ran out of time'
    : result.signal
      ? `was ended by ${result.signal}`
      : `ended with status ${String(result.exitCode)}`;
  return new InfrabedError(
    'IB_NODE_FAILED',
    `${path} on ${node} could not be read: the reader ${how}: ${lastLines(result.stderr, 2)}`,
    { hint: 'The node needs a working python3.', ...(cause === undefined ? {} : { cause }) },
  );
}
