/** `infrabed cluster`: clusters for people who write tasks, without a trial around them. */
import { once } from 'node:events';
import { constants } from 'node:os';
import Table from 'cli-table3';
import { InfrabedError } from '../../core/errors.js';
import { shellQuote, start } from '../../core/exec.js';
import { stateDir } from '../../core/paths.js';
import { nullJournal } from '../../core/journal.js';
import { writeSshConfig } from '../../testbed/cluster/ssh-config.js';
import { hostBackendNames, hostBackends, type HostBackend } from '../../testbed/driver/index.js';
import { unknownCluster } from '../../testbed/lease/kept-cluster.js';
import * as api from '../../web/api/clusters.js';
import type { ClusterJson } from '../../web/api/clusters.js';
import { asRoot } from '../as-root.js';
import { consent, withAsk, type AskArguments } from '../ask.js';
import { toYargs } from '../command.js';
import type { CliCommand, CliNoun } from '../command.js';
import { perform } from '../perform.js';
import { parseDuration } from '../times.js';

interface UpArguments {
  nodes: number | undefined;
  layer: string[];
  lease: string | undefined;
  backend: HostBackend;
  for: string | undefined;
  json: boolean;
}

export const clusterUp: CliCommand<UpArguments> = {
  command: 'up',
  describe: 'make a cluster and leave it running',
  builder: (yargs) =>
    yargs
      .option('nodes', {
        type: 'number',
        describe: 'how many nodes: node0, node1, ...; three, or all of the lease, where it is left out',
      })
      .option('layer', { type: 'string', array: true, default: ['os'], describe: 'layers, from the bottom' })
      .option('lease', { type: 'string', describe: 'a lease of yours to stand on' })
      .option('backend', {
        choices: hostBackendNames,
        default: 'container' as const,
        describe: 'what the nodes are: containers, or virtual machines of libvirt',
      })
      .option('for', {
        type: 'string',
        conflicts: 'lease',
        describe: 'how long it may stand without a lease of yours (8h where nothing else is set)',
      })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object on standard output' })
      .example('$0 cluster up --nodes 3', 'three nodes with the operating system alone')
      .example('$0 cluster up --layer os --layer postgres --for 2h', 'with PostgreSQL on top')
      .example('$0 cluster up --lease l-20260102-030405-ab12', 'on nodes that you reserved'),
  handler: async (args, face) => {
    if (args.nodes !== undefined && (!Number.isInteger(args.nodes) || args.nodes < 1)) {
      throw new InfrabedError('IB_USAGE', '--nodes takes a whole number from 1.');
    }
    const made = await perform(face, api.clusterUp, {
      layers: args.layer,
      backend: args.backend,
      ...(args.nodes === undefined ? {} : { nodes: args.nodes }),
      ...(args.lease === undefined ? {} : { lease: args.lease }),
      ...(args.for === undefined ? {} : { durationSec: parseDuration(args.for, '--for') / 1000 }),
    });
    if (args.json) face.printJson(made);
    else {
      face.print(`${made.cluster} is up: ${made.nodes.map((node) => node.name).join(', ')}`);
      face.print(
        `log in with "infrabed cluster ssh node0", end it with "infrabed cluster down ${made.cluster}"`,
      );
    }
  },
};

export const clusterList: CliCommand<{ json: boolean }> = {
  command: 'list',
  describe: 'show the clusters there are, oldest first',
  builder: (yargs) =>
    yargs
      .option('json', {
        type: 'boolean',
        default: false,
        describe: 'one JSON object a cluster on standard output',
      })
      .example('$0 cluster list --json', 'for programs'),
  handler: async (args, face) => {
    const { clusters } = await perform(face, api.clusterList, {});
    if (args.json) for (const entry of clusters) face.printJson(entry);
    else if (clusters.length === 0) face.print('There is no cluster. "infrabed cluster up" makes one.');
    else face.print(table(clusters));
  },
};

interface SshArguments {
  node: string;
  /** What stands behind `--`: one word is a line for the shell, several are a program and its arguments. */
  '--'?: string[];
  cluster: string | undefined;
}

export const clusterSsh: CliCommand<SshArguments> = {
  command: 'ssh <node>',
  describe: 'log in to a node as root, or run what stands behind -- there',
  builder: (yargs) =>
    yargs
      .parserConfiguration({ 'populate--': true })
      .positional('node', { type: 'string', demandOption: true, describe: 'name of the node' })
      .option('cluster', { type: 'string', describe: 'id of the cluster, where several have that node' })
      .example('$0 cluster ssh node0', 'a shell')
      .example('$0 cluster ssh node1 -- systemctl --failed', 'a program; its exit status is the command’s')
      .example("$0 cluster ssh node1 -- 'journalctl -b | tail'", 'a line for the shell'),
  handler: async (args, face) => {
    if (asRoot(face)) return;
    const { clusters } = await perform(face, api.clusterList, {});
    const entry = chooseCluster(clusters, args.node, args.cluster);
    const dir = stateDir();
    const driverCluster = await hostBackends({ stateDir: dir })('container').open(entry.cluster, nullJournal);
    const config = await writeSshConfig(dir, driverCluster);
    const words = args['--'] ?? [];
    const remote = words.length > 1 ? [words.map(shellQuote).join(' ')] : words;
    face.exitStatus = await runSsh([
      '-F',
      config,
      args.node,
      ...(remote.length > 0 ? ['--', ...remote] : []),
    ]);
  },
};

interface DownArguments extends AskArguments {
  id: string | undefined;
  all: boolean;
}

export const clusterDown: CliCommand<DownArguments> = {
  command: 'down [id]',
  describe: 'end a cluster: everything on its nodes is lost',
  builder: (yargs) =>
    withAsk(
      yargs
        .positional('id', {
          type: 'string',
          describe: 'id of the cluster; may be left out where there is one alone',
        })
        .option('all', {
          type: 'boolean',
          default: false,
          describe: 'every cluster that no running trial uses',
        }),
    )
      .example('$0 cluster down --dry-run', 'see what would go')
      .example('$0 cluster down --all --yes', 'everything, without a question'),
  handler: async (args, face) => {
    const { clusters } = await perform(face, api.clusterList, {});
    const entries = chooseToEnd(clusters, args.id, args.all);
    if (entries.length === 0) return;
    const does = entries.map((entry) => `end ${describe(entry)}`).join('; ');
    if (!args['dry-run']) face.print(`to end: ${entries.map(describe).join('; ')}`);
    const asked = {
      id: 'cluster-down',
      does,
      question: `End ${entries.length === 1 ? 'this cluster' : `these ${String(entries.length)} clusters`}?`,
      refused: 'Nothing was ended.',
    };
    if (!(await consent(face, args, asked))) return;
    for (const entry of entries) {
      await perform(face, api.clusterDown, { id: entry.cluster });
      face.print(`ended: ${entry.cluster}`);
    }
  },
};

export const clusterNoun: CliNoun = {
  noun: 'cluster',
  describe: 'clusters that stay: make, list, log in, end',
  verbs: (face) => [
    toYargs(clusterUp, face),
    toYargs(clusterList, face),
    toYargs(clusterSsh, face),
    toYargs(clusterDown, face),
  ],
};

/**
 * The kept cluster that is meant. Those of running trials are left out: their only way in is the recorded gateway.
 * @throws InfrabedError IB_CLUSTER_UNKNOWN, IB_NODE_UNKNOWN, IB_USAGE when several have the node.
 */
export function chooseCluster(
  clusters: readonly ClusterJson[],
  node: string,
  id: string | undefined,
): ClusterJson {
  const kept = clusters.filter((entry) => entry.kept && (id === undefined || entry.cluster === id));
  if (kept.length === 0) {
    if (id !== undefined) throw unknownCluster(id);
    throw new InfrabedError('IB_CLUSTER_UNKNOWN', 'There is no cluster.', {
      hint: 'Make one: infrabed cluster up.',
    });
  }
  const [first, ...others] = kept.filter((entry) => entry.nodes.some((one) => one.name === node));
  if (first === undefined) {
    const names = [...new Set(kept.flatMap((entry) => entry.nodes.map((one) => one.name)))].join(', ');
    throw new InfrabedError('IB_NODE_UNKNOWN', `No cluster has a node "${node}".`, {
      hint: `The nodes are ${names}.`,
    });
  }
  if (others.length > 0) {
    const ids = [first, ...others].map((entry) => entry.cluster).join(', ');
    throw new InfrabedError('IB_USAGE', `Several clusters have a node "${node}".`, {
      hint: `Say which by --cluster: ${ids}.`,
    });
  }
  return first;
}

/** @throws InfrabedError IB_CLUSTER_UNKNOWN, or IB_USAGE when it is not clear which is meant. */
export function chooseToEnd(
  clusters: readonly ClusterJson[],
  id: string | undefined,
  all: boolean,
): readonly ClusterJson[] {
  const kept = clusters.filter((entry) => entry.kept);
  if (all) return kept;
  if (id !== undefined) {
    const entry = clusters.find((one) => one.cluster === id);
    if (entry === undefined) throw unknownCluster(id);
    return [entry];
  }
  if (kept.length > 1) {
    const ids = kept.map((entry) => entry.cluster).join(', ');
    throw new InfrabedError('IB_USAGE', 'There are several clusters.', {
      hint: `Name one, or give --all: ${ids}.`,
    });
  }
  if (kept.length === 0) throw new InfrabedError('IB_CLUSTER_UNKNOWN', 'There is no cluster to end.');
  return kept;
}

async function runSsh(args: readonly string[]): Promise<number> {
  const child = start('ssh', args, { stdio: 'inherit' });
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  const [code, signal] = await ended.catch((cause: unknown) => {
    throw new InfrabedError('IB_PROGRAM_MISSING', 'The program ssh is not installed.', {
      hint: 'Run "make setup", or install openssh-client.',
      cause,
    });
  });
  return code ?? 128 + (signal === null ? 0 : constants.signals[signal]);
}

function describe(entry: ClusterJson): string {
  return `${entry.cluster} (${entry.nodes.map((node) => node.name).join(', ')}; ${entry.purpose}, ${entry.owner})`;
}

function table(entries: readonly ClusterJson[]): string {
  const rows = new Table({
    head: ['cluster', 'nodes', 'layers', 'purpose', 'owner', 'since', ''],
    style: { head: [], border: [] },
  });
  for (const entry of entries) {
    rows.push([
      entry.cluster,
      entry.nodes.map((node) => node.name).join(' '),
      entry.layers.join(' '),
      entry.purpose,
      entry.owner,
      entry.created.slice(0, 16).replace('T', ' '),
      entry.inUse && !entry.kept ? 'in use' : '',
    ]);
  }
  return rows.toString();
}
