/** Cuts a stream of SFTP packets (draft-ietf-secsh-filexfer-02) into their heads, and passes file data on as it comes. */

/** What OpenSSH's sftp-server accepts at most; a longer packet ends its session. */
const maxBodyBytes = 256 * 1024;

/**
 * Looks at the first bytes of a packet's body (type first). Returns how many it needs in all when these are too few,
 * `ignore` when the rest does not matter, or a function that takes the rest as it arrives.
 * A need beyond the body's length is given the whole body.
 */
export type Inspect = (head: Buffer, bodyBytes: number) => number | 'ignore' | ((data: Buffer) => void);

export class SftpPackets {
  /** The stream is no SFTP; nothing more is looked at. */
  broken = false;
  private readonly length = Buffer.alloc(4);
  private lengthBytes = 0;
  private bodyBytes = 0;
  private seenBytes = 0;
  /** What earlier chunks held of the head; a head that lies in one chunk is not copied. */
  private saved: Buffer | undefined;
  private neededBytes = 0;
  private rest: ((data: Buffer) => void) | 'ignore' | undefined;

  constructor(private readonly inspect: Inspect) {}

  feed(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length && !this.broken) {
      at = this.lengthBytes < 4 ? this.takeLength(chunk, at) : this.takeBody(chunk, at);
    }
  }

  private takeLength(chunk: Buffer, from: number): number {
    const end = Math.min(chunk.length, from + 4 - this.lengthBytes);
    chunk.copy(this.length, this.lengthBytes, from, end);
    this.lengthBytes += end - from;
    if (this.lengthBytes < 4) return end;
    this.bodyBytes = this.length.readUInt32BE();
    if (this.bodyBytes < 1 || this.bodyBytes > maxBodyBytes) this.broken = true;
    this.seenBytes = 0;
    this.saved = undefined;
    this.neededBytes = Math.min(5, this.bodyBytes);
    this.rest = undefined;
    return end;
  }

  private takeBody(chunk: Buffer, from: number): number {
    const wanted = (this.rest === undefined ? this.neededBytes : this.bodyBytes) - this.seenBytes;
    const end = Math.min(chunk.length, from + wanted);
    this.seenBytes += end - from;
    if (this.rest === undefined) this.takeHead(chunk, from, end);
    else if (this.rest !== 'ignore') this.rest(chunk.subarray(from, end));
    if (this.seenBytes === this.bodyBytes && this.rest !== undefined) this.lengthBytes = 0;
    return end;
  }

  private takeHead(chunk: Buffer, from: number, end: number): void {
    const head = this.saved
      ? Buffer.concat([this.saved, chunk.subarray(from, end)])
      : chunk.subarray(end - this.seenBytes, end);
    if (this.seenBytes === this.neededBytes) {
      const answer = this.inspect(head, this.bodyBytes);
      if (typeof answer !== 'number') {
        this.rest = answer;
        return;
      }
      if (this.seenBytes === this.bodyBytes) {
        // It wants more than there is: the packet is shorter than its format.
        this.broken = true;
        return;
      }
      this.neededBytes = Math.min(this.bodyBytes, Math.max(answer, this.seenBytes + 1));
    }
    if (this.saved) this.saved = head;
    else if (end === chunk.length) this.saved = Buffer.from(head);
  }
}
