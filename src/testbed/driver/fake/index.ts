/** A backend in memory for tests: real power states, a console, no network and nothing on the host. */
import { mkdtempSync, readFileSync, appendFileSync, rmSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { systemClock, throwIfAborted, type Clock } from '../../../core/clock.js';
import { InfrabedError } from '../../../core/errors.js';
import { canonicalJson, sha256 } from '../../../core/ids.js';
import type { Journal } from '../../../core/journal.js';
import type {
  Backend,
  ClusterSpec,
  CommandResult,
  DriverCluster,
  LayerRef,
  NodeCommand,
  NodeDriver,
  Power,
  PowerState,
  Witness,
} from '../driver.js';

/** What a test may put in the place of a real node. */
export interface FakeBehaviour {
  /** Answers a command; by default `true`, `false`, `echo ...` and `cat` behave, all others end with 127. */
  exec?: (node: string, command: NodeCommand) => Promise<Partial<CommandResult>>;
  dial?: (node: string, port: number) => Promise<Duplex>;
  /** A node whose power reading fails: `unknown`, which is not off. */
  isPowerUnreadable?: (node: string) => boolean;
  /** A node that does not come up any more. */
  isDead?: (node: string) => boolean;
}

export interface FakeBackendOptions extends FakeBehaviour {
  clock?: Clock;
}

/** @see test/testbed/driver-suite.ts, which holds this and the container backend to the same behaviour. */
export function createFakeBackend(options: FakeBackendOptions = {}): Backend {
  const clusters = new Map<string, FakeCluster>();
  const imageHash = (layers: readonly LayerRef[]): string => sha256(canonicalJson(layers));
  return {
    name: 'fake',
    prepareImage: (layers) => Promise.resolve(imageHash(layers)),
    async create(spec, journal, _io, signal) {
      throwIfAborted(signal);
      if (clusters.has(spec.id)) {
        throw new InfrabedError('IB_LEASE_CONFLICT', `Cluster "${spec.id}" exists already.`);
      }
      const cluster = new FakeCluster(spec, imageHash(spec.layers), journal, options, () =>
        clusters.delete(spec.id),
      );
      clusters.set(spec.id, cluster);
      for (const node of cluster.nodes) await node.power.on(signal);
      return cluster;
    },
    open(clusterId) {
      const cluster = clusters.get(clusterId);
      if (cluster) return Promise.resolve(cluster);
      return Promise.reject(new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster "${clusterId}".`));
    },
    async sweep(keep) {
      const removed: string[] = [];
      for (const cluster of [...clusters.values()].filter((one) => !keep.has(one.id))) {
        await cluster.destroy();
        removed.push(`Cluster ${cluster.id}.`);
      }
      return { removed, failed: [] };
    },
  };
}

class FakeCluster implements DriverCluster {
  readonly id: string;
  readonly nodes: readonly FakeNode[];
  private readonly folder = mkdtempSync(join(tmpdir(), 'infrabed-fake-'));

  constructor(
    spec: ClusterSpec,
    readonly imageHash: string,
    journal: Journal,
    options: FakeBackendOptions,
    private readonly onDestroyed: () => void,
  ) {
    this.id = spec.id;
    this.nodes = spec.nodes.map((name, index) => new FakeNode(name, index, this.folder, journal, options));
  }

  networkCommand(argv: readonly string[]): readonly string[] {
    return argv;
  }

  async destroy(): Promise<void> {
    for (const node of this.nodes) await node.power.off();
    rmSync(this.folder, { recursive: true, force: true });
    this.onDestroyed();
  }
}

class FakeNode implements NodeDriver {
  readonly address: string;
  readonly hostKey: string;
  readonly power: Power;
  readonly console: NodeDriver['console'];
  readonly network: NodeDriver['network'];
  readonly witness: Witness;
  private bootId: string | undefined;
  private readonly clock: Clock;

  constructor(
    readonly name: string,
    index: number,
    folder: string,
    private readonly journal: Journal,
    private readonly options: FakeBackendOptions,
  ) {
    this.clock = options.clock ?? systemClock;
    this.address = `10.77.0.${String(11 + index)}`;
    this.hostKey = `ssh-ed25519 ${Buffer.from(`fake-${name}`).toString('base64')}`;
    const path = join(folder, `${name}.log`);
    this.say = (line) => appendFileSync(path, `${line}\n`);
    this.say('fake console');
    this.console = {
      path,
      tail: (maxBytes) => Promise.resolve(readFileSync(path).subarray(-maxBytes).toString('utf8')),
    };
    this.power = this.makePower();
    this.network = {
      dial: (port) =>
        this.bootId !== undefined && options.dial
          ? options.dial(name, port)
          : Promise.reject(
              new InfrabedError(
                'IB_NODE_UNREACHABLE',
                `There is no connection to ${this.address}:${String(port)}.`,
              ),
            ),
    };
    this.witness = {
      testify: async () => ({
        power: await this.power.state(),
        initRunning: this.bootId !== undefined,
        bootId: this.bootId ?? null,
        infrastructureFault: null,
        consoleTail: await this.console.tail(4096),
      }),
      exec: (command) => this.exec(command),
      execOwn: (command) => this.exec(command),
    };
  }

  private readonly say: (line: string) => void;

  private makePower(): Power {
    const state = (): Promise<PowerState> => {
      if (this.options.isPowerUnreadable?.(this.name)) return Promise.resolve('unknown');
      return Promise.resolve(this.bootId === undefined ? 'off' : 'on');
    };
    const act = async (
      kind: string,
      wanted: PowerState,
      signal: AbortSignal | undefined,
      work: () => void,
    ): Promise<void> => {
      throwIfAborted(signal);
      const entry = { kind, actor: 'controller', node: this.name };
      this.journal.record({ ...entry, payload: { state: 'begin', before: await state() } });
      await this.journal.flush();
      work();
      const after = await state();
      this.journal.record({ ...entry, payload: { state: after === wanted ? 'verified' : 'failed', after } });
      await this.journal.flush();
      if (after === wanted) return;
      throw new InfrabedError('IB_POWER', `${this.name} should be ${wanted} but is ${after}.`);
    };
    const boot = (): void => {
      if (this.options.isDead?.(this.name)) return;
      if (this.bootId === undefined) this.say('booting');
      this.bootId ??= randomUUID();
    };
    const halt = (): void => {
      if (this.bootId !== undefined) this.say('powered off');
      this.bootId = undefined;
    };
    const again = (): void => {
      halt();
      boot();
    };
    return {
      state,
      on: (signal) => act('power.on', 'on', signal, boot),
      off: (signal) => act('power.off', 'off', signal, halt),
      softOff: (signal) => act('power.soft-off', 'off', signal, halt),
      cycle: (signal) => act('power.cycle', 'on', signal, again),
      reset: (signal) => act('power.reset', 'on', signal, again),
    };
  }

  private async exec(command: NodeCommand): Promise<CommandResult> {
    throwIfAborted(command.signal);
    if (this.bootId === undefined) {
      throw new InfrabedError('IB_NODE_OFF', `${this.name} has no running init.`);
    }
    const startMs = this.clock.now();
    const answer = this.options.exec ? await this.options.exec(this.name, command) : builtIn(command);
    return {
      exitCode: 0,
      signal: null,
      stdout: '',
      stderr: '',
      truncated: false,
      timedOut: false,
      ...answer,
      durationMs: this.clock.now() - startMs,
    };
  }
}

function builtIn(command: NodeCommand): Partial<CommandResult> {
  const [program = '', ...args] = command.argv;
  if (program === 'true') return {};
  if (program === 'false') return { exitCode: 1 };
  if (program === 'echo') return { stdout: `${args.join(' ')}\n` };
  if (program === 'cat' && args.length === 0)
    return { stdout: Buffer.from(command.stdin ?? '').toString('utf8') };
  return { exitCode: 127, stderr: `${program}: not found\n` };
}
