/** A backend whose nodes are sshds on loopback: the driver interfaces without a machine behind them. */
import type { Duplex } from 'node:stream';
import { InfrabedError } from '../../src/core/errors.js';
import { start } from '../../src/core/exec.js';
import type {
  Backend,
  CleanEvidence,
  ClusterSpec,
  CommandResult,
  DriverCluster,
  NodeCommand,
  NodeDriver,
  Power,
  PowerState,
  ProbeResult,
  SweepReport,
  Testimony,
  Witness,
} from '../../src/testbed/driver/driver.js';
import { LoopbackSshd } from './loopback-sshd.js';

export class FakeNode implements NodeDriver {
  readonly address = '127.0.0.1';
  readonly console = { path: '/dev/null', tail: () => Promise.resolve('console of the fake\n') };
  state: PowerState = 'on';
  /** What the witness says beside the power state. */
  testimony: Partial<Testimony> = {};
  /** Every command that came by the witness, with the way it took. */
  readonly witnessed: { way: 'pristine' | 'own'; argv: readonly string[] }[] = [];
  witness: Witness | undefined = {
    testify: () =>
      Promise.resolve({
        power: this.state,
        initRunning: this.state === 'on',
        bootId: null,
        infrastructureFault: null,
        consoleTail: '',
        ...this.testimony,
      }),
    exec: (command) => this.local('pristine', command),
    execOwn: (command) => this.local('own', command),
  };

  readonly bmc = undefined;

  constructor(
    readonly name: string,
    readonly sshd: LoopbackSshd,
  ) {}

  get hostKey(): string {
    return this.sshd.host.publicKey;
  }

  readonly network = { dial: (): Promise<Duplex> => this.sshd.dial() };

  private readonly switchOff = async (): Promise<void> => {
    this.state = 'off';
    await this.sshd.stop();
    this.sshd.cut();
  };
  private readonly switchOn = async (): Promise<void> => {
    this.state = 'on';
    await this.sshd.start();
  };
  readonly power: Power = {
    state: () => Promise.resolve(this.state),
    on: this.switchOn,
    off: this.switchOff,
    softOff: this.switchOff,
    cycle: async () => {
      await this.switchOff();
      await this.switchOn();
    },
    reset: async () => {
      await this.switchOff();
      await this.switchOn();
    },
  };

  private async local(way: 'pristine' | 'own', command: NodeCommand): Promise<CommandResult> {
    if (this.state !== 'on') throw new InfrabedError('IB_NODE_OFF', `${this.name} is off.`);
    this.witnessed.push({ way, argv: command.argv });
    const [program = 'false', ...args] = command.argv;
    const child = start(program, args, { env: { ...process.env, ...command.env } });
    const out: string[] = [];
    const bad: string[] = [];
    child.stdout?.on('data', (chunk: Buffer) => out.push(chunk.toString()));
    child.stderr?.on('data', (chunk: Buffer) => bad.push(chunk.toString()));
    child.stdin?.end(command.stdin);
    const [exitCode, signal] = await new Promise<[number | null, string | null]>((resolve) =>
      child.once('close', (code, by) => resolve([code, by])),
    );
    const [stdout, stderr] = [out.join(''), bad.join('')];
    return { exitCode, signal, stdout, stderr, truncated: false, timedOut: false, durationMs: 1 };
  }
}

export class FakeCluster implements DriverCluster {
  readonly imageHash = 'f'.repeat(64);
  readonly generation = 1;
  destroyed = false;

  constructor(
    readonly id: string,
    readonly nodes: readonly FakeNode[],
  ) {}

  networkCommand(argv: readonly string[]): readonly string[] {
    return argv;
  }

  async destroy(): Promise<void> {
    this.destroyed = true;
    for (const node of this.nodes) await node.sshd.remove();
  }
}

export class FakeBackend implements Backend {
  readonly clusters = new Map<string, FakeCluster>();

  readonly offers = { nodes: 'container', bmc: false } as const;

  constructor(readonly name = 'fake') {}

  /** Called with each node before it is handed out. */
  prepare: (node: FakeNode) => void = () => undefined;

  prepareImage(): Promise<string> {
    return Promise.resolve('f'.repeat(64));
  }

  async create(spec: ClusterSpec): Promise<FakeCluster> {
    const nodes = await Promise.all(
      spec.nodes.map(async (name) => {
        const sshd = new LoopbackSshd([], spec.authorizedKeys);
        await sshd.start();
        const node = new FakeNode(name, sshd);
        this.prepare(node);
        return node;
      }),
    );
    const cluster = new FakeCluster(spec.id, nodes);
    this.clusters.set(spec.id, cluster);
    return cluster;
  }

  open(id: string): Promise<FakeCluster> {
    const cluster = this.clusters.get(id);
    if (cluster && !cluster.destroyed) return Promise.resolve(cluster);
    return Promise.reject(new InfrabedError('IB_CLUSTER_UNKNOWN', `There is no cluster ${id}.`));
  }

  fence(): Promise<void> {
    return Promise.resolve();
  }

  proveClean(id: string, nodes: readonly string[]): Promise<CleanEvidence[]> {
    const known = { imageHash: null, generation: null, hostKey: null, lastBootId: null };
    const cluster = this.clusters.get(id);
    const found = cluster === undefined || cluster.destroyed ? null : 'running';
    const parts = [{ what: `cluster ${id}`, found }];
    return Promise.resolve(
      nodes.map((node) => ({ node, method: 'fake', isClean: found === null, parts, ...known })),
    );
  }

  probe(): Promise<ProbeResult> {
    return Promise.resolve({ ok: true });
  }

  sweep(): Promise<SweepReport> {
    return Promise.resolve({ removed: [], failed: [] });
  }
}
