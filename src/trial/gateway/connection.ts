/** One connection of the agent, and the login on the node that belongs to it alone. */
import type { Client, Connection } from 'ssh2';
import { isInfrabedError, messageOf } from '../../core/errors.js';
import { log } from '../../core/log.js';
import { Channel, type ChannelHost, type Gatekeeper } from './channel.js';
import {
  MalformedMessage,
  maxPacketBytes,
  message,
  openFailure,
  parseOpen,
  Reader,
  recipientOf,
  SSH,
  type ChannelOpen,
} from './messages.js';
import { ReplyQueue } from './replies.js';
import type { RefusalReason } from './refusals.js';
import type { Recorder } from './session.js';
import { Transport } from './transport.js';

/** What all connections of a gateway share. */
export interface Shared {
  recorder: Recorder;
  gatekeeper: Gatekeeper | undefined;
  channelsPerConnection: number;
  nextSessionId(): string;
  refused(node: string, reason: RefusalReason, detail: Record<string, unknown>): void;
}

export type EndedBy = 'gateway' | 'lost' | 'agent';

export class AgentConnection implements ChannelHost {
  private agentSide: Transport | undefined;
  private nodeSide: Transport | undefined;
  private readonly byAgentId = new Map<number, Channel>();
  private readonly byNodeId = new Map<number, Channel>();
  private readonly globalReplies = new ReplyQueue<'keep-alive'>();
  private noMoreSessions = false;
  private agentPaused = false;
  private nodePaused = false;
  private unreachable: string | undefined;
  private ended = false;

  constructor(
    readonly connection: string,
    readonly node: string,
    private readonly agent: Connection,
    private readonly shared: Shared,
  ) {}

  get recorder(): Recorder {
    return this.shared.recorder;
  }

  get gatekeeper(): Gatekeeper | undefined {
    return this.shared.gatekeeper;
  }

  nextSessionId(): string {
    return this.shared.nextSessionId();
  }

  refused(reason: RefusalReason, detail: Record<string, unknown>): void {
    this.shared.refused(this.node, reason, { connection: this.connection, ...detail });
  }

  /** Joins both sides. To be called when the agent's side is authenticated; `upstream` may be why there is none. */
  join(upstream: Client | Error): void {
    this.agentSide = new Transport(this.agent);
    this.agentSide.onPayload((payload) => this.taken('agent', payload));
    this.agentSide.onDrain(() => this.pauseNode(false));
    if (upstream instanceof Error) {
      this.fail(upstream);
      return;
    }
    this.nodeSide = new Transport(upstream);
    this.nodeSide.onPayload((payload) => this.taken('node', payload));
    this.nodeSide.onDrain(() => this.pauseAgent(false));
    upstream.once('end', () => this.end('lost')).once('close', () => this.end('lost'));
    if (this.nodeSide.closed) this.end('lost');
  }

  toAgent(payload: Uint8Array): void {
    this.agentSide?.send(payload);
    if (this.agentSide?.congested) this.pauseNode(true);
  }

  toNode(payload: Uint8Array): void {
    this.nodeSide?.send(payload);
    if (this.nodeSide?.congested) this.pauseAgent(true);
  }

  holdAgent(hold: boolean): void {
    if (hold) this.agentSide?.pause();
    else this.agentSide?.resume();
  }

  /** Ends both sides and all sessions. */
  end(endedBy: EndedBy): void {
    if (this.ended) return;
    this.ended = true;
    for (const channel of this.byAgentId.values()) channel.abandon(endedBy);
    this.byAgentId.clear();
    this.byNodeId.clear();
    if (this.agentSide) this.agentSide.end();
    else this.agent.end();
    this.nodeSide?.end();
  }

  private pauseAgent(pause: boolean): void {
    if (pause === this.agentPaused) return;
    this.agentPaused = pause;
    this.holdAgent(pause);
  }

  private pauseNode(pause: boolean): void {
    if (pause === this.nodePaused) return;
    this.nodePaused = pause;
    if (pause) this.nodeSide?.pause();
    else this.nodeSide?.resume();
  }

  /** The door between ssh2 and us: no exception gets through it. */
  private taken(side: 'agent' | 'node', payload: Buffer): boolean {
    if (this.ended) return true;
    try {
      return side === 'agent' ? this.fromAgent(payload) : this.fromNode(payload);
    } catch (error) {
      if (error instanceof MalformedMessage) {
        this.refused('protocol-error', { side, why: error.message });
        this.end(side === 'agent' ? 'agent' : 'lost');
      } else {
        this.recorder.fault(error);
      }
      return true;
    }
  }

  private fromAgent(payload: Buffer): boolean {
    const type = payload[0] ?? 0;
    if (type > SSH.CHANNEL_FAILURE) return false;
    if (type === SSH.GLOBAL_REQUEST) {
      this.onGlobalRequest(payload);
    } else if (type === SSH.CHANNEL_OPEN) {
      this.onOpen(payload);
    } else if (type >= SSH.CHANNEL_WINDOW_ADJUST) {
      const channel = this.byNodeId.get(recipientOf(payload));
      channel?.fromAgent(payload);
      if (channel?.done) this.forget(channel);
    }
    // Answers to requests and opens of ours: there are none.
    return true;
  }

  private fromNode(payload: Buffer): boolean {
    const type = payload[0] ?? 0;
    if (type === SSH.REQUEST_SUCCESS || type === SSH.REQUEST_FAILURE) return this.onGlobalReply(payload);
    // Requests of the node's own (keep-alive, forwarded connections) are ssh2's business: it answers or refuses.
    if (type < SSH.CHANNEL_OPEN_CONFIRMATION || type > SSH.CHANNEL_FAILURE) return false;
    const channel = this.byAgentId.get(recipientOf(payload));
    if (!channel) return true;
    if (type === SSH.CHANNEL_OPEN_CONFIRMATION) {
      this.onConfirmed(channel, payload);
    } else if (type === SSH.CHANNEL_OPEN_FAILURE) {
      this.forget(channel);
      this.toAgent(payload);
    } else {
      channel.fromNode(payload);
      if (channel.done) this.forget(channel);
    }
    return true;
  }

  private onGlobalReply(payload: Buffer): boolean {
    if (this.globalReplies.waiting === 0 || this.nodeSide?.awaitsReplies) return false;
    this.globalReplies.take(() => this.toAgent(payload));
    return true;
  }

  private forget(channel: Channel): void {
    this.byAgentId.delete(channel.agentId);
    if (channel.nodeId !== undefined) this.byNodeId.delete(channel.nodeId);
  }

  private onGlobalRequest(payload: Buffer): void {
    const reader = new Reader(payload);
    const name = reader.text();
    const wantReply = reader.bool();
    if (name === 'no-more-sessions@openssh.com') this.noMoreSessions = true;
    if (name === 'tcpip-forward') {
      this.refused('port-forwarding', { direction: 'remote', address: reader.text(), port: reader.u32() });
    }
    if (name === 'streamlocal-forward@openssh.com') {
      this.refused('socket-forwarding', { direction: 'remote', path: reader.text() });
    }
    if (!wantReply) return;
    if (name === 'keepalive@openssh.com' && this.nodeSide) {
      // Only the node itself can say that it is alive.
      this.globalReplies.expect('keep-alive');
      this.toNode(payload);
      return;
    }
    const answer = name === 'no-more-sessions@openssh.com' ? SSH.REQUEST_SUCCESS : SSH.REQUEST_FAILURE;
    this.globalReplies.answer(() => this.toAgent(message(answer)));
  }

  private onOpen(payload: Buffer): void {
    const open = parseOpen(payload);
    if (this.byAgentId.has(open.sender)) throw new MalformedMessage('A channel number is used twice.');
    if (open.type !== 'session') {
      this.refuseForwarding(open);
    } else if (this.unreachable !== undefined) {
      this.refuseOpen(open, openFailure.connectFailed, this.unreachable);
      setTimeout(() => this.end('lost'), 250);
    } else if (this.noMoreSessions) {
      this.refuseOpen(open, openFailure.prohibited, 'no more sessions were announced');
    } else if (this.byAgentId.size >= this.shared.channelsPerConnection) {
      const limit = this.shared.channelsPerConnection;
      this.refused('too-many-channels', { limit });
      this.refuseOpen(open, openFailure.resourceShortage, `at most ${String(limit)} sessions a connection`);
    } else {
      this.byAgentId.set(open.sender, new Channel(this, open.sender));
      // message type, string "session", sender, window: the size of packets stands behind them.
      this.toNode(withPacketLimit(payload, 1 + 4 + 'session'.length + 4 + 4));
    }
  }

  private refuseForwarding(open: ChannelOpen): void {
    if (open.type === 'direct-tcpip') {
      this.refused('port-forwarding', {
        direction: 'local',
        address: open.rest.text(),
        port: open.rest.u32(),
      });
      this.refuseOpen(open, openFailure.prohibited, 'port forwarding is not allowed here');
    } else if (open.type === 'direct-streamlocal@openssh.com') {
      this.refused('socket-forwarding', { direction: 'local', path: open.rest.text() });
      this.refuseOpen(open, openFailure.prohibited, 'socket forwarding is not allowed here');
    } else {
      this.refused('channel-type', { type: open.type });
      this.refuseOpen(open, openFailure.unknownType, 'only sessions are allowed here');
    }
  }

  private refuseOpen(open: ChannelOpen, reason: number, why: string): void {
    const head = Buffer.alloc(9);
    head[0] = SSH.CHANNEL_OPEN_FAILURE;
    head.writeUInt32BE(open.sender, 1);
    head.writeUInt32BE(reason, 5);
    // Behind them the description and an empty language tag.
    this.toAgent(Buffer.concat([head, message(0, why, '').subarray(1)]));
  }

  private onConfirmed(channel: Channel, payload: Buffer): void {
    const nodeId = new Reader(payload, 5).u32();
    channel.nodeId = nodeId;
    this.byNodeId.set(nodeId, channel);
    this.toAgent(withPacketLimit(payload, 1 + 4 + 4 + 4));
  }

  private fail(error: Error): void {
    const why = isInfrabedError(error) ? error.code : 'IB_NODE_UNREACHABLE';
    log.debug({ node: this.node, error: messageOf(error) }, 'the gateway could not reach a node');
    const said = { IB_SSH_AUTH: 'it refuses the login', IB_SSH_HOST_KEY: 'it shows another host key' };
    const reason = why in said ? said[why as keyof typeof said] : 'it does not answer on SSH';
    this.unreachable = `${this.node} cannot be reached: ${reason}`;
  }
}

/** The same message with the packet size at `at` bounded, since larger packets would not pass ssh2. */
function withPacketLimit(payload: Buffer, at: number): Buffer {
  if (payload.length < at + 4) throw new MalformedMessage('A message about opening a channel is too short.');
  if (payload.readUInt32BE(at) <= maxPacketBytes) return payload;
  const copy = Buffer.from(payload);
  copy.writeUInt32BE(maxPacketBytes, at);
  return copy;
}
