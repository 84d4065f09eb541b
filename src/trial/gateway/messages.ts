/** The messages of the SSH connection protocol (RFC 4254) that the gateway reads, changes or writes. */

/** Message numbers, RFC 4250 section 4.1.2. */
export const SSH = {
  GLOBAL_REQUEST: 80,
  REQUEST_SUCCESS: 81,
  REQUEST_FAILURE: 82,
  CHANNEL_OPEN: 90,
  CHANNEL_OPEN_CONFIRMATION: 91,
  CHANNEL_OPEN_FAILURE: 92,
  CHANNEL_WINDOW_ADJUST: 93,
  CHANNEL_DATA: 94,
  CHANNEL_EXTENDED_DATA: 95,
  CHANNEL_EOF: 96,
  CHANNEL_CLOSE: 97,
  CHANNEL_REQUEST: 98,
  CHANNEL_SUCCESS: 99,
  CHANNEL_FAILURE: 100,
} as const;

/** Reasons of CHANNEL_OPEN_FAILURE, RFC 4254 section 5.1. */
export const openFailure = { prohibited: 1, connectFailed: 2, unknownType: 3, resourceShortage: 4 } as const;

/** The only kind of extended data, RFC 4254 section 5.2. */
export const extendedStderr = 1;

/** Largest data packet that either side may send: what OpenSSH uses, and what fits ssh2's own limit of 35,000. */
export const maxPacketBytes = 32 * 1024;

/** A message that does not keep to its format. Its sender is disconnected. */
export class MalformedMessage extends Error {}

/** Reads the fields of one message in order; `bytes` are views into the message. */
export class Reader {
  constructor(
    private readonly message: Buffer,
    private at = 1,
  ) {}

  u32(): number {
    const at = this.advance(4);
    return this.message.readUInt32BE(at);
  }

  u64(): bigint {
    const at = this.advance(8);
    return this.message.readBigUInt64BE(at);
  }

  bool(): boolean {
    const at = this.advance(1);
    return this.message[at] !== 0;
  }

  bytes(): Buffer {
    const length = this.u32();
    const at = this.advance(length);
    return this.message.subarray(at, at + length);
  }

  text(): string {
    return this.bytes().toString('utf8');
  }

  /** Fails when something follows the last field. */
  end(): void {
    if (this.at !== this.message.length)
      throw new MalformedMessage('Bytes follow the last field of a message.');
  }

  private advance(length: number): number {
    const at = this.at;
    if (length > this.message.length - at)
      throw new MalformedMessage('A message ends before its last field.');
    this.at = at + length;
    return at;
  }
}

/** A message of the given type: numbers become uint32, booleans a byte, texts and buffers strings. */
export function message(type: number, ...fields: (number | boolean | string | Uint8Array)[]): Buffer {
  const parts: Uint8Array[] = [Uint8Array.of(type)];
  for (const field of fields) {
    if (typeof field === 'boolean') {
      parts.push(Uint8Array.of(field ? 1 : 0));
    } else if (typeof field === 'number') {
      parts.push(u32(field));
    } else {
      const bytes = typeof field === 'string' ? Buffer.from(field) : field;
      parts.push(u32(bytes.length), bytes);
    }
  }
  return Buffer.concat(parts);
}

function u32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** The channel that a channel message is for, as its receiver numbers it. */
export function recipientOf(payload: Buffer): number {
  if (payload.length < 5) throw new MalformedMessage('A channel message names no channel.');
  return payload.readUInt32BE(1);
}

/** The data in CHANNEL_DATA, or in CHANNEL_EXTENDED_DATA, whose string stands four bytes further on. */
export function dataOf(payload: Buffer): Buffer {
  const reader = new Reader(payload, payload[0] === SSH.CHANNEL_DATA ? 5 : 9);
  const data = reader.bytes();
  reader.end();
  return data;
}

export interface ChannelOpen {
  type: string;
  sender: number;
  windowBytes: number;
  packetBytes: number;
  rest: Reader;
}

export function parseOpen(payload: Buffer): ChannelOpen {
  const rest = new Reader(payload);
  return { type: rest.text(), sender: rest.u32(), windowBytes: rest.u32(), packetBytes: rest.u32(), rest };
}

export interface ChannelRequest {
  type: string;
  wantReply: boolean;
  rest: Reader;
}

export function parseRequest(payload: Buffer): ChannelRequest {
  const rest = new Reader(payload, 5);
  return { type: rest.text(), wantReply: rest.bool(), rest };
}
