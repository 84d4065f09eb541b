/**
 * Serial over LAN into a console file (IPMI 2.0, section 15): opened before power-on so that nothing is lost, opened again
 * when it ends, with a session that somebody left behind ended first.
 */
import type { ChildProcess } from 'node:child_process';
import { createWriteStream, type WriteStream } from 'node:fs';
import { once } from 'node:events';
import { InfrabedError, messageOf } from '../../../core/errors.js';
import { lastLines, start } from '../../../core/exec.js';
import type { IpmiBmc } from './bmc.js';
import { endpointArgs } from './ipmitool.js';

export interface Sol {
  /** Ends the session in an orderly way, so that none is left active on the BMC. */
  close(): Promise<void>;
  /** How often the session had to be opened again. */
  readonly reopened: number;
}

const operational = '[SOL Session operational.  Use ~? for help]\n';
const activation = ['sol', 'activate', 'usesolkeepalive'];
const alreadyActive = /already active on another session/;
const openLimitMs = 30_000;
const closeLimitMs = 10_000;
const reopenMs = 1000;
const longestReopenMs = 30_000;
const openAttempts = 5;

/**
 * Resolves once the BMC says that the session is operational: from then on all output goes to the end of `consoleFile`.
 * @throws InfrabedError IB_BMC when no session comes about, what `request` of a link throws.
 */
export async function openSol(bmc: IpmiBmc, consoleFile: string, signal?: AbortSignal): Promise<Sol> {
  const capture = new SolCapture(bmc, consoleFile);
  try {
    await capture.open(signal);
  } catch (error) {
    await capture.close();
    throw error;
  }
  return capture;
}

class SolCapture implements Sol {
  reopened = 0;
  private readonly file: WriteStream;
  private child: ChildProcess | undefined;
  private ended: Promise<unknown> = Promise.resolve();
  private following: Promise<void> | undefined;
  private readonly closing = new AbortController();

  constructor(
    private readonly bmc: IpmiBmc,
    consoleFile: string,
  ) {
    this.file = createWriteStream(consoleFile, { flags: 'a' });
  }

  async open(signal?: AbortSignal): Promise<void> {
    await once(this.file, 'open');
    for (let attempt = 1; ; attempt += 1) {
      const failure = await this.activate(signal);
      if (failure === undefined) break;
      if (attempt === openAttempts) {
        throw new InfrabedError('IB_BMC', `The console of ${this.bmc.name} did not open: ${failure}.`, {
          hint: 'Check that serial over LAN is enabled on the BMC, and who else has it open.',
        });
      }
      // Whose session it is does not show. A console has one reader, and that is the controller.
      if (alreadyActive.test(failure)) await this.bmc.read(['sol', 'deactivate'], signal);
      await this.bmc.link.clock.sleep(reopenMs, signal);
    }
    this.following = this.follow();
  }

  async close(): Promise<void> {
    this.closing.abort(new InfrabedError('IB_CANCELLED', 'The console was closed.'));
    await this.stop();
    await this.following;
    if (!this.file.destroyed) {
      this.file.end();
      await once(this.file, 'close');
    }
  }

  /** The end of its input ends the session too; a signal would leave it active on the BMC. */
  private async stop(): Promise<void> {
    const { child } = this;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.stdin?.end();
    const timer = setTimeout(() => child.kill('SIGKILL'), closeLimitMs);
    await this.ended;
    clearTimeout(timer);
  }

  /** Why it did not open, or undefined when it did. */
  private async activate(signal?: AbortSignal): Promise<string | undefined> {
    const { options } = this.bmc.link;
    const suite = await this.bmc.link.provenSuite(signal);
    // With its keepalive over SOL itself ipmitool finds within some 15 s that the payload was taken away; the session
    // that it came with lives on, and would keep ipmitool waiting for ever.
    // Unbuffered: with a pipe ipmitool would keep up to 4 KiB back, for as long as the console is quiet.
    const argv = ['stdbuf', '-o0', 'ipmitool', ...endpointArgs(options, suite), ...activation];
    const [program = 'ipmitool', ...args] = options.reach(argv);
    const child = start(program, args, { env: { ...process.env, LC_ALL: 'C' } });
    this.child = child;
    this.ended = new Promise((resolve) => {
      child.once('close', resolve);
      child.once('error', resolve);
    });
    child.stdin?.on('error', () => undefined);
    return this.opened(child, signal);
  }

  private opened(child: ChildProcess, signal?: AbortSignal): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      let before = '';
      let stderr = '';
      let isOpen = false;
      const end = (settle: () => void): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
        settle();
      };
      const onAbort = (): void => {
        void this.stop().then(() => end(() => reject(reasonOf(signal))));
      };
      const timer = setTimeout(() => {
        child.kill('SIGKILL');
        end(() => resolve('nothing came within 30 s'));
      }, openLimitMs);
      signal?.addEventListener('abort', onAbort, { once: true });
      child.stderr?.on('data', (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-4000)));
      child.stdout?.on('data', (chunk: Buffer) => {
        if (isOpen) {
          this.append(child, chunk);
          return;
        }
        before += chunk.toString('latin1');
        const at = before.indexOf(operational);
        if (at === -1) return;
        isOpen = true;
        this.append(child, Buffer.from(before.slice(at + operational.length), 'latin1'));
        end(() => resolve(undefined));
      });
      child.once('error', (error) => end(() => resolve(messageOf(error))));
      child.once('close', () => end(() => resolve(lastLines(stderr || before, 2))));
    });
  }

  private append(child: ChildProcess, chunk: Buffer): void {
    if (chunk.length === 0 || this.file.write(chunk)) return;
    child.stdout?.pause();
    this.file.once('drain', () => child.stdout?.resume());
  }

  /** Opens it again when it ends: a BMC drops SOL at its own reset, and when somebody deactivates it. */
  private async follow(): Promise<void> {
    let waitMs = reopenMs;
    for (;;) {
      await this.ended;
      if (this.isClosing()) return;
      try {
        await this.bmc.link.clock.sleep(waitMs, this.closing.signal);
        const failure = await this.activate(this.closing.signal);
        if (failure === undefined) {
          this.reopened += 1;
          waitMs = reopenMs;
          continue;
        }
        if (alreadyActive.test(failure)) await this.bmc.read(['sol', 'deactivate'], this.closing.signal);
        this.note(`did not open again: ${failure}`);
      } catch (error) {
        if (this.isClosing()) return;
        this.note(`did not open again: ${messageOf(error)}`);
      }
      waitMs = Math.min(waitMs * 2, longestReopenMs);
    }
  }

  private isClosing(): boolean {
    return this.closing.signal.aborted;
  }

  /** In the file itself, where whoever reads it wonders about the gap. */
  private note(what: string): void {
    this.file.write(`\r\n[infrabed: the console ${what}]\r\n`);
  }
}

function reasonOf(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new InfrabedError('IB_CANCELLED', 'The operation was cancelled.');
}
