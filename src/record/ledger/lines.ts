/** A file as its lines, streamed: each with whether its newline was there. */
import { createReadStream } from 'node:fs';

export interface RawLine {
  /** Valid until the next line is asked for. */
  bytes: Buffer;
  /** false for a last line that has no newline: the writer was cut off in it. */
  complete: boolean;
}

/** Lists of lines, one list a chunk: an await for each single line would cost more than reading it. */
export async function* linesOf(path: string): AsyncGenerator<RawLine[]> {
  let rest: Buffer[] = [];
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 }) as AsyncIterable<Buffer>) {
    const lines: RawLine[] = [];
    let from = 0;
    for (let to = chunk.indexOf(0x0a); to !== -1; to = chunk.indexOf(0x0a, from)) {
      const piece = chunk.subarray(from, to);
      lines.push({ bytes: rest.length === 0 ? piece : Buffer.concat([...rest, piece]), complete: true });
      rest = [];
      from = to + 1;
    }
    if (from < chunk.length) rest.push(chunk.subarray(from));
    yield lines;
  }
  if (rest.length > 0) yield [{ bytes: Buffer.concat(rest), complete: false }];
}
