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
  CleanEvidence,
  ClusterSpec,
  CommandResult,
  DriverCluster,
  LayerRef,
  NodeCommand,
  NodeDriver,
  Power,
  PowerState,
  ProbeResult,
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
  /** What a probe of the backend finds; by default all is well. */
  probe?: () => ProbeResult;
}

export interface FakeBackendOptions extends FakeBehaviour {
  clock?: Clock;
}

/** @see test/testbed/driver-suite.ts, which holds this and the container backend to the same behaviour. */
export function createFakeBackend(options: FakeBackendOptions = {}): Backend {
  const clusters = new Map<string, FakeHardware>();
  /** The lowest generation that may still act, by cluster; outlives the cluster. */
  const fences = new Map<string, number>();
  const imageHash = (layers: readonly LayerRef[]): string => sha256(canonicalJson(layers));
  return {
    name: 'fake',
    offers: { nodes: 'container', bmc: false },
    prepareImage: (layers) => Promise.resolve(imageHash(layers)),
    async create(spec, journal, _io, signal) {
      throwIfAborted(signal);
      const floor = fences.get(spec.id) ?? 0;
      if (spec.generation < floor) throw fencedOff(spec.id, spec.generation);
      if (clusters.has(spec.id)) {
        throw new InfrabedError('IB_LEASE_CONFLICT', `Cluster "${spec.id}" exists already.`);
      }
      fences.set(spec.id, spec.generation);
      const hardware = new FakeHardware(spec, imageHash(spec.layers), options, fences);
      clusters.set(spec.id, hardware);
      const cluster = new FakeCluster(hardware, spec.generation, journal, () => clusters.delete(spec.id));
      for (const node of cluster.nodes) await node.power.on(signal);
      return cluster;
    },
    open(clusterId, journal) {
      const hardware = clusters.get(clusterId);
      if (!hardware) return Promise.reject(unknownCluster(clusterId));
      const generation = fences.get(clusterId) ?? 0;
      return Promise.resolve(
        new FakeCluster(hardware, generation, journal, () => clusters.delete(clusterId)),
      );
    },
    fence(clusterId, generation) {
      if (generation < (fences.get(clusterId) ?? 0)) return Promise.reject(fencedOff(clusterId, generation));
      fences.set(clusterId, generation);
      return Promise.resolve();
    },
    proveClean(clusterId, nodes) {
      const found = clusters.has(clusterId) ? `the cluster ${clusterId}` : null;
      return Promise.resolve(nodes.map((node) => evidence(node, found, fences.get(clusterId) ?? null)));
    },
    probe: (signal) =>
      Promise.resolve().then(() => {
        throwIfAborted(signal);
        return options.probe?.() ?? { ok: true };
      }),
    async sweep(keep) {
      const listed = [...clusters.values()];
      const kept = typeof keep === 'function' ? await keep() : keep;
      const removed: string[] = [];
      for (const hardware of listed.filter(({ spec }) => !kept.has(spec.id))) {
        hardware.remove();
        clusters.delete(hardware.spec.id);
        // Whoever had it may wake later, and must not make it again.
        fences.set(hardware.spec.id, (fences.get(hardware.spec.id) ?? 0) + 1);
        removed.push(`Cluster ${hardware.spec.id}.`);
      }
      return { removed, failed: [] };
    },
  };
}

function unknownCluster(id: string): InfrabedError {
  return new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster "${id}".`);
}

function fencedOff(id: string, generation: number): InfrabedError {
  return new InfrabedError(
    'IB_LEASE_CONFLICT',
    `Generation ${String(generation)} of a lease no longer has the cluster ${id}.`,
  );
}

function evidence(node: string, found: string | null, generation: number | null): CleanEvidence {
  return {
    node,
    method: 'fake',
    isClean: found === null,
    parts: [{ what: 'cluster', found }],
    imageHash: null,
    generation,
    hostKey: null,
    lastBootId: null,
  };
}

/** What all handles on one cluster share: its nodes' power and consoles, and the fence. */
class FakeHardware {
  readonly folder = mkdtempSync(join(tmpdir(), 'infrabed-fake-'));
  /** Boot ids of the nodes that are on. */
  readonly boots = new Map<string, string>();

  constructor(
    readonly spec: ClusterSpec,
    readonly imageHash: string,
    readonly options: FakeBackendOptions,
    private readonly fences: ReadonlyMap<string, number>,
  ) {
    for (const name of spec.nodes) this.say(name, 'fake console');
  }

  /** @throws InfrabedError IB_LEASE_CONFLICT for a handle of another generation. */
  check(generation: number): void {
    if (this.fences.get(this.spec.id) !== generation) throw fencedOff(this.spec.id, generation);
  }

  consolePath(node: string): string {
    return join(this.folder, `${node}.log`);
  }

  say(node: string, line: string): void {
    appendFileSync(this.consolePath(node), `${line}\n`);
  }

  remove(): void {
    this.boots.clear();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

class FakeCluster implements DriverCluster {
  readonly id: string;
  readonly imageHash: string;
  readonly nodes: readonly FakeNode[];

  constructor(
    private readonly hardware: FakeHardware,
    readonly generation: number,
    journal: Journal,
    private readonly onDestroyed: () => void,
  ) {
    this.id = hardware.spec.id;
    this.imageHash = hardware.imageHash;
    this.nodes = hardware.spec.nodes.map(
      (name, index) => new FakeNode(name, index, hardware, generation, journal),
    );
  }

  networkCommand(argv: readonly string[]): readonly string[] {
    return argv;
  }

  async destroy(): Promise<void> {
    for (const node of this.nodes) await node.power.off();
    this.hardware.check(this.generation);
    this.hardware.remove();
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
  readonly bmc = undefined;
  private readonly options: FakeBackendOptions;
  private readonly clock: Clock;

  constructor(
    readonly name: string,
    index: number,
    private readonly hardware: FakeHardware,
    private readonly generation: number,
    private readonly journal: Journal,
  ) {
    const { options } = hardware;
    this.options = options;
    this.clock = options.clock ?? systemClock;
    this.address = `10.77.0.${String(11 + index)}`;
    this.hostKey = `ssh-ed25519 ${Buffer.from(`fake-${name}`).toString('base64')}`;
    const path = hardware.consolePath(name);
    this.console = {
      path,
      tail: (maxBytes) => Promise.resolve(readFileSync(path).subarray(-maxBytes).toString('utf8')),
    };
    this.power = this.makePower();
    this.network = {
      dial: (port) => this.dial(port),
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

  private get bootId(): string | undefined {
    return this.hardware.boots.get(this.name);
  }

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
      this.hardware.check(this.generation);
      const entry = { kind, actor: 'controller', node: this.name };
      this.journal.record({ ...entry, payload: { state: 'begin', before: await state() } });
      await this.journal.flush();
      this.hardware.check(this.generation);
      work();
      const after = await state();
      this.journal.record({ ...entry, payload: { state: after === wanted ? 'verified' : 'failed', after } });
      await this.journal.flush();
      if (after === wanted) return;
      throw new InfrabedError('IB_POWER', `${this.name} should be ${wanted} but is ${after}.`);
    };
    const boot = (): void => {
      if (this.options.isDead?.(this.name)) return;
      if (this.bootId !== undefined) return;
      this.hardware.say(this.name, 'booting');
      this.hardware.boots.set(this.name, randomUUID());
    };
    const halt = (): void => {
      if (this.bootId !== undefined) this.hardware.say(this.name, 'powered off');
      this.hardware.boots.delete(this.name);
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

  private async dial(port: number): Promise<Duplex> {
    this.hardware.check(this.generation);
    const { dial } = this.options;
    if (this.bootId !== undefined && dial) return await dial(this.name, port);
    throw new InfrabedError(
      'IB_NODE_UNREACHABLE',
      `There is no connection to ${this.address}:${String(port)}.`,
    );
  }

  private async exec(command: NodeCommand): Promise<CommandResult> {
    throwIfAborted(command.signal);
    this.hardware.check(this.generation);
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
