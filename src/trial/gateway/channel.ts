/**
 * One session channel between agent and node. Messages pass as they are, with the same channel numbers on both
 * sides; on their way they are recorded, held for the gatekeeper, or refused.
 */
import {
  extendedStderr,
  dataOf,
  message,
  parseRequest,
  Reader,
  SSH,
  type ChannelRequest,
} from './messages.js';
import { ReplyQueue } from './replies.js';
import type { RefusalReason } from './refusals.js';
import { SessionRecord, type Pty, type Recorder, type SessionKind, type SessionRequest } from './session.js';

export interface Gatekeeper {
  /** Asked before a command, shell (command null) or subsystem is forwarded. A rejection counts as a refusal. */
  decide(request: { session: string; node: string; command: string | null }): Promise<'allow' | 'refuse'>;
}

/** What a channel needs of its connection. */
export interface ChannelHost {
  readonly node: string;
  readonly connection: string;
  readonly recorder: Recorder;
  readonly gatekeeper: Gatekeeper | undefined;
  nextSessionId(): string;
  toAgent(payload: Uint8Array): void;
  toNode(payload: Uint8Array): void;
  refused(reason: RefusalReason, detail: Record<string, unknown>): void;
  /** Stops and continues reading from the agent. */
  holdAgent(hold: boolean): void;
}

/** Held bytes at which the agent's connection is not read any more. */
const heldLimitBytes = 4 * 1024 * 1024;

/** Environment of one session that is put on record. */
const maxEnvBytes = 64 * 1024;

export class Channel {
  /** The node's number of this channel; undefined until it confirms. */
  nodeId: number | undefined;
  private readonly env: Record<string, string> = {};
  private envBytes = 0;
  private pty: Pty | null = null;
  private session: SessionRecord | undefined;
  /** `start` is the answer to the request that starts the session. */
  private readonly replies = new ReplyQueue<'start' | 'other'>();
  private held: Buffer[] | undefined;
  private heldBytes = 0;
  private holding = false;
  /** The gateway itself ended the channel; what the node still sends is dropped. */
  private cutOff = false;
  private agentClosed = false;
  private nodeClosed = false;

  constructor(
    private readonly host: ChannelHost,
    readonly agentId: number,
  ) {}

  /** Both sides have closed it. */
  get done(): boolean {
    return this.agentClosed && this.nodeClosed;
  }

  fromAgent(payload: Buffer): void {
    if (this.held) {
      this.hold(payload);
      return;
    }
    const { session } = this;
    switch (payload[0]) {
      case SSH.CHANNEL_DATA:
        session?.stdin(dataOf(payload));
        break;
      case SSH.CHANNEL_REQUEST:
        this.onAgentRequest(payload);
        return;
      case SSH.CHANNEL_CLOSE:
        this.agentClosed = true;
        if (!this.nodeClosed) this.session?.end('agent');
        break;
    }
    if (!this.cutOff) this.host.toNode(payload);
  }

  fromNode(payload: Buffer): void {
    if (payload[0] === SSH.CHANNEL_CLOSE) {
      this.nodeClosed = true;
      this.session?.end('node');
    }
    if (this.cutOff) return;
    switch (payload[0]) {
      case SSH.CHANNEL_DATA:
        this.session?.stdout(dataOf(payload));
        break;
      case SSH.CHANNEL_EXTENDED_DATA:
        this.session?.stderr(dataOf(payload));
        break;
      case SSH.CHANNEL_REQUEST:
        this.onNodeRequest(payload);
        break;
      case SSH.CHANNEL_SUCCESS:
      case SSH.CHANNEL_FAILURE:
        this.onNodeReply(payload);
        return;
    }
    this.host.toAgent(payload);
  }

  /** The connection is gone, or the gateway ends it. */
  abandon(endedBy: 'gateway' | 'lost' | 'agent'): void {
    this.held = undefined;
    this.cutOff = true;
    this.session?.end(endedBy);
  }

  private onAgentRequest(payload: Buffer): void {
    const parsed = parseRequest(payload);
    switch (parsed.type) {
      case 'env':
        this.noteEnv(parsed.rest);
        break;
      case 'pty-req':
        this.notePty(parsed.rest);
        break;
      case 'window-change':
        this.session?.resize(parsed.rest.u32(), parsed.rest.u32());
        break;
      case 'signal':
        this.session?.signal(parsed.rest.text());
        break;
      case 'exec':
      case 'shell':
      case 'subsystem':
        this.onStart(parsed.type, parsed, payload);
        return;
      case 'auth-agent-req@openssh.com':
        this.refuseRequest('agent-forwarding', parsed);
        return;
      case 'x11-req':
        this.refuseRequest('x11-forwarding', parsed);
        return;
    }
    this.forwardRequest(parsed, payload);
  }

  private forwardRequest(parsed: ChannelRequest, payload: Buffer, answer: 'start' | 'other' = 'other'): void {
    if (this.cutOff) return;
    if (parsed.wantReply) this.replies.expect(answer);
    this.host.toNode(payload);
  }

  private refuseRequest(reason: RefusalReason, parsed: ChannelRequest): void {
    this.host.refused(reason, { session: this.session?.id ?? null });
    if (!parsed.wantReply) return;
    this.replies.answer(() => this.host.toAgent(message(SSH.CHANNEL_FAILURE, this.agentId)));
  }

  private noteEnv(rest: Reader): void {
    const name = rest.text();
    const value = rest.text();
    this.envBytes += name.length + value.length;
    if (this.envBytes <= maxEnvBytes) this.env[name] = value;
    else this.env['...'] = 'more than is recorded';
  }

  private notePty(rest: Reader): void {
    this.pty = { term: rest.text(), columns: rest.u32(), rows: rest.u32() };
  }

  private onStart(kind: SessionKind, parsed: ChannelRequest, payload: Buffer): void {
    if (this.cutOff) return;
    const command = kind === 'shell' ? null : Buffer.from(parsed.rest.bytes());
    if (this.session) {
      this.refuseRequest('second-command', parsed);
      return;
    }
    const id = this.host.nextSessionId();
    if (!this.begin(id, { kind, command, env: this.env, pty: this.pty })) {
      this.cut(parsed, 'infrabed: this request could not be recorded, so it was not run.\n');
      return;
    }
    if (!this.host.gatekeeper) {
      this.forwardRequest(parsed, payload, 'start');
      return;
    }
    this.held = [];
    const copy = Buffer.from(payload);
    const text =
      kind === 'subsystem' ? `subsystem ${command?.toString() ?? ''}` : (command?.toString() ?? null);
    void this.ask(this.host.gatekeeper, id, text).then((allowed) => this.decided(allowed, parsed, copy));
  }

  private begin(id: string, request: SessionRequest): boolean {
    const { host } = this;
    try {
      this.session = new SessionRecord(host.recorder, id, host.connection, host.node, request);
      return true;
    } catch (error) {
      host.recorder.fault(error);
      return false;
    }
  }

  private async ask(gatekeeper: Gatekeeper, session: string, command: string | null): Promise<boolean> {
    try {
      return (await gatekeeper.decide({ session, node: this.host.node, command })) === 'allow';
    } catch (error) {
      this.host.recorder.fault(error);
      return false;
    }
  }

  private decided(allowed: boolean, parsed: ChannelRequest, payload: Buffer): void {
    const { held } = this;
    if (!held) return;
    this.held = undefined;
    if (allowed) {
      this.forwardRequest(parsed, payload, 'start');
    } else {
      this.host.refused('gatekeeper', { session: this.session?.id ?? null });
      this.cut(parsed, 'infrabed: this command was refused, and was not run.\n');
    }
    for (const later of held) this.fromAgent(later);
    this.heldBytes = 0;
    if (this.holding) this.host.holdAgent(false);
    this.holding = false;
  }

  private hold(payload: Buffer): void {
    this.held?.push(Buffer.from(payload));
    this.heldBytes += payload.length;
    if (this.heldBytes < heldLimitBytes || this.holding) return;
    this.holding = true;
    this.host.holdAgent(true);
  }

  /** Ends the channel towards both sides with a word to the agent, as a failed command would. */
  private cut(parsed: ChannelRequest, why: string): void {
    const { host, agentId } = this;
    const waiting = this.replies.clear() + (parsed.wantReply ? 1 : 0);
    for (let index = 0; index < waiting; index += 1) host.toAgent(message(SSH.CHANNEL_SUCCESS, agentId));
    host.toAgent(message(SSH.CHANNEL_EXTENDED_DATA, agentId, extendedStderr, why));
    host.toAgent(message(SSH.CHANNEL_EOF, agentId));
    host.toAgent(exitStatus(agentId, 255));
    host.toAgent(message(SSH.CHANNEL_CLOSE, agentId));
    if (this.nodeId !== undefined && !this.agentClosed) host.toNode(message(SSH.CHANNEL_CLOSE, this.nodeId));
    this.cutOff = true;
  }

  private onNodeRequest(payload: Buffer): void {
    const { type, rest } = parseRequest(payload);
    if (!this.session) return;
    if (type === 'exit-status') this.session.exit = { exitCode: rest.u32(), signal: null };
    if (type === 'exit-signal') this.session.exit = { exitCode: null, signal: `SIG${rest.text()}` };
  }

  private onNodeReply(payload: Buffer): void {
    this.replies.take((kind) => {
      const started = kind === 'start' && payload[0] === SSH.CHANNEL_SUCCESS;
      if (started && this.session) this.session.accepted = true;
      this.host.toAgent(payload);
    });
  }
}

function exitStatus(channel: number, status: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(status);
  return Buffer.concat([message(SSH.CHANNEL_REQUEST, channel, 'exit-status', false), bytes]);
}
