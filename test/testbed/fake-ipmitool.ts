/** The fake ipmitool with its BMC: a state that a test reads and changes, and a clock that moves only when it sleeps. */
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { throwIfAborted, type Clock } from '../../src/core/clock.js';
import type { Journal } from '../../src/core/journal.js';
import { createBmc, type BmcOptions, type IpmiBmc } from '../../src/testbed/driver/ipmi/index.js';

export interface FakeState {
  power: 0 | 1;
  username: string;
  password: string;
  guid: string;
  suites: number[];
  /** Attempts at a session, and those with a wrong account. */
  sessions: number;
  refused: number;
  /** Chassis controls that arrived (IPMI 2.0, section 28.3). */
  acts: number[];
  users: Record<string, { name: string; access: number; status: number }>;
  sel: string[];
  selSize: number;
  overflow: boolean;
  bootFlags: number[];
  bootFlagsAtMs: number;
  clearing: number;
  watchdog: number[];
  nowMs: number;
  /** Misbehaviour: how many times, or whether. */
  quirks: Record<string, number | boolean>;
}

const startMs = Date.UTC(2026, 0, 1);

export class FakeIpmitool {
  private constructor(
    private readonly folder: string,
    readonly passwordFile: string,
  ) {}

  static async create(changes: Partial<FakeState> = {}): Promise<FakeIpmitool> {
    const folder = await mkdtemp(join(tmpdir(), 'infrabed-fake-ipmitool-'));
    const fake = new FakeIpmitool(folder, join(folder, 'password'));
    const state: FakeState = {
      power: 0,
      username: 'infrabed',
      password: 'a-secret-of-16by',
      guid: 'a123456789abcdefa123456789abcde1',
      suites: [3],
      sessions: 0,
      refused: 0,
      acts: [],
      users: {
        2: { name: 'infrabed', access: 0x14, status: 0 },
        3: { name: 'temp', access: 0x13, status: 0 },
      },
      sel: [],
      selSize: 4,
      overflow: false,
      bootFlags: [0, 0, 0, 0, 0],
      bootFlagsAtMs: startMs,
      clearing: 0,
      watchdog: [0, 0, 0, 0, 0, 0],
      nowMs: startMs,
      quirks: {},
      ...changes,
    };
    await writeFile(fake.stateFile, JSON.stringify(state));
    await fake.setPassword(state.password);
    return fake;
  }

  private get stateFile(): string {
    return join(this.folder, 'state.json');
  }

  /** What the controller believes to be the password. */
  async setPassword(password: string): Promise<void> {
    await writeFile(this.passwordFile, `${password}\n`, { mode: 0o600 });
    await chmod(this.passwordFile, 0o600);
  }

  async state(): Promise<FakeState> {
    return JSON.parse(await readFile(this.stateFile, 'utf8')) as FakeState;
  }

  async change(changes: Partial<FakeState>): Promise<void> {
    await writeFile(this.stateFile, JSON.stringify({ ...(await this.state()), ...changes }));
  }

  /** Only while no request is under way: both would write the state. */
  readonly clock: Clock & { slept: number[] } = (() => {
    let nowMs = startMs;
    const slept: number[] = [];
    return {
      slept,
      now: () => nowMs,
      sleep: async (durationMs: number, signal?: AbortSignal) => {
        throwIfAborted(signal);
        nowMs += durationMs;
        slept.push(durationMs);
        await this.change({ nowMs });
      },
    };
  })();

  bmc(journal: Journal, options: Partial<BmcOptions> = {}): IpmiBmc {
    return createBmc({
      name: 'node0',
      address: '192.0.2.1',
      username: 'infrabed',
      passwordFile: this.passwordFile,
      reach: (argv) => [
        '/usr/bin/python3',
        '-ISB',
        join(import.meta.dirname, 'fake-ipmitool.py'),
        this.stateFile,
        ...argv.slice(1),
      ],
      journal,
      clock: this.clock,
      minIntervalMs: 0,
      ...options,
    });
  }

  remove(): Promise<void> {
    return rm(this.folder, { recursive: true, force: true });
  }
}
