/** An answer in lines of JSON: the progress of an operation while it goes on, then its result or its error. */
import type { ServerResponse } from 'node:http';
import type { IoEvent, IoHost, Question } from '../../core/io.js';
import { redactor } from '../../core/log.js';
import type { ErrorBody } from './error-body.js';
import { ndjsonType, versionHeader } from './wire.js';

/** Whoever reads no line for much longer than this knows that the server or the network is gone. */
const aliveEveryMs = 15_000;

/** The io host of an operation whose caller listens. Nobody can be asked: questions get their default. */
export class LineAnswer implements IoHost {
  private readonly alive: NodeJS.Timeout;

  constructor(
    private readonly response: ServerResponse,
    version: string,
  ) {
    response.writeHead(200, {
      'content-type': ndjsonType,
      'cache-control': 'no-store',
      [versionHeader]: version,
      connection: 'close',
    });
    response.flushHeaders();
    this.alive = setInterval(() => this.write('\n'), aliveEveryMs).unref();
    response.once('close', () => clearInterval(this.alive));
  }

  notify(event: IoEvent): void {
    // A caller that does not keep up misses progress, never a phase or a warning.
    if (event.type === 'progress' && this.response.writableNeedDrain) return;
    this.write(`${JSON.stringify({ event: redactor.redactDeep(event) })}\n`);
  }

  ask(question: Question): Promise<boolean> {
    return Promise.resolve(question.default);
  }

  end(last: { result: unknown } | ErrorBody): void {
    clearInterval(this.alive);
    if (this.isOpen()) this.response.end(`${JSON.stringify(last)}\n`);
  }

  private write(text: string): void {
    if (this.isOpen()) this.response.write(text);
  }

  private isOpen(): boolean {
    return !this.response.writableEnded && !this.response.destroyed;
  }
}
