/** A UDP relay on loopback between ipmitool and a BMC, which loses, doubles or holds the packets that a test names. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';

export interface Packet {
  direction: 'to-bmc' | 'to-client';
  /** What it carries (IPMI 2.0, table 13-16); requests and replies of a session are encrypted. */
  type: 'ipmi-1.5' | 'open-session' | 'rakp' | 'in-session';
  /** The how-many-eth of this direction and type in its session, from 1. */
  number: number;
}

/** What ipmitool 1.8.19 sends in a session before its command: privilege, HPM.2, device id, PICMG, VSO. */
export const firstCommand = 6;

export class UdpRelay {
  /** How many copies of a packet are passed on. */
  copies: (packet: Packet) => number = () => 1;
  private readonly front = createSocket('udp4');
  private readonly backs = new Map<number, Socket>();
  private readonly counts = new Map<string, number>();

  private constructor(private readonly bmcPort: number) {}

  static async start(bmcPort: number): Promise<UdpRelay> {
    const relay = new UdpRelay(bmcPort);
    relay.front.bind(0, '127.0.0.1');
    await once(relay.front, 'listening');
    relay.front.on('message', (data, client) => relay.toBmc(data, client.port));
    return relay;
  }

  get port(): number {
    return this.front.address().port;
  }

  close(): void {
    this.front.close();
    for (const socket of this.backs.values()) socket.close();
  }

  private toBmc(data: Buffer, clientPort: number): void {
    let back = this.backs.get(clientPort);
    if (back === undefined) {
      back = createSocket('udp4');
      this.backs.set(clientPort, back);
      back.on('message', (reply) => {
        for (let copy = this.allowed('to-client', reply, clientPort); copy > 0; copy -= 1) {
          this.front.send(reply, clientPort, '127.0.0.1');
        }
      });
    }
    for (let copy = this.allowed('to-bmc', data, clientPort); copy > 0; copy -= 1) {
      back.send(data, this.bmcPort, '127.0.0.1');
    }
  }

  private allowed(direction: Packet['direction'], data: Buffer, clientPort: number): number {
    const type = typeOf(data);
    const key = `${String(clientPort)} ${direction} ${type}`;
    const number = (this.counts.get(key) ?? 0) + 1;
    this.counts.set(key, number);
    return this.copies({ direction, type, number });
  }
}

function typeOf(data: Buffer): Packet['type'] {
  if (data[4] !== 0x06) return 'ipmi-1.5';
  const payload = (data[5] ?? 0) & 0x3f;
  if (payload === 0x10 || payload === 0x11) return 'open-session';
  return payload >= 0x12 && payload <= 0x15 ? 'rakp' : 'in-session';
}
