/**
 * The way to one BMC: one session at a time with an interval between two, the cipher suite that it speaks, what is tried
 * again and what never is.
 */
import pLimit, { type LimitFunction } from 'p-limit';
import { systemClock, throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError } from '../../../core/errors.js';
import { log } from '../../../core/log.js';
import { readAccount, type Account } from './account.js';
import { CipherSuites, type CipherSuite } from './cipher-suite.js';
import { runIpmitool, usualTiming, type Endpoint, type Timing } from './ipmitool.js';
import type { Outcome } from './outcome.js';

export interface LinkOptions extends Endpoint {
  /** Name of the node, for messages. */
  name: string;
  clock?: Clock | undefined;
  cacheFile?: string | undefined;
  /** Between the end of one session and the begin of the next. Default 50 ms. */
  minIntervalMs?: number | undefined;
  /** How long a BMC that answers may be busy or without a free session before a request is given up. Default 60 s. */
  patienceMs?: number | undefined;
  timing?: Timing | undefined;
  /** System GUID, 32 hex digits in the order of Get System GUID (section 22.14): another one is another machine. */
  expectedGuid?: string | undefined;
}

export interface LinkRequest {
  args: readonly string[];
  /** Sent once, whatever becomes of the reply. */
  isAct?: boolean;
  /** Output that -v does not change, as that of `raw`. */
  isRaw?: boolean;
  /** Commands for `exec`, of which some may be refused: whoever asked reads that from the output. */
  isScript?: boolean;
  /** Give up at once where others wait for a busy BMC. */
  isImpatient?: boolean;
  signal?: AbortSignal | undefined;
}

/** Busy, initialising, or out of reach behind the BMC (table 5-2): the request was not carried out. */
const notYetCodes: ReadonlySet<number> = new Set([0xc0, 0xd2, 0xd3]);
const firstBackoffMs = 500;
const longestBackoffMs = 10_000;
/** After a refused account nothing is sent with the same password for so long: accounts lock, and count for minutes. */
const refusedMs = 300_000;

/** Queues of this process, by address as it is reached: two handles on one BMC share one. */
const queues = new Map<string, LimitFunction>();

function queueOf(options: LinkOptions): LimitFunction {
  const key = JSON.stringify([options.reach([]), options.address, options.port]);
  const queue = queues.get(key) ?? pLimit(1);
  queues.set(key, queue);
  return queue;
}

export class BmcLink {
  readonly clock: Clock;
  private readonly queue: LimitFunction;
  private readonly suites: CipherSuites;
  private lastEndMs = -Infinity;
  /** A session came about, and since then nothing said that none would. */
  private isProven = false;
  private isIdentified = false;
  private refused: { fingerprint: string; untilMs: number; text: string } | undefined;

  constructor(readonly options: LinkOptions) {
    this.clock = options.clock ?? systemClock;
    this.queue = queueOf(options);
    this.suites = new CipherSuites(options.cacheFile);
  }

  /** The suite to use for a session that is opened beside the queue (SOL), proven by a request. */
  async provenSuite(signal?: AbortSignal): Promise<CipherSuite> {
    await this.request({ args: deviceId, isRaw: true, signal });
    return (await this.suites.inOrder())[0] ?? 3;
  }

  /**
   * One request, in its turn. Returns standard output.
   * @throws InfrabedError IB_BMC_UNREACHABLE (details.maybeDone: an act whose reply was lost), IB_BMC_AUTH, IB_BMC
   * (details.completionCode where the BMC gave one), IB_CANCELLED.
   */
  request(wanted: LinkRequest): Promise<string> {
    return this.queue(async () => {
      throwIfAborted(wanted.signal);
      const account = await this.account();
      await this.identify(account, wanted);
      // Only -v tells a silent BMC from a refused account: where it cannot be given, a request with it comes first.
      if (wanted.isRaw !== true && !this.isProven) await this.once(account, probeFor(wanted));
      return this.once(account, wanted);
    });
  }

  private async account(): Promise<Account> {
    const { name, username, passwordFile } = this.options;
    const account = await readAccount(name, username, passwordFile);
    const { refused } = this;
    if (refused?.fingerprint === account.fingerprint && this.clock.now() < refused.untilMs) {
      throw this.authError(account, `${refused.text} (not asked again, since accounts lock)`);
    }
    return account;
  }

  /** The machine behind an address can be another one than was written down. */
  private async identify(account: Account, wanted: LinkRequest): Promise<void> {
    const { expectedGuid, name, address } = this.options;
    if (expectedGuid === undefined || this.isIdentified) return;
    const expected = bareHex(expectedGuid);
    const found = bareHex(await this.once(account, { ...probeFor(wanted), args: ['raw', '0x06', '0x37'] }));
    if (found !== expected) {
      throw new InfrabedError('IB_BMC', `${address} is not the BMC of ${name} but that of another machine.`, {
        hint: 'Correct the address of the BMC (or its GUID, if the board was replaced) in the site.',
        details: { expectedGuid: expected, foundGuid: found },
      });
    }
    this.isIdentified = true;
  }

  private async once(account: Account, wanted: LinkRequest): Promise<string> {
    const startMs = this.clock.now();
    const patienceMs = wanted.isImpatient === true ? 0 : (this.options.patienceMs ?? 60_000);
    const suites = await this.suites.inOrder();
    let backoffMs = firstBackoffMs;
    for (;;) {
      const suite = suites[0];
      if (suite === undefined) throw this.error('IB_BMC', 'It speaks neither cipher suite 17 nor 3.');
      const outcome = await this.run(suite, wanted);
      if (outcome.kind === 'done') {
        await this.suites.remember(suite);
        return outcome.stdout;
      }
      // A BMC that does not know a suite may also keep silent about it.
      const isOtherWorthIt =
        outcome.kind === 'no-session' && !this.suites.isProven(suite) && suites.length > 1;
      if (outcome.kind === 'cipher' || isOtherWorthIt) {
        suites.shift();
        continue;
      }
      if (outcome.kind === 'auth') {
        this.refused = {
          fingerprint: account.fingerprint,
          untilMs: this.clock.now() + refusedMs,
          text: outcome.text,
        };
        throw this.authError(account, outcome.text);
      }
      // Without -v this may as well be a refused account, which is not to be tried again unseen.
      if (outcome.kind === 'no-session' && wanted.isRaw !== true) await this.once(account, probeFor(wanted));
      if (!isNotYet(outcome)) throw this.errorOf(outcome, wanted);
      if (this.clock.now() - startMs + backoffMs > patienceMs) throw this.errorOf(outcome, wanted);
      log.info({ node: this.options.name, outcome: outcome.kind, backoffMs }, 'the BMC is busy');
      await this.clock.sleep(backoffMs, wanted.signal);
      backoffMs = Math.min(backoffMs * 2, longestBackoffMs);
    }
  }

  private async run(suite: CipherSuite, wanted: LinkRequest): Promise<Outcome> {
    const waitMs = this.lastEndMs + (this.options.minIntervalMs ?? 50) - this.clock.now();
    if (waitMs > 0) await this.clock.sleep(waitMs, wanted.signal);
    throwIfAborted(wanted.signal);
    try {
      const outcome = await runIpmitool(this.options, suite, this.options.timing ?? usualTiming, {
        args: wanted.args,
        isAct: wanted.isAct === true,
        isVerbose: wanted.isRaw === true,
        isScript: wanted.isScript === true,
        signal: wanted.signal,
      });
      this.isProven = outcome.kind === 'done' || outcome.kind === 'refused';
      if (outcome.kind === 'silent') this.isIdentified = false;
      if (outcome.kind === 'done' && outcome.closeLost) {
        log.warn(
          { node: this.options.name },
          'the close of a session was lost; the BMC ends it by its time-out',
        );
      }
      return outcome;
    } finally {
      this.lastEndMs = this.clock.now();
    }
  }

  private errorOf(outcome: Exclude<Outcome, { kind: 'done' }>, wanted: LinkRequest): InfrabedError {
    const maybeDone = wanted.isAct === true && (outcome.kind === 'lost' || outcome.kind === 'failed');
    const details = { outcome: outcome.kind, maybeDone };
    switch (outcome.kind) {
      case 'silent':
      case 'no-session':
        return this.error('IB_BMC_UNREACHABLE', outcome.text, details);
      case 'lost':
        return this.error(
          'IB_BMC_UNREACHABLE',
          maybeDone
            ? `The reply was lost, so that it may have been carried out. ${outcome.text}`
            : outcome.text,
          details,
        );
      case 'refused':
        return this.error('IB_BMC', outcome.text, { ...details, completionCode: outcome.completionCode });
      default:
        return this.error('IB_BMC', outcome.text, details);
    }
  }

  private authError(account: Account, text: string): InfrabedError {
    const { username } = this.options;
    const long = account.isLong ? ' Its password has more than 16 bytes, which some BMCs do not keep.' : '';
    return this.error('IB_BMC_AUTH', `It does not accept the account "${username}": ${text}.${long}`);
  }

  private error(
    code: 'IB_BMC' | 'IB_BMC_UNREACHABLE' | 'IB_BMC_AUTH',
    text: string,
    details: Record<string, unknown> = {},
  ): InfrabedError {
    const { name, address, port } = this.options;
    return new InfrabedError(code, `The BMC of ${name} (${address} port ${String(port)}): ${text}`, {
      hint: hints[code],
      details,
    });
  }
}

const hints = {
  IB_BMC: 'Compare with what the BMC itself says: "ipmitool -I lanplus -H ADDRESS -U USER -f FILE mc info".',
  IB_BMC_UNREACHABLE: 'Check the address, UDP port 623, and that IPMI over LAN is switched on.',
  IB_BMC_AUTH: 'Correct user name or password; the account may be locked for a while.',
} as const;

const deviceId = ['raw', '0x06', '0x01'];

/** A request that changes nothing, with -v. */
function probeFor(wanted: LinkRequest): LinkRequest {
  return { args: deviceId, isRaw: true, isImpatient: wanted.isImpatient === true, signal: wanted.signal };
}

/** The request was not carried out, and may be once the BMC has time or a session. */
function isNotYet(outcome: Outcome): boolean {
  if (outcome.kind === 'full' || outcome.kind === 'no-session') return true;
  return outcome.kind === 'refused' && notYetCodes.has(outcome.completionCode);
}

function bareHex(text: string): string {
  return text.replace(/[\s-]/g, '').toLowerCase();
}
