/**
 * Layers onto nodes: one playbook a layer, run by ansible-runner inside the cluster's own network,
 * its event stream read line by line.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock, throwIfAborted, type Clock } from '../../core/clock.js';
import { InfrabedError, isInfrabedError } from '../../core/errors.js';
import { lastLines, run } from '../../core/exec.js';
import type { IoHost } from '../../core/io.js';
import { asset } from '../../core/paths.js';
import { meaningOf, parseEvent, type HostTally, type TaskFailure } from './events.js';
import { knownLayers, makeWorkspace } from './workspace.js';

export interface ProvisionNode {
  readonly name: string;
  readonly address: string;
  readonly hostKey: string;
  readonly roles: readonly string[];
}

/** What provisioning needs of a cluster: its nodes, and a way to run a program inside its network. */
export interface ProvisionTarget {
  readonly id: string;
  readonly nodes: readonly ProvisionNode[];
  networkCommand(argv: readonly string[]): readonly string[];
}

export interface ProvisionOptions {
  cluster: ProvisionTarget;
  /** From the bottom: `os` first. A layer that is only an image (a task's own set-up) does not belong here. */
  layers: readonly string[];
  /** Private key, in OpenSSH's format, that root on every node accepts. */
  controllerKey: string;
  /** The trial's nonce: /etc/machine-info of every node says DEPLOYMENT=nonce. */
  nonce: string;
  /** Further variables of the playbooks. */
  variables?: Readonly<Record<string, unknown>>;
  /** An existing folder of the controller, for Ansible's own files; what is made in it is taken away again. */
  workDir: string;
  io: IoHost;
  signal?: AbortSignal;
  clock?: Clock;
  /** Per layer; default 10 minutes. */
  timeoutMs?: number;
  /** Where the playbooks lie; default this project's own. */
  playbooksDir?: string;
}

export interface LayerReport {
  layer: string;
  durationMs: number;
  hosts: Record<string, HostTally>;
}

export interface ProvisionReport {
  layers: LayerReport[];
}

/**
 * Brings every layer onto the nodes, one after the other.
 * @throws InfrabedError IB_LAYER_UNKNOWN; IB_PROVISION naming play, task and host of the first failure, with all
 *   failures and the hosts' tallies in its details; IB_TIMEOUT, IB_CANCELLED: no process is left.
 */
export async function provision(options: ProvisionOptions): Promise<ProvisionReport> {
  const known = await knownLayers(playbooksOf(options));
  const unknown = options.layers.find((layer) => !known.includes(layer));
  if (unknown !== undefined) {
    throw new InfrabedError('IB_LAYER_UNKNOWN', `There is no layer "${unknown}".`, {
      hint: `The layers are: ${known.join(', ')}. One more is a file playbooks/NAME.yml.`,
    });
  }
  const layers: LayerReport[] = [];
  for (const layer of options.layers) {
    throwIfAborted(options.signal);
    layers.push(await provisionLayer(layer, options));
  }
  return { layers };
}

function playbooksOf(options: ProvisionOptions): string {
  return options.playbooksDir ?? asset('playbooks');
}

async function provisionLayer(layer: string, options: ProvisionOptions): Promise<LayerReport> {
  const clock = options.clock ?? systemClock;
  const begun = clock.now();
  const workspace = await makeWorkspace(join(options.workDir, `ansible-${layer}`), {
    nodes: options.cluster.nodes,
    playbook: join(playbooksOf(options), `${layer}.yml`),
    controllerKey: options.controllerKey,
    variables: { ...options.variables, infrabed_nonce: options.nonce },
  });
  try {
    const follower = new Follower(layer, options.io);
    const result = await runPlaybook(workspace.dir, options, (line) => follower.line(line));
    if (follower.failures.length > 0) throw playFailed(layer, follower);
    if (result.exitCode !== 0)
      throw runnerFailed(layer, result.exitCode, `${result.stderr}\n${follower.chatter}`);
    return { layer, durationMs: clock.now() - begun, hosts: follower.tallies() };
  } finally {
    await workspace.remove();
  }
}

/**
 * Starts the runner in a process namespace of its own, which dies with its first process: ansible-playbook makes a
 * session and process group of its own, so that a signal to the runner's group would leave it behind. setpriv ends
 * all of it when the controller itself is killed.
 */
async function runPlaybook(dir: string, options: ProvisionOptions, onLine: (line: string) => void) {
  const { cluster } = options;
  const runner = ['ansible-runner', 'run', dir, '-p', 'play.yml', '-j', '--rotate-artifacts', '1'];
  const confined = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', '--', ...runner];
  const argv = cluster.networkCommand(confined);
  try {
    return await run('setpriv', ['--pdeathsig', 'KILL', '--', ...argv], {
      cwd: dir,
      env: { ...ansibleEnvironment(dir, cluster.nodes.length) },
      timeoutMs: options.timeoutMs ?? 600_000,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
      onLine,
      allowFailure: true,
      maxOutputBytes: 64 * 1024 * 1024,
    });
  } catch (error) {
    if (!isInfrabedError(error, 'IB_PROGRAM_FAILED')) throw error;
    throw new InfrabedError('IB_PROVISION', 'Ansible was ended from outside.', { cause: error });
  }
}

function ansibleEnvironment(dir: string, nodes: number): Record<string, string> {
  return {
    LC_ALL: 'C.UTF-8',
    HOME: dir,
    ANSIBLE_HOME: join(dir, 'home'),
    ANSIBLE_LOCAL_TEMP: join(dir, 'tmp'),
    ANSIBLE_CONFIG: join(dir, 'ansible.cfg'),
    ANSIBLE_FORKS: String(Math.max(5, Math.min(nodes, 32))),
    ANSIBLE_PIPELINING: '1',
    // No line "ansible-command: Invoked with ..." in the journals that an agent reads.
    ANSIBLE_NO_TARGET_SYSLOG: '1',
    ANSIBLE_GATHERING: 'explicit',
    ANSIBLE_RETRY_FILES_ENABLED: '0',
    ANSIBLE_DEPRECATION_WARNINGS: '0',
    ANSIBLE_INVENTORY_ENABLED: 'yaml',
    ANSIBLE_YAML_VALID_EXTENSIONS: '.json',
    ANSIBLE_HOST_KEY_CHECKING: '1',
  };
}

/** Reads the stream: says what goes on, keeps tallies and failures. */
class Follower {
  readonly failures: TaskFailure[] = [];
  /** Lines that are no events: what Ansible says when it cannot even begin. */
  chatter = '';
  private readonly hosts = new Map<string, HostTally>();

  constructor(
    private readonly layer: string,
    private readonly io: IoHost,
  ) {}

  line(line: string): void {
    const event = parseEvent(line);
    if (event === undefined) {
      this.chatter = (this.chatter + line + '\n').slice(-4000);
      return;
    }
    // Errors before the first play (a playbook that does not parse) come as events without a meaning of their own.
    const spoken = event['stdout'];
    const meaning = meaningOf(event);
    if (meaning.type === 'task') this.say(meaning.task);
    else if (meaning.type === 'result') this.count(meaning.host, meaning.changed ? 'changed' : 'ok');
    else if (meaning.type === 'failure') {
      this.count(meaning.failure.host, 'failed');
      this.failures.push(meaning.failure);
    } else if (typeof spoken === 'string' && spoken !== '') {
      this.chatter = (this.chatter + spoken + '\n').slice(-4000);
    }
  }

  tallies(): Record<string, HostTally> {
    return Object.fromEntries(this.hosts);
  }

  private say(message: string): void {
    this.io.notify({ type: 'progress', scope: `layer ${this.layer}`, message });
  }

  private count(host: string, what: keyof HostTally): void {
    const tally = this.hosts.get(host) ?? { ok: 0, changed: 0, failed: 0 };
    tally[what] += 1;
    this.hosts.set(host, tally);
  }
}

function playFailed(layer: string, follower: Follower): InfrabedError {
  const [first, ...others] = follower.failures;
  if (first === undefined) throw new InfrabedError('IB_INTERNAL', 'A play failed without a failure.');
  const also = others.length === 0 ? '' : ` (${others.map((other) => `${other.host} too`).join(', ')})`;
  const what = first.unreachable ? 'could not be reached' : 'failed';
  return new InfrabedError(
    'IB_PROVISION',
    `Layer ${layer}: "${first.task}" ${what} on ${first.host}${also}: ${first.message}`,
    {
      hint: `The task stands in playbooks/${layer}.yml, play "${first.play}".`,
      details: { layer, failures: follower.failures, hosts: follower.tallies() },
    },
  );
}

function runnerFailed(layer: string, exitCode: number, output: string): InfrabedError {
  return new InfrabedError(
    'IB_PROVISION',
    `Layer ${layer}: ansible-runner ended with status ${String(exitCode)} before any task failed: ${lastLines(output, 3)}`,
    {
      hint: existsSync('/usr/bin/ansible-playbook') ? `Look at playbooks/${layer}.yml.` : 'Run "make setup".',
      details: { layer, exitCode },
    },
  );
}
