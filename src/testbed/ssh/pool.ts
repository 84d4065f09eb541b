/** A small pool of connections to one node: many commands at once without running into sshd's limits. */
import type { Client } from 'ssh2';
import { throwIfAborted } from '../../core/clock.js';
import { InfrabedError } from '../../core/errors.js';
import type { CommandResult, NodeCommand } from './command.js';
import { runOn, SessionNotOpened } from './session.js';

export interface PoolOptions {
  /** What errors call the node. */
  name: string;
  /** Opens a connection; the pool calls it for one connection at a time, which keeps it below MaxStartups. */
  open: (signal: AbortSignal) => Promise<Client>;
  /** Default 4. */
  maxConnections?: number;
  /** Default 8: below sshd's MaxSessions of 10, with room for killing what ran too long. */
  sessionsPerConnection?: number;
}

interface Connection {
  client: Client;
  capacity: number;
  sessions: number;
  lastUsedAt: number;
}

interface Waiter {
  resolve: (connection: Connection) => void;
  reject: (error: unknown) => void;
}

/** A connection idle for longer is asked for a sign of life first, since its node may have gone meanwhile. */
const idleBeforeProbeMs = 1000;
const probeTimeoutMs = 3000;
/** Attempts to get a session for one command before the node counts as unreachable. */
const maxAttempts = 8;

export class ConnectionPool {
  private readonly connections = new Set<Connection>();
  private readonly waiters: Waiter[] = [];
  private opening: AbortController | undefined;
  private closed = false;
  private readonly maxConnections: number;
  private readonly sessionsPerConnection: number;

  constructor(private readonly options: PoolOptions) {
    this.maxConnections = options.maxConnections ?? 4;
    this.sessionsPerConnection = options.sessionsPerConnection ?? 8;
  }

  /** Open connections. */
  get size(): number {
    return this.connections.size;
  }

  /**
   * Runs a command on a connection with a free session; waits for one where all are taken. A dead connection is
   * replaced, but a command that may have run is never repeated.
   * @throws InfrabedError IB_NODE_UNREACHABLE, IB_SSH_AUTH, IB_SSH_HOST_KEY, IB_TIMEOUT or IB_CANCELLED.
   */
  async run(command: NodeCommand): Promise<CommandResult> {
    let last: SessionNotOpened | undefined;
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const connection = await this.acquire(command.signal);
      try {
        return await runOn(connection.client, this.options.name, command);
      } catch (error) {
        if (!(error instanceof SessionNotOpened)) throw error;
        last = error;
        this.learnFrom(error, connection);
      } finally {
        this.release(connection);
      }
    }
    throw new InfrabedError(
      'IB_NODE_UNREACHABLE',
      `sshd on ${this.options.name} opens no session: ${last?.message ?? 'no reason given'}.`,
      { hint: 'Look at MaxSessions in sshd_config on the node.', cause: last },
    );
  }

  /** Ends every connection at once, as before a reboot. Running commands fail; later ones open new connections. */
  drop(): void {
    this.opening?.abort(
      new InfrabedError('IB_NODE_UNREACHABLE', `Connections to ${this.options.name} were dropped.`),
    );
    for (const connection of [...this.connections]) this.discard(connection);
  }

  /** Drops everything for good. */
  close(): void {
    this.closed = true;
    this.drop();
    this.rejectWaiters(this.closedError());
  }

  private closedError(): InfrabedError {
    return new InfrabedError('IB_NODE_UNREACHABLE', `Connections to ${this.options.name} are closed.`);
  }

  private rejectWaiters(error: unknown): void {
    for (const waiter of this.waiters.splice(0)) waiter.reject(error);
  }

  private async acquire(signal: AbortSignal | undefined): Promise<Connection> {
    for (;;) {
      const connection = await this.reserve(signal);
      const isStale =
        connection.sessions === 1 && performance.now() - connection.lastUsedAt > idleBeforeProbeMs;
      if (!isStale || (await answers(connection.client))) return connection;
      this.discard(connection);
      this.release(connection);
    }
  }

  /** Takes a free session, now or in turn. */
  private reserve(signal: AbortSignal | undefined): Promise<Connection> {
    throwIfAborted(signal);
    if (this.closed) throw this.closedError();
    return new Promise((resolve, reject) => {
      const onAbort = (): void => {
        const index = this.waiters.indexOf(waiter);
        if (index >= 0) this.waiters.splice(index, 1);
        try {
          throwIfAborted(signal);
        } catch (error) {
          waiter.reject(error);
        }
      };
      const settled = (): void => signal?.removeEventListener('abort', onAbort);
      const waiter: Waiter = {
        resolve: (connection) => {
          settled();
          resolve(connection);
        },
        reject: (error) => {
          settled();
          reject(error instanceof Error ? error : new Error(String(error)));
        },
      };
      signal?.addEventListener('abort', onAbort, { once: true });
      this.waiters.push(waiter);
      this.serveWaiters();
    });
  }

  private serveWaiters(): void {
    for (const connection of this.connections) {
      while (connection.sessions < connection.capacity) {
        const waiter = this.waiters.shift();
        if (!waiter) return;
        connection.sessions++;
        waiter.resolve(connection);
      }
    }
    if (this.waiters.length > 0 && !this.opening && this.connections.size < this.maxConnections)
      this.openAnother();
  }

  private openAnother(): void {
    const controller = new AbortController();
    this.opening = controller;
    this.options.open(controller.signal).then(
      (client) => {
        this.opening = undefined;
        // drop() during the very last step of the login: what was opened belongs to the time before.
        if (controller.signal.aborted) client.destroy();
        else this.adopt(client);
        this.serveWaiters();
      },
      (error: unknown) => {
        this.opening = undefined;
        if (controller.signal.aborted && !this.closed) this.serveWaiters();
        // With other connections alive the waiting ones get their turn there.
        else if (this.connections.size === 0) this.rejectWaiters(error);
      },
    );
  }

  private adopt(client: Client): void {
    const connection = {
      client,
      capacity: this.sessionsPerConnection,
      sessions: 0,
      lastUsedAt: performance.now(),
    };
    this.connections.add(connection);
    client.once('close', () => {
      this.connections.delete(connection);
      this.serveWaiters();
    });
  }

  private learnFrom(error: SessionNotOpened, connection: Connection): void {
    // One of the sessions counted is the refused one itself.
    if (error.refused && connection.sessions > 1) connection.capacity = connection.sessions - 1;
    else this.discard(connection);
  }

  private discard(connection: Connection): void {
    this.connections.delete(connection);
    connection.client.destroy();
  }

  private release(connection: Connection): void {
    connection.sessions--;
    connection.lastUsedAt = performance.now();
    this.serveWaiters();
  }
}

/**
 * Asks for the end of a forwarding that never was: sshd has to answer (RFC 4254, section 4), starts no process for
 * it and logs nothing.
 */
function answers(client: Client): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), probeTimeoutMs);
    const answered = (value: boolean): void => {
      clearTimeout(timer);
      resolve(value);
    };
    try {
      client.unforwardIn('127.0.0.1', 1, (error?: Error | null) =>
        answered(error?.message !== 'No response from server'),
      );
    } catch {
      // ssh2 throws "Not connected" for a connection that has ended already.
      answered(false);
    }
  });
}
