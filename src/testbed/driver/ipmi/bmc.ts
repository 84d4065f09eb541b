/** A BMC by ipmitool: what it says is read back from raw replies, and what it is told is read back too. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, errnoOf, isInfrabedError, messageOf } from '../../../core/errors.js';
import type { Journal } from '../../../core/journal.js';
import type { Bmc, BmcUser, BootOverride, PowerState, SelEntry, SelInfo, WatchdogState } from '../driver.js';
import { bootFlags, noOverride, overrideOf, overrideText } from './boot-flags.js';
import { bytesOf, rawArgs } from './hex.js';
import type { BmcLink } from './link.js';
import { withScript } from './script.js';
import { selEntriesOf, selInfoArgs, selInfoOf, selScript } from './sel.js';
import { usersOf, usersScript } from './user-access.js';
import { watchdogArgs, watchdogOf } from './watchdog.js';

/** Get Chassis Status (IPMI 2.0, section 28.2). */
const chassisStatus = rawArgs([0x00, 0x01]);
/** Get System Boot Options of parameter 3 and 5 (section 28.13). */
const clearing = { get: rawArgs([0x00, 0x09, 0x03, 0x00, 0x00]), set: [0x00, 0x08, 0x03] };
const flags = { get: rawArgs([0x00, 0x09, 0x05, 0x00, 0x00]), set: [0x00, 0x08, 0x05] };
/** Parameter 3: the valid bit is not cleared when no chassis control comes within 60 s. */
const keepBeyondTimeout = 0x08;
const setAttempts = 2;

/** The BMC as the contract has it, and what only power, SOL and metal need of it. */
export class IpmiBmc implements Bmc {
  readonly address: string;

  constructor(
    readonly link: BmcLink,
    readonly journal: Journal,
  ) {
    this.address = link.options.address;
  }

  async powerState(signal?: AbortSignal): Promise<PowerState> {
    try {
      const stdout = await this.link.request({ args: chassisStatus, isRaw: true, isImpatient: true, signal });
      return ((bytesOf(stdout, 3, 'Get Chassis Status')[0] ?? 0) & 1) === 1 ? 'on' : 'off';
    } catch (error) {
      // A BMC that says nothing, or that it cannot tell now, says nothing about the node: least of all that it is off.
      if (isInfrabedError(error, 'IB_BMC_UNREACHABLE')) return 'unknown';
      if (isInfrabedError(error, 'IB_BMC') && isForNow(error)) return 'unknown';
      throw error;
    }
  }

  async bootOverride(signal?: AbortSignal): Promise<BootOverride> {
    const stdout = await this.link.request({ args: flags.get, isRaw: true, signal });
    const bytes = bytesOf(stdout, 7, 'Get System Boot Options 5');
    // Bit 7 of the parameter's number: it is marked invalid or locked (section 28.13).
    return ((bytes[1] ?? 0) & 0x80) !== 0 ? noOverride : overrideOf(bytes.slice(2));
  }

  setBootOverride(wanted: BootOverride, signal?: AbortSignal): Promise<void> {
    return this.written('bmc.boot-override', { wanted: overrideText(wanted) }, async () => {
      const keptBeyondTimeout = await this.keepBeyondTimeout(wanted.device !== 'none', signal);
      const canonical = wanted.device === 'none' ? noOverride : wanted;
      let found: BootOverride | undefined;
      for (let attempt = 1; attempt <= setAttempts; attempt += 1) {
        await this.sendOnce(rawArgs([...flags.set, ...bootFlags(canonical)]), signal);
        found = await this.bootOverride(signal);
        if (isSame(found, canonical)) return { keptBeyondTimeout };
        // It reads back as something else, so it was not carried out as asked: a lost reply does not come to this.
      }
      throw new InfrabedError(
        'IB_BMC',
        `The boot override of ${this.name} was set to ${overrideText(canonical)} and reads back as ${overrideText(found ?? noOverride)}.`,
        { hint: 'This BMC does not keep such an override; change the boot order in its firmware.' },
      );
    });
  }

  /** Nothing is set afterwards, and the BMC's own time-out of 60 s counts again. */
  clearBootOverride(signal?: AbortSignal): Promise<void> {
    return this.setBootOverride(noOverride, signal);
  }

  /**
   * For after the boot that a one-shot override was for.
   * @throws InfrabedError IB_BMC when an override is still set: the next boot would go the same way.
   */
  async assertOverrideConsumed(signal?: AbortSignal): Promise<void> {
    const found = await this.bootOverride(signal);
    if (found.device === 'none') return;
    throw new InfrabedError(
      'IB_BMC',
      `The boot override of ${this.name} is still ${overrideText(found)} after the boot that it was for.`,
      { hint: 'Clear it, or the next boot goes the same way.', details: { override: found } },
    );
  }

  async users(signal?: AbortSignal): Promise<BmcUser[]> {
    return withScript(usersScript, async (file) => usersOf(await this.script(['exec', file], signal)));
  }

  async selInfo(signal?: AbortSignal): Promise<SelInfo> {
    return selInfoOf(await this.link.request({ args: selInfoArgs, isRaw: true, signal }));
  }

  async selEntries(signal?: AbortSignal): Promise<SelEntry[]> {
    return withScript(
      (folder) => selScript(join(folder, 'records')),
      async (file, folder) => {
        const stdout = await this.script(['-c', 'exec', file], signal);
        return selEntriesOf(stdout, await contentOf(join(folder, 'records')));
      },
    );
  }

  async watchdog(signal?: AbortSignal): Promise<WatchdogState> {
    return watchdogOf(await this.link.request({ args: watchdogArgs, isRaw: true, signal }));
  }

  read(args: readonly string[], signal?: AbortSignal): Promise<string> {
    return this.link.request({ args: withoutSecret(args), isRaw: args[0] === 'raw', signal });
  }

  async act(args: readonly string[], signal?: AbortSignal): Promise<string> {
    withoutSecret(args);
    let stdout = '';
    await this.written('bmc.act', { args }, async () => {
      stdout = await this.link.request({ args, isAct: true, isRaw: args[0] === 'raw', signal });
      return {};
    });
    return stdout;
  }

  get name(): string {
    return this.link.options.name;
  }

  /**
   * An act whose effect is read back afterwards: a lost reply is not yet a failure.
   * Returns false where the reply was lost.
   */
  async sendOnce(args: readonly string[], signal?: AbortSignal): Promise<boolean> {
    try {
      await this.link.request({ args, isAct: true, isRaw: true, signal });
      return true;
    } catch (error) {
      if (isInfrabedError(error) && error.details['maybeDone'] === true) return false;
      throw error;
    }
  }

  private script(args: readonly string[], signal?: AbortSignal): Promise<string> {
    return this.link.request({ args, isScript: true, signal });
  }

  /** True if the BMC holds an override beyond 60 s. Those that do not let one say so are not refused for it. */
  private async keepBeyondTimeout(isWanted: boolean, signal?: AbortSignal): Promise<boolean> {
    try {
      const bit = isWanted ? keepBeyondTimeout : 0;
      const before = await this.clearingBits(signal);
      const wanted = (before & ~keepBeyondTimeout) | bit;
      if (before !== wanted) {
        await this.link.request({ args: rawArgs([...clearing.set, wanted]), isRaw: true, signal });
      }
      return ((await this.clearingBits(signal)) & keepBeyondTimeout) !== 0;
    } catch (error) {
      // A completion code: the parameter is optional (table 28-14), and ipmi_sim takes it but does not read it back.
      if (isInfrabedError(error, 'IB_BMC') && error.details['outcome'] === 'refused') return false;
      throw error;
    }
  }

  private async clearingBits(signal?: AbortSignal): Promise<number> {
    const stdout = await this.link.request({ args: clearing.get, isRaw: true, signal });
    return (bytesOf(stdout, 3, 'Get System Boot Options 3')[2] ?? 0) & 0x1f;
  }

  private async written(
    kind: string,
    intent: Record<string, unknown>,
    work: () => Promise<Record<string, unknown>>,
  ): Promise<void> {
    const write = async (payload: Record<string, unknown>): Promise<void> => {
      this.journal.record({ kind, actor: 'controller', node: this.name, payload });
      await this.journal.flush();
    };
    await write({ state: 'begin', ...intent });
    try {
      await write({ state: 'verified', ...intent, ...(await work()) });
    } catch (error) {
      await write({ state: 'failed', ...intent, error: messageOf(error) });
      throw error;
    }
  }
}

function isSame(one: BootOverride, other: BootOverride): boolean {
  return one.device === other.device && one.persistent === other.persistent && one.efi === other.efi;
}

/** Busy or initialising: it may tell in a while. */
function isForNow(error: InfrabedError): boolean {
  const { outcome, completionCode } = error.details;
  return outcome === 'full' || completionCode === 0xc0 || completionCode === 0xd2 || completionCode === 0xd3;
}

/**
 * @throws InfrabedError IB_USAGE for a command that carries a password, which every process of this machine could see.
 */
function withoutSecret(args: readonly string[]): readonly string[] {
  const words = args.map((word) => word.toLowerCase());
  const isPassword = words[0] === 'user' && words[1] === 'set' && words[2] === 'password' && words.length > 3;
  const flag = words.find((word) => /^-[pky]/.test(word));
  const isRawPassword = words[0] === 'raw' && Number(words[1]) === 0x06 && Number(words[2]) === 0x47;
  if (!isPassword && !isRawPassword && flag === undefined) return args;
  throw new InfrabedError('IB_USAGE', 'A password does not go on the command line of ipmitool.', {
    hint: 'Put the command into a file of mode 0600 and run "exec FILE".',
  });
}

async function contentOf(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    // ipmitool writes no file for an empty log; the count beside it tells whether that is so.
    if (errnoOf(error) === 'ENOENT') return new Uint8Array();
    throw error;
  }
}
