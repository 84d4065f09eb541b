/** A cluster of scripted answers: what each node says to a command, a read, a dial or a power-cycle is set by the test. */
import { PassThrough, type Duplex } from 'node:stream';
import { InfrabedError } from '../../src/core/errors.js';
import { sha256 } from '../../src/core/ids.js';
import type { Cluster, ClusterNode, FileState, NodeStanding } from '../../src/testbed/cluster/cluster.js';
import type {
  Bmc,
  BmcLogin,
  CommandResult,
  Console,
  NodeCommand,
  Power,
  PowerState,
} from '../../src/testbed/driver/driver.js';

type Answer = Partial<CommandResult> | Error;
type Responder = (command: NodeCommand) => Answer | undefined | Promise<Answer | undefined>;

export interface FakeNode {
  bootId: number;
  standing: NodeStanding;
  power: PowerState;
  files: Map<string, FileState>;
  openPorts: Set<number>;
  /** What a power-cycle does; by default a new boot_id. */
  onCycle: () => void | Promise<void>;
}

/** Answers are asked in the order in which they were added; the first that returns something counts. */
export class FakeCluster implements Cluster {
  readonly id = 'c-fake';
  readonly imageHash = 'f'.repeat(64);
  readonly nodes: readonly ClusterNode[];
  readonly state = new Map<string, FakeNode>();
  /** `node0 exec systemctl show ...`, in order. */
  readonly calls: string[] = [];
  private readonly responders: { node: string | undefined; respond: Responder }[] = [];

  constructor(names: readonly string[] = ['node0', 'node1', 'node2']) {
    this.nodes = names.map((name, index) => ({
      name,
      address: `10.77.0.${String(11 + index)}`,
      hostKey: 'ssh-ed25519 AAAA',
      roles: [],
    }));
    for (const name of names) {
      const node: FakeNode = {
        bootId: 1,
        standing: { standing: 'reachable' },
        power: 'on',
        files: new Map(),
        openPorts: new Set([22]),
        onCycle: () => {
          node.bootId++;
        },
      };
      this.state.set(name, node);
    }
  }

  /** Scripts the answer to commands, of one node or of all. */
  answer(respond: Responder, node?: string): this {
    this.responders.push({ node, respond });
    return this;
  }

  /** Scripts one answer for every command whose joined words contain the text. */
  answerTo(text: string, answer: Answer, node?: string): this {
    return this.answer((command) => (command.argv.join(' ').includes(text) ? answer : undefined), node);
  }

  file(node: string, path: string, content: string, mode = '0644', owner = 'root', group = 'root'): this {
    const sizeBytes = Buffer.byteLength(content);
    const state = { type: 'file' as const, mode, owner, group, sizeBytes, sha256: sha256(content), content };
    this.of(node).files.set(path, { ...state, truncated: false });
    return this;
  }

  of(name: string): FakeNode {
    this.node(name);
    return this.state.get(name)!;
  }

  node(name: string): ClusterNode {
    const node = this.nodes.find((one) => one.name === name);
    if (node === undefined) throw new InfrabedError('IB_NODE_UNKNOWN', `There is no node "${name}".`);
    return node;
  }

  exec(node: string, command: NodeCommand): Promise<CommandResult> {
    return this.command('exec', node, command);
  }
  ssh(node: string, command: NodeCommand): Promise<CommandResult> {
    return this.command('ssh', node, command);
  }
  setUp(node: string, command: NodeCommand): Promise<CommandResult> {
    return this.command('setUp', node, command);
  }

  private async command(by: string, node: string, command: NodeCommand): Promise<CommandResult> {
    this.node(node);
    this.calls.push(`${node} ${by} ${command.argv.join(' ')}`);
    for (const one of this.responders) {
      if (one.node !== undefined && one.node !== node) continue;
      const answer = await one.respond(command);
      if (answer instanceof Error) throw answer;
      if (answer !== undefined) return { ...success, ...answer };
    }
    throw new Error(`the test scripted no answer to: ${node} ${by} ${command.argv.join(' ')}`);
  }

  read(node: string, path: string): Promise<FileState> {
    this.calls.push(`${node} read ${path}`);
    return Promise.resolve(this.of(node).files.get(path) ?? { type: 'absent' });
  }

  bootId(node: string): Promise<string> {
    const state = this.of(node);
    if (state.standing.standing === 'unreachable') return Promise.reject(unreachable(node));
    return Promise.resolve(`boot-${String(state.bootId)}`);
  }

  standing(node: string): Promise<NodeStanding> {
    return Promise.resolve(this.of(node).standing);
  }

  async waitForSsh(nodes: readonly string[]): Promise<void> {
    for (const node of nodes) await this.bootId(node);
  }

  power(name: string): Power {
    const node = this.of(name);
    const set = (state: PowerState) => (): Promise<void> => {
      this.calls.push(`${name} power ${state}`);
      node.power = state;
      return Promise.resolve();
    };
    const cycle = async (): Promise<void> => {
      this.calls.push(`${name} power cycle`);
      await node.onCycle();
    };
    return {
      state: () => Promise.resolve(node.power),
      on: set('on'),
      off: set('off'),
      softOff: set('off'),
      cycle,
      reset: cycle,
    };
  }

  bmcs = new Map<string, Bmc>();

  bmc(node: string): Bmc {
    const found = this.bmcs.get(node);
    if (found === undefined) throw new InfrabedError('IB_BMC_NONE', `${node} has no BMC.`);
    return found;
  }

  bmcLogin(node: string): BmcLogin {
    return { address: this.bmc(node).address, username: 'admin', passwordFile: '/nowhere/password' };
  }

  console(node: string): Console {
    return { path: `/nowhere/${node}.log`, tail: () => Promise.resolve('') };
  }

  dial(node: string, port: number): Promise<Duplex> {
    if (!this.of(node).openPorts.has(port)) return Promise.reject(unreachable(node));
    return Promise.resolve(new PassThrough());
  }

  networkCommand(argv: readonly string[]): readonly string[] {
    return argv;
  }

  hangUp(): void {
    // It holds no connections.
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

const success: CommandResult = {
  exitCode: 0,
  signal: null,
  stdout: '',
  stderr: '',
  truncated: false,
  timedOut: false,
  durationMs: 1,
};

export function unreachable(node: string): InfrabedError {
  return new InfrabedError('IB_NODE_UNREACHABLE', `${node} does not answer.`, { details: { node } });
}

/** The usual standings for tests. */
export const dead = (blame: 'node' | 'infrastructure' | 'unknown'): NodeStanding => ({
  standing: 'unreachable',
  blame,
  why: `It is the doing of: ${blame}.`,
});
