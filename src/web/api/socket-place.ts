/** The place of a Unix socket: what a dead server left there goes, a living one keeps it. */
import { chmod, lstat, mkdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';
import { withLock } from '../../core/lock.js';

/** sun_path of unix(7) holds 108 bytes with the zero at its end. */
const longestPath = 107;

/**
 * Runs `listen` when the path is free, one server at a time. The socket is then everybody's: tokens decide.
 * @throws InfrabedError IB_SERVER when a living server has it, something else lies there, or the path cannot be used.
 */
export async function listenAt(path: string, listen: () => Promise<unknown>): Promise<void> {
  if (Buffer.byteLength(path) > longestPath) {
    throw new InfrabedError(
      'IB_SERVER',
      `The socket's path ${path} is longer than ${String(longestPath)} bytes.`,
      {
        hint: 'Name a shorter one by --socket.',
      },
    );
  }
  try {
    const folder = dirname(path);
    // One that was there before stays as its owner made it.
    if ((await mkdir(folder, { recursive: true, mode: 0o755 })) !== undefined) await chmod(folder, 0o755);
    await withLock(`${path}.lock`, async () => {
      await clear(path);
      await listen();
      await chmod(path, 0o666);
    });
  } catch (error) {
    if (error instanceof InfrabedError) throw error;
    throw new InfrabedError('IB_SERVER', `The server cannot listen at ${path}: ${messageOf(error)}.`, {
      cause: error,
    });
  }
}

async function clear(path: string): Promise<void> {
  const there = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (there === undefined) return;
  if (!there.isSocket()) {
    throw new InfrabedError('IB_SERVER', `${path} is no socket; nothing of yours is replaced.`, {
      hint: 'Name another path by --socket, or move the file away.',
    });
  }
  if (await answers(path)) {
    throw new InfrabedError('IB_SERVER', `A server listens at ${path} already.`, {
      hint: 'End that one first, or name another path by --socket.',
    });
  }
  await rm(path);
}

/** True if a process listens: only a refusal says that none does. */
async function answers(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error) => {
      if (errnoOf(error) === 'ECONNREFUSED') resolve(false);
      // Its queue is full: somebody is there.
      else if (errnoOf(error) === 'EAGAIN') resolve(true);
      else reject(error);
    });
  });
}
