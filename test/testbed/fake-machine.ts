/** The ends of a virtual machine that its BMC is joined to, without one: a serial port, and an in-band interface. */
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { waitFor } from '../../src/core/clock.js';

/** A serial port as QEMU serves one: for one reader at a time. */
export class SerialPort {
  received = '';
  private server: Server | undefined;
  private reader: Socket | undefined;

  constructor(private readonly path: string) {}

  async open(): Promise<void> {
    rmSync(this.path, { force: true });
    this.server = createServer((socket) => {
      this.reader = socket;
      socket.on('data', (chunk) => (this.received += chunk.toString()));
      socket.on('error', () => undefined);
    });
    this.server.listen(this.path);
    await once(this.server, 'listening');
  }

  async write(text: string): Promise<void> {
    const reader = await waitFor('a reader of the serial port', () => this.reader, { timeoutMs: 30_000 });
    reader.write(text);
  }

  /** As when the machine is switched off. */
  close(): void {
    this.reader?.destroy();
    this.reader = undefined;
    this.server?.close();
    this.server = undefined;
  }
}

/** Bytes of the VM protocol (OpenIPMI, README.vm): end of a message, end of a command, escape. */
const endOfMessage = 0xa0;
const endOfCommand = 0xa1;
const escape = 0xaa;

/** What QEMU's `ipmi-bmc-extern` is to a BMC. */
export class InBand {
  private buffered: number[] = [];
  private sequence = 0;
  private readonly waiting = new Map<number, (reply: number[]) => void>();

  private constructor(private readonly socket: Socket) {
    socket.on('data', (chunk) => chunk.forEach((byte) => this.take(byte)));
    socket.on('error', () => undefined);
  }

  static async connect(path: string): Promise<InBand> {
    const socket = createConnection(path);
    await once(socket, 'connect');
    const inBand = new InBand(socket);
    // Version 1; capable of power, reset, interrupts and attention.
    inBand.command([0xff, 0x01]);
    inBand.command([0x08, 0x1f]);
    return inBand;
  }

  close(): void {
    this.socket.destroy();
  }

  get isClosed(): boolean {
    return this.socket.destroyed || this.socket.readableEnded;
  }

  command(bytes: readonly number[]): void {
    this.socket.write(Buffer.from([...bytes.flatMap(escaped), endOfCommand]));
  }

  /** Completion code and data of the reply, in hex as ipmitool prints them. */
  async request(netfn: number, command: number, data: readonly number[] = []): Promise<string> {
    this.sequence = (this.sequence + 1) % 64;
    const { sequence } = this;
    const body = [sequence, netfn << 2, command, ...data];
    const sum = -body.reduce((total, byte) => total + byte, 0) & 0xff;
    const reply = new Promise<number[]>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('no reply in-band')), 20_000);
      this.waiting.set(sequence, (bytes) => {
        clearTimeout(timer);
        resolve(bytes);
      });
    });
    this.socket.write(Buffer.from([...[...body, sum].flatMap(escaped), endOfMessage]));
    return (await reply).map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
  }

  private take(byte: number): void {
    if (byte === endOfCommand) {
      this.buffered = [];
      return;
    }
    if (byte !== endOfMessage) {
      this.buffered.push(byte);
      return;
    }
    const bytes = unescaped(this.buffered);
    this.buffered = [];
    const [sequence = -1] = bytes;
    // Sequence, network function, command; the checksum is last.
    this.waiting.get(sequence)?.(bytes.slice(3, -1));
    this.waiting.delete(sequence);
  }
}

const isSpecial = (byte: number): boolean =>
  byte === endOfMessage || byte === endOfCommand || byte === escape;
const escaped = (byte: number): number[] => (isSpecial(byte) ? [escape, byte | 0x10] : [byte]);

function unescaped(bytes: readonly number[]): number[] {
  const plain: number[] = [];
  let isEscaped = false;
  for (const byte of bytes) {
    if (byte === escape) isEscaped = true;
    else {
      plain.push(isEscaped ? byte & ~0x10 : byte);
      isEscaped = false;
    }
  }
  return plain;
}
