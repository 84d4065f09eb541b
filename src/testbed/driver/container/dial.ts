/** A byte stream into a cluster's network: a socat child inside the namespace whose pipes are the two directions. */
import type { ChildProcess } from 'node:child_process';
import { Duplex } from 'node:stream';
import { throwIfAborted } from '../../../core/clock.js';
import { InfrabedError } from '../../../core/errors.js';
import { lastLines, start } from '../../../core/exec.js';
import { failpoint } from '../../../core/failpoint.js';
import { fencedArgv, fencedOff, markedEnvironment, stillHolds, type Holding } from './fence.js';
import { inNetwork } from './network.js';

/** How long a host that does not answer at all is waited for. */
const connectTimeoutSeconds = 10;
const bufferBytes = 262_144;

/**
 * Connects to a TCP port; resolves when the connection stands.
 * @param holding For whom; without it nothing is checked, as for nodes that no lease has.
 * @throws InfrabedError IB_NODE_UNREACHABLE when it is refused or times out, IB_CANCELLED, IB_LEASE_CONFLICT.
 */
export async function dialThrough(
  netnsPath: string,
  address: string,
  port: number,
  signal?: AbortSignal,
  holding?: Holding,
): Promise<Duplex> {
  throwIfAborted(signal);
  failpoint('container.dial.before-check');
  const target = `TCP4:${address}:${String(port)},nodelay,connect-timeout=${String(connectTimeoutSeconds)}`;
  // -t: after one side has closed, the other may go on for as long as it likes; shut-down: that close is passed on.
  // -d -d: say when connected.
  const socat = ['socat', '-d', '-d', '-b', String(bufferBytes), '-t', '86400', 'STDIO,shut-down', target];
  const entered = inNetwork(netnsPath, socat);
  const [program = '', ...args] = holding === undefined ? entered : fencedArgv(holding, entered);
  const env = { ...process.env, ...(holding === undefined ? {} : markedEnvironment(holding)) };
  failpoint('container.dial.checked');
  const child = start(program, args, { stdio: ['pipe', 'pipe', 'pipe'], env });
  const stream = new ChildStream(child, `${address}:${String(port)}`);
  const onAbort = (): void => {
    stream.destroy();
  };
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    await stream.connected;
    failpoint('container.dial.done');
  } catch (error) {
    stream.destroy();
    throwIfAborted(signal);
    // Refused by the fence, or killed by whoever took the cluster over.
    if (holding !== undefined && !(await stillHolds(holding))) throw fencedOff(holding, error);
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
  return stream;
}

/** Both pipes of a child as one stream. The child is ended with the stream, and the stream with the child. */
class ChildStream extends Duplex {
  readonly connected: Promise<void>;
  private said = '';
  private isConnected = false;
  private resolveConnected: () => void = () => undefined;
  private rejectConnected: (error: Error) => void = () => undefined;

  constructor(
    private readonly child: ChildProcess,
    private readonly target: string,
  ) {
    super({ readableHighWaterMark: bufferBytes, writableHighWaterMark: bufferBytes });
    this.connected = new Promise((resolve, reject) => {
      this.resolveConnected = resolve;
      this.rejectConnected = reject;
    });
    // A stream that is destroyed before anybody waits for it must not be an unhandled rejection.
    this.connected.catch(() => undefined);
    child.stdout?.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) child.stdout?.pause();
    });
    child.stdout?.on('end', () => this.push(null));
    child.stdout?.pause();
    child.stderr?.on('data', (chunk: Buffer) => this.hear(chunk.toString('utf8')));
    child.stdin?.on('error', (error) => this.broke(error));
    child.stdout?.on('error', (error) => this.broke(error));
    child.once('error', (error) => this.broke(error));
    child.once('close', (status) => {
      if (status !== 0) this.broke();
    });
  }

  private hear(text: string): void {
    this.said = (this.said + text).slice(-2000);
    if (this.isConnected || !this.said.includes('starting data transfer loop')) return;
    this.isConnected = true;
    this.resolveConnected();
  }

  private broke(cause?: Error): void {
    if (this.destroyed) return;
    const what = this.isConnected ? 'The connection to' : 'There is no connection to';
    const reasons = this.said.split('\n').filter((line) => /\s[EW]\s/.test(line));
    const reason = reasons.map((line) => line.replace(/^.*?\s[EW]\s/, '')).join('\n');
    const error = new InfrabedError(
      'IB_NODE_UNREACHABLE',
      `${what} ${this.target}${this.isConnected ? ' broke' : ''}: ${lastLines(reason || (cause?.message ?? ''), 1)}`,
      cause === undefined ? {} : { cause },
    );
    this.rejectConnected(error);
    // Before the connection stands nobody has the stream yet, so nobody could hear its error.
    this.destroy(this.isConnected ? error : undefined);
  }

  /** Accepted and without effect: socat has TCP_NODELAY set; ssh2 asks every socket for it. */
  setNoDelay(): this {
    return this;
  }

  override _read(): void {
    this.child.stdout?.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    // A failed write is told by the pipe's error event, which destroys this stream.
    this.child.stdin?.write(chunk, () => callback());
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.child.stdin?.end(() => callback());
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.rejectConnected(
      error ?? new InfrabedError('IB_NODE_UNREACHABLE', `The dialing of ${this.target} was given up.`),
    );
    this.child.stdin?.destroy();
    this.child.stdout?.destroy();
    this.child.stderr?.destroy();
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill('SIGKILL');
    callback(error);
  }
}
