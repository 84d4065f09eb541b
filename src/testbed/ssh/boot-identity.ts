/** Fresh sessions: proof that a node answers, and which boot it is in. */
import { deadline, systemClock, throwIfAborted } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { connect } from './connect.js';
import type { ConnectOptions } from './connect.js';
import { runOn, SessionNotOpened } from './session.js';

/** The kernel draws a new one at each boot; containers get a fresh one at each start of their init. */
const bootIdPath = '/proc/sys/kernel/random/boot_id';
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/**
 * The boot_id, read over a connection made for this alone.
 * @throws InfrabedError as connect() does, and IB_NODE_UNREACHABLE when the session gives no boot_id.
 */
export async function freshBootId(options: ConnectOptions): Promise<string> {
  const name = options.name ?? 'the node';
  const client = await connect(options);
  try {
    const result = await runOn(client, name, {
      argv: ['cat', bootIdPath],
      timeoutMs: options.timeoutMs ?? 20_000,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const bootId = result.stdout.trim();
    if (result.exitCode === 0 && uuid.test(bootId)) return bootId;
    throw new InfrabedError('IB_NODE_UNREACHABLE', `${name} lets us log in, but does not tell its boot_id.`, {
      details: { exitCode: result.exitCode, signal: result.signal, stderr: result.stderr.slice(0, 500) },
    });
  } catch (error) {
    if (!(error instanceof SessionNotOpened)) throw error;
    throw new InfrabedError('IB_NODE_UNREACHABLE', `${name} opens no session: ${messageOf(error)}.`, {
      cause: error,
    });
  } finally {
    client.destroy();
  }
}

/** First limit for the first byte, doubled up to the last one; sixteen containers and one slow machine both do well. */
const firstAnswerTimeoutMs = 400;
const lastAnswerTimeoutMs = 30_000;
/** Pause after a refused connection: sshd is not there yet. */
const refusedPauseMs = 50;

/**
 * Waits until the node answers a fresh session, and returns its boot_id. Polls quickly while nothing listens, but
 * once a byte has come it keeps that one connection for the rest of the time: an emulated machine needs 20 s for a
 * login, and starting again and again would starve its sshd.
 * @throws InfrabedError IB_TIMEOUT with the last failure, IB_SSH_HOST_KEY (waiting does not mend that), IB_CANCELLED.
 */
export async function waitForFreshSession(options: ConnectOptions, timeoutMs: number): Promise<string> {
  const name = options.name ?? 'the node';
  const limit = deadline(timeoutMs, `Waiting for SSH on ${name}`, options.signal);
  const end = systemClock.now() + timeoutMs;
  let answerTimeoutMs = firstAnswerTimeoutMs;
  let last: unknown;
  try {
    for (;;) {
      throwIfAborted(limit.signal);
      const remainingMs = Math.max(1, end - systemClock.now());
      try {
        return await freshBootId({
          ...options,
          signal: limit.signal,
          timeoutMs: remainingMs,
          answerTimeoutMs,
        });
      } catch (error) {
        if (isInfrabedError(error, 'IB_SSH_HOST_KEY')) throw error;
        throwIfAborted(options.signal);
        if (!limit.signal.aborted) last = error;
        if (isInfrabedError(error) && error.details['noAnswer'] === true) {
          answerTimeoutMs = Math.min(answerTimeoutMs * 2, lastAnswerTimeoutMs);
        }
      }
      await systemClock.sleep(refusedPauseMs, limit.signal);
    }
  } catch (error) {
    if (isInfrabedError(error, 'IB_SSH_HOST_KEY')) throw error;
    throwIfAborted(options.signal);
    throw new InfrabedError(
      'IB_TIMEOUT',
      `${name} did not answer over SSH within ${String(timeoutMs)} ms: ${messageOf(last ?? error)}`,
      { cause: last ?? error },
    );
  } finally {
    limit.clear();
  }
}
