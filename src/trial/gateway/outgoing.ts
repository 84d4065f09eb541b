/**
 * Messages on their way out. With AES-GCM each is laid out as a packet in a reused block of memory, encrypted there,
 * and the packets of one turn of the event loop are written as one stretch: no buffer, padding call or system call
 * for each. Other ciphers take ssh2's own way.
 */
import { randomFillSync } from 'node:crypto';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

export interface Cipher {
  encrypt(packet: Uint8Array): void;
  /** Where encrypted packets go. */
  _onWrite: (data: Uint8Array) => void;
}

/** Some whole packets; small enough to stay in the processor's cache, and to let the other side begin early. */
const blockBytes = 128 * 1024;
/** From here on a stretch is bulk: more than keys, replies and requests take. */
const bulkBytes = 16 * 1024;
/** Blocks kept for the next connection that sends. */
const sparesAtMost = 8;
/** Packet length, then the length of the padding (RFC 4253 section 6); both stand before the payload. */
const headBytes = 5;
const tagBytes = 16;
const cipherBlockBytes = 16;

interface Block {
  bytes: Buffer;
  /** Taken by packets; what lies behind is free. */
  end: number;
  /** Stretches that the socket has not taken yet. */
  unwritten: number;
}

const spares: Block[] = [];
const padding = Buffer.alloc(4096);
let paddingAt = padding.length;

/** Sends messages on one socket, in their order and in that of ssh2's own. */
export class Outgoing {
  private block: Block | undefined;
  /** Of the block: encrypted, and not handed to the socket. */
  private from = 0;
  private current: Buffer | undefined;
  private tapped: Cipher | undefined;
  private inPlace = false;
  private scheduled = false;
  private corked = false;

  constructor(private readonly socket: Duplex) {}

  /** False when this cipher does not encrypt in place: the packet is to be made by ssh2, between `gather` calls. */
  send(cipher: Cipher, payload: Uint8Array): boolean {
    if (cipher !== this.tapped) this.tap(cipher);
    if (!this.inPlace) return false;
    const packet = this.place(payload);
    this.current = packet;
    cipher.encrypt(packet);
    this.current = undefined;
    return true;
  }

  /** What ssh2 writes from now on in this turn goes out in one system call. */
  gather(): void {
    this.flush();
    if (this.corked) return;
    this.corked = true;
    this.socket.cork();
    process.nextTick(() => {
      this.corked = false;
      this.socket.uncork();
    });
  }

  /** Hands everything to the socket. */
  flush(): void {
    const { block, from } = this;
    if (!block || from === block.end) return;
    this.from = block.end;
    if (!this.socket.writable) return;
    block.unwritten += 1;
    this.socket.write(block.bytes.subarray(from, block.end), (error) => {
      if (!error) this.written(block);
    });
  }

  private tap(cipher: Cipher): void {
    this.tapped = cipher;
    // Only the kernel is sure to have taken the bytes when it says so; another stream may pass them on later.
    this.inPlace = cipher.constructor.name === 'AESGCMCipherBinding' && this.socket instanceof Socket;
    const original = cipher._onWrite;
    cipher._onWrite = (data) => {
      if (data === this.current) {
        this.schedule();
      } else {
        this.flush();
        original(data);
      }
    };
  }

  /**
   * Little goes out at the end of the tick, since somebody waits for it. Bulk goes out after all that can be read has
   * been: each read has a tick of its own, and a write each is what costs.
   */
  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    const flush = (): void => {
      this.scheduled = false;
      this.flush();
    };
    process.nextTick(() => {
      if (this.block && this.block.end - this.from >= bulkBytes) setImmediate(flush);
      else flush();
    });
  }

  /** A packet with the payload, as RFC 5647 wants it before encryption, and room for its tag. */
  private place(payload: Uint8Array): Buffer {
    const unpadded = 1 + payload.length;
    let paddingBytes = cipherBlockBytes - (unpadded % cipherBlockBytes);
    if (paddingBytes < 4) paddingBytes += cipherBlockBytes;
    const packet = this.take(headBytes + payload.length + paddingBytes + tagBytes);
    packet.writeUInt32BE(unpadded + paddingBytes);
    packet[4] = paddingBytes;
    packet.set(payload, headBytes);
    if (paddingAt + paddingBytes > padding.length) {
      randomFillSync(padding);
      paddingAt = 0;
    }
    padding.copy(packet, headBytes + payload.length, paddingAt, (paddingAt += paddingBytes));
    return packet;
  }

  private take(length: number): Buffer {
    if (this.block && this.block.end + length > blockBytes) {
      this.flush();
      this.block = undefined;
    }
    if (!this.block) {
      this.block = spares.pop() ?? { bytes: Buffer.allocUnsafeSlow(blockBytes), end: 0, unwritten: 0 };
      this.from = 0;
    }
    const start = this.block.end;
    this.block.end += length;
    return this.block.bytes.subarray(start, this.block.end);
  }

  /** A block is free once the socket took all of it; one whose socket broke never is. */
  private written(block: Block): void {
    block.unwritten -= 1;
    if (block.unwritten > 0) return;
    if (block === this.block) {
      if (this.from < block.end) return;
      this.block = undefined;
    }
    block.end = 0;
    if (spares.length < sparesAtMost) spares.push(block);
  }
}
