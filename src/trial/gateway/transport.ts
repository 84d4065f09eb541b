/**
 * An authenticated SSH transport that hands over connection-protocol messages as they are on the wire.
 * ssh2 does key exchange, encryption and authentication; its channel layer is by-passed, since it loses what a
 * relay must keep (terminal modes, commands that are no UTF-8, messages after EOF, windows end to end).
 * This is the one place that touches ssh2's inside; `assertTransport` says so when an update changes it.
 */
import type { Duplex } from 'node:stream';
import type { Client, Connection } from 'ssh2';
import { InfrabedError } from '../../core/errors.js';
import { Outgoing, type Cipher } from './outgoing.js';

interface PacketWriter {
  allocStart: number;
  alloc(payloadBytes: number): Uint8Array;
  finalize(packet: Uint8Array): Uint8Array;
}

interface Protocol {
  _onPayload: (payload: Buffer) => unknown;
  _onPacket: () => void;
  _decipher: { _onPayload: (payload: Buffer) => unknown } | undefined;
  _cipher: Cipher;
  _packetRW: { read: { read(payload: Buffer): Buffer }; write: PacketWriter };
  /** Set while keys are exchanged: what is sent meanwhile waits in `_queue`. */
  _kexinit: unknown;
  _queue: Uint8Array[] | undefined;
}

interface Inside {
  _protocol: Protocol;
  _sock: Duplex;
  /** Of a client: global requests of its own (proof of host keys) that wait for their answer. */
  _callbacks?: unknown[];
}

/** Sees each payload first; true when it dealt with it, false to leave it to ssh2. */
export type PayloadHandler = (payload: Buffer) => boolean;

/** Bytes that may wait in a socket before the other side is no longer read. */
const highWaterBytes = 256 * 1024;

export class Transport {
  private readonly protocol: Protocol;
  private readonly socket: Duplex;
  private readonly inside: Inside;
  private readonly outgoing: Outgoing;
  private pauses = 0;
  closed = false;

  /** To be made when the client is `ready`, so that no connection-protocol message was missed. */
  constructor(private readonly client: Client | Connection) {
    this.inside = assertTransport(client);
    this.protocol = this.inside._protocol;
    this.socket = this.inside._sock;
    this.outgoing = new Outgoing(this.socket);
    this.closed = this.socket.destroyed || !this.socket.writable;
    client.once('close', () => (this.closed = true));
  }

  /** Errors thrown by `handler` reach the client's `error` event, and end the connection. */
  onPayload(handler: PayloadHandler): void {
    const { protocol } = this;
    const original = protocol._onPayload;
    const tapped = (raw: Buffer): unknown => {
      const type = raw[0];
      if (type === undefined || type < 80) return original(raw);
      const payload = protocol._packetRW.read.read(raw);
      if (!handler(payload)) return original(raw);
      protocol._onPacket();
      return undefined;
    };
    // Later key exchanges take it from the protocol, packets until then from the decipher.
    protocol._onPayload = tapped;
    if (protocol._decipher) protocol._decipher._onPayload = tapped;
  }

  /** Encrypts and sends one message. Nothing happens once the transport is closed. */
  send(payload: Uint8Array): void {
    if (this.closed || !this.socket.writable) return;
    const { protocol, outgoing } = this;
    const exchangesKeys = protocol._kexinit !== undefined;
    if (!exchangesKeys && outgoing.send(protocol._cipher, payload)) return;
    outgoing.gather();
    const { write } = protocol._packetRW;
    const packet = write.alloc(payload.length);
    packet.set(payload, write.allocStart);
    const ready = write.finalize(packet);
    if (exchangesKeys) {
      protocol._queue ??= [];
      protocol._queue.push(ready);
    } else {
      protocol._cipher.encrypt(ready);
    }
  }

  /** ssh2 itself waits for answers to global requests; the next ones are its. */
  get awaitsReplies(): boolean {
    return (this.inside._callbacks?.length ?? 0) > 0;
  }

  /** More waits here than should. */
  get congested(): boolean {
    return this.socket.writableLength > highWaterBytes;
  }

  /** Called each time that what waited has gone out. */
  onDrain(listener: () => void): void {
    this.socket.on('drain', listener);
  }

  /** Stops reading. Each call needs its own `resume`. */
  pause(): void {
    this.pauses += 1;
    this.socket.pause();
  }

  resume(): void {
    if (this.pauses > 0) this.pauses -= 1;
    if (this.pauses === 0 && !this.closed) this.socket.resume();
  }

  /** Says goodbye; whatever is not gone after `graceMs` is cut. */
  end(graceMs = 1000): void {
    if (this.closed) return;
    this.outgoing.flush();
    this.client.end();
    this.socket.resume();
    const timer = setTimeout(() => this.socket.destroy(), graceMs);
    this.client.once('close', () => clearTimeout(timer));
  }
}

/** @throws InfrabedError IB_INTERNAL when this version of ssh2 is not the one that the gateway was made for. */
export function assertTransport(client: Client | Connection): Inside {
  const inside = client as unknown as Partial<Inside>;
  const protocol = inside._protocol as Partial<Protocol> | undefined;
  const known =
    typeof protocol?._onPayload === 'function' &&
    typeof protocol._onPacket === 'function' &&
    typeof protocol._cipher?.encrypt === 'function' &&
    typeof protocol._cipher._onWrite === 'function' &&
    typeof protocol._packetRW?.write.alloc === 'function' &&
    typeof inside._sock?.pause === 'function';
  if (!known) {
    throw new InfrabedError('IB_INTERNAL', 'The gateway does not know the inside of this version of ssh2.', {
      hint: 'Install the version of ssh2 that package-lock.json names (npm ci).',
    });
  }
  return inside as Inside;
}
