/** A lock between processes on this machine, held by a flock(1) child that ends when we do, however we end. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { start } from './exec.js';
import { InfrabedError } from './errors.js';
import { throwIfAborted } from './clock.js';

export interface LockOptions {
  signal?: AbortSignal;
  /** Called once if another process holds the lock. */
  onWait?: () => void;
}

/**
 * Runs `work` while holding the lock of `path`; waits for it as long as the signal lets it.
 * @throws InfrabedError IB_PROGRAM_MISSING where util-linux is not installed, IB_CANCELLED.
 */
export async function withLock<T>(
  path: string,
  work: () => Promise<T>,
  options: LockOptions = {},
): Promise<T> {
  throwIfAborted(options.signal);
  await mkdir(dirname(path), { recursive: true });
  const release = await acquire(path, options);
  try {
    return await work();
  } finally {
    await release();
  }
}

async function acquire(path: string, options: LockOptions): Promise<() => Promise<void>> {
  // `cat` ends at the end of its input: when we release the lock, or when this process is gone.
  const child = start('flock', ['--no-fork', '--exclusive', path, 'cat'], {
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  let held = false;
  const waiting = setTimeout(() => {
    if (!held) options.onWait?.();
  }, 200);
  const onAbort = (): void => {
    child.kill('SIGKILL');
  };
  options.signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await new Promise<void>((resolve, reject) => {
      child.once('error', (cause) =>
        reject(
          new InfrabedError('IB_PROGRAM_MISSING', 'The program flock is not installed.', {
            hint: 'Run "make setup", or install util-linux.',
            cause,
          }),
        ),
      );
      child.once('close', () =>
        reject(new InfrabedError('IB_STATE_DIR', `The lock ${path} cannot be taken.`)),
      );
      child.stdout?.once('data', () => resolve());
      child.stdin?.on('error', () => undefined);
      // The echo of this byte is the proof that `cat` runs, so that the lock is ours.
      child.stdin?.write('.');
    });
    held = true;
  } catch (error) {
    throwIfAborted(options.signal);
    throw error;
  } finally {
    clearTimeout(waiting);
    options.signal?.removeEventListener('abort', onAbort);
  }
  return async () => {
    child.stdin?.end();
    await ended;
  };
}
