/** The life of one gateway: its sockets, its connections, and its end. */
import { chmod, chown, mkdir, rm } from 'node:fs/promises';
import { createServer, type Server as NetServer, type Socket } from 'node:net';
import { join } from 'node:path';
import pLimit from 'p-limit';
import ssh2, { type ClientInfo, type Connection, type Server } from 'ssh2';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { log } from '../../core/log.js';
import { generateKeyPair } from '../../testbed/ssh/keys.js';
import { Doorkeeper } from './authentication.js';
import { AgentConnection, type Shared } from './connection.js';
import { openEntrance } from './entrance.js';
import {
  defaultLimits,
  type Gateway,
  type GatewayLimits,
  type GatewayNode,
  type GatewayOptions,
  type GatewaySummary,
} from './options.js';
import { Refusals } from './refusals.js';
import { assertTransport } from './transport.js';

/** Ciphers that OpenSSL does in hardware; what a client prefers among them is taken. */
const algorithms: ssh2.Algorithms = {
  cipher: ['aes128-gcm@openssh.com', 'aes256-gcm@openssh.com', 'aes128-ctr', 'aes256-ctr'],
  compress: ['none'],
};

/** Longest path that fits a socket address: sun_path of unix(7) less its closing zero. */
const maxSocketPathBytes = 107;

export class TrialGateway implements Gateway {
  readonly hostKeyLine: string;
  private readonly limits: GatewayLimits;
  private readonly door: Doorkeeper;
  private readonly refusals: Refusals;
  private readonly shared: Shared;
  private readonly hostKey: string;
  private readonly listeners: NetServer[] = [];
  /** Open sockets, each with the timer that ends it unless it proves the key in time. */
  private readonly sockets = new Map<unknown, { socket: Socket; timer: NodeJS.Timeout }>();
  private readonly live = new Map<AgentConnection, AbortController>();
  private readonly work = new Set<Promise<void>>();
  private readonly faults: string[] = [];
  private readonly counts = { connections: 0, sessions: 0 };
  private closing: Promise<GatewaySummary> | undefined;

  constructor(private readonly options: GatewayOptions) {
    const pair = generateKeyPair(`infrabed-${options.trial}`);
    this.hostKey = pair.privateKey;
    this.hostKeyLine = pair.publicKey.split(' ').slice(0, 2).join(' ');
    this.limits = { ...defaultLimits, ...options.limits };
    this.door = new Doorkeeper(options.agentPublicKey);
    this.refusals = new Refusals(options.journal, options.clock, (error) => this.fault(error));
    this.shared = {
      recorder: {
        journal: options.journal,
        objects: options.objects,
        sessionsDir: options.sessionsDir,
        clock: options.clock,
        castBytes: this.limits.castBytes,
        fault: (error) => this.fault(error),
        track: (work) => this.track(work),
      },
      gatekeeper: options.gatekeeper,
      channelsPerConnection: this.limits.channelsPerConnection,
      nextSessionId: () => `s${String((this.counts.sessions += 1)).padStart(4, '0')}`,
      refused: (node, reason, detail) => this.refusals.note(node, reason, detail),
    };
  }

  async listen(): Promise<void> {
    const { options } = this;
    for (const node of options.nodes) checkSocketPath(node.name, this.pathOf(node.name));
    await mkdir(options.sessionsDir, { recursive: true, mode: 0o700 });
    await mkdir(options.socketDir, { recursive: true });
    await chmod(options.socketDir, 0o711);
    this.record('gateway.open', {
      nodes: options.nodes.map((node) => node.name),
      hostKey: this.hostKeyLine,
      agentKey: this.door.fingerprint,
      limits: { ...this.limits },
      gatekeeper: options.gatekeeper !== undefined,
    });
    try {
      for (const node of options.nodes) await this.listenFor(node);
    } catch (error) {
      await this.close('the gateway could not open its sockets');
      throw error;
    }
  }

  socketPath(node: string): string {
    if (this.options.nodes.some((known) => known.name === node)) return this.pathOf(node);
    throw new InfrabedError('IB_NODE_UNKNOWN', `The gateway leads to no node called "${node}".`);
  }

  async abortSessions(reason: string): Promise<void> {
    this.record('gateway.abort', { reason, openConnections: this.live.size });
    await this.endAll();
  }

  close(reason: string): Promise<GatewaySummary> {
    this.closing ??= this.shut(reason);
    return this.closing;
  }

  private async shut(reason: string): Promise<GatewaySummary> {
    this.door.revoke();
    const closed = this.listeners.map(
      (server) => new Promise<void>((resolve) => server.close(() => resolve())),
    );
    await this.orFault(() => this.record('gateway.close', { reason, openConnections: this.live.size }));
    await this.endAll();
    const cut = setTimeout(() => this.sockets.forEach(({ socket }) => socket.destroy()), 1500);
    await Promise.all(closed);
    clearTimeout(cut);
    for (const node of this.options.nodes) await rm(this.pathOf(node.name), { force: true });
    this.refusals.flush();
    const summary = { ...this.counts, refusals: this.refusals.total, faults: this.faults };
    await this.orFault(() => this.record('gateway.closed', { ...summary }));
    await this.orFault(() => this.options.objects.flush());
    await this.orFault(() => this.options.journal.flush());
    return summary;
  }

  /** Ends all connections, and waits until their sessions are on record. */
  private async endAll(): Promise<void> {
    for (const [connection, abort] of this.live) {
      abort.abort(new InfrabedError('IB_CANCELLED', 'The gateway ends its connections.'));
      connection.end('gateway');
    }
    while (this.work.size > 0) await Promise.all(this.work);
  }

  private track(work: Promise<void>): void {
    const done = work.catch((error: unknown) => this.fault(error)).finally(() => this.work.delete(done));
    this.work.add(done);
  }

  /** Without a record nothing may pass: everything is ended, and the trial hears of it once. */
  private fault(error: unknown): void {
    this.faults.push(messageOf(error));
    if (this.faults.length > 1) return;
    log.error({ trial: this.options.trial, error: messageOf(error) }, 'the gateway cannot keep its record');
    this.door.revoke();
    void this.endAll();
    this.options.onFault?.(error);
  }

  private async orFault(work: () => void | Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.fault(error);
    }
  }

  private record(kind: string, payload: Record<string, unknown>, node: string | null = null): void {
    this.options.journal.record({ kind, actor: 'controller', node, payload });
  }

  private pathOf(node: string): string {
    return join(this.options.socketDir, `${node}.sock`);
  }

  private async listenFor(node: GatewayNode): Promise<void> {
    const path = this.pathOf(node.name);
    await rm(path, { force: true });
    const ssh = new ssh2.Server({
      hostKeys: [this.hostKey],
      algorithms,
      // ssh2 would end a connection whose client is stopped for a minute; sshd does not.
      keepaliveInterval: 2 ** 31 - 1,
    });
    const startups = pLimit(this.limits.startups);
    const login: GatewayNode['connect'] = (signal) => startups(() => node.connect(signal));
    ssh.on('connection', (client, info) => this.onConnection({ ...node, connect: login }, client, info));
    const listener = createServer((socket) => this.onSocket(node.name, ssh, socket));
    this.listeners.push(listener);
    await new Promise<void>((resolve, reject) => {
      listener.once('error', reject);
      listener.listen(path, () => resolve());
    });
    await chmod(path, 0o600);
    if (this.options.agentUid !== undefined) await chown(path, this.options.agentUid, -1);
  }

  private onSocket(node: string, ssh: Server, socket: Socket): void {
    socket.on('error', (error) => log.debug({ node, error: error.message }, 'gateway socket'));
    const shut = this.closing !== undefined || this.faults.length > 0;
    if (shut || this.sockets.size >= this.limits.connections) {
      this.refusals.note(node, shut ? 'closed' : 'too-many-connections', { limit: this.limits.connections });
      // As sshd does beyond MaxStartups.
      socket.end(shut ? 'The gateway is closed\r\n' : 'Too many connections\r\n');
      socket.destroySoon();
      return;
    }
    const timer = setTimeout(() => socket.destroy(), this.limits.loginMs);
    this.sockets.set(socket, { socket, timer });
    socket.once('close', () => {
      clearTimeout(timer);
      this.sockets.delete(socket);
    });
    ssh.injectSocket(socket);
  }

  private onConnection(node: GatewayNode, client: Connection, info: ClientInfo): void {
    const id = `c${String((this.counts.connections += 1)).padStart(4, '0')}`;
    const connection = new AgentConnection(id, node.name, client, this.shared);
    const abort = new AbortController();
    this.live.set(connection, abort);
    client.on('error', (error) => log.debug({ node: node.name, error: error.message }, 'gateway connection'));
    client.once('close', () => {
      abort.abort(new InfrabedError('IB_CANCELLED', 'The agent hung up.'));
      connection.end('agent');
      this.live.delete(connection);
    });
    openEntrance({
      client,
      connection,
      software: info.header.versions.software,
      door: this.door,
      journal: this.options.journal,
      login: async (signal) => {
        if (signal.aborted) throw signal.reason;
        return node.connect(signal);
      },
      signal: abort.signal,
      onProven: () => clearTimeout(this.sockets.get(assertTransport(client)._sock)?.timer),
      fault: (error) => this.fault(error),
    });
  }
}

/** @throws InfrabedError IB_USAGE. */
function checkSocketPath(node: string, path: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(node)) {
    throw new InfrabedError(
      'IB_USAGE',
      `"${node}" is no name for a node: letters, digits, ".", "_" and "-" make one.`,
    );
  }
  if (Buffer.byteLength(path) <= maxSocketPathBytes) return;
  throw new InfrabedError(
    'IB_USAGE',
    `The socket path ${path} is longer than ${String(maxSocketPathBytes)} bytes.`,
    {
      hint: 'Choose a shorter folder for the sockets.',
    },
  );
}
