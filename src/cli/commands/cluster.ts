/** `infrabed cluster`: clusters for people who write tasks, without a trial around them. */
import { once } from 'node:events';
import { constants, userInfo } from 'node:os';
import Table from 'cli-table3';
import { InfrabedError } from '../../core/errors.js';
import { shellQuote, start } from '../../core/exec.js';
import { stateDir } from '../../core/paths.js';
import { defaultSettings } from '../../core/settings.js';
import { nullJournal } from '../../core/journal.js';
import { openStore } from '../../record/store/store.js';
import { writeSshConfig } from '../../testbed/cluster/ssh-config.js';
import { backends } from '../../testbed/driver/index.js';
import { endCluster, listClusters, raiseCluster, unknownCluster } from '../../testbed/lease/kept-cluster.js';
import type { ClusterEntry, Grounds } from '../../testbed/lease/kept-cluster.js';
import { asRoot } from '../as-root.js';
import { toYargs } from '../command.js';
import type { CliCommand, CliNoun, Face } from '../command.js';
import { openController } from '../controller.js';
import type { Controller } from '../controller.js';

interface UpArguments {
  nodes: number;
  layer: string[];
  json: boolean;
}

export const clusterUp: CliCommand<UpArguments> = {
  command: 'up',
  describe: 'make a cluster and leave it running',
  builder: (yargs) =>
    yargs
      .option('nodes', { type: 'number', default: 3, describe: 'how many nodes: node0, node1, ...' })
      .option('layer', { type: 'string', array: true, default: ['os'], describe: 'layers, from the bottom' })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object on standard output' })
      .example('$0 cluster up --nodes 3', 'three nodes with the operating system alone')
      .example('$0 cluster up --layer os --layer postgres', 'with PostgreSQL on top'),
  handler: async (args, face) => {
    if (!Number.isInteger(args.nodes) || args.nodes < 1) {
      throw new InfrabedError('IB_USAGE', '--nodes takes a whole number from 1.');
    }
    if (asRoot(face)) return;
    const layers = args.layer[0] === 'os' ? args.layer : ['os', ...args.layer];
    await asController(face, async (grounds) => {
      const durationMs = defaultSettings.lease.own_sec * 1000;
      const options = {
        nodeCount: args.nodes,
        layers,
        owner: userInfo().username,
        durationMs,
        signal: face.signal,
      };
      const entry = await raiseCluster(grounds, options);
      if (args.json) face.printJson(shown(entry));
      else {
        const names = entry.nodes.map((node) => node.name).join(', ');
        face.print(`${entry.id} is up: ${names}`);
        face.print(
          `log in with "infrabed cluster ssh node0", end it with "infrabed cluster down ${entry.id}"`,
        );
      }
    });
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
    if (asRoot(face)) return;
    const entries = await withClusters((clusters) => Promise.resolve(clusters));
    if (args.json) {
      for (const entry of entries) face.printJson(shown(entry));
    } else if (entries.length === 0) face.print('There is no cluster. "infrabed cluster up" makes one.');
    else face.print(table(entries));
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
    const entry = await withClusters((clusters) =>
      Promise.resolve(chooseCluster(clusters, args.node, args.cluster)),
    );
    const dir = stateDir();
    const driverCluster = await backends.container({ stateDir: dir }).open(entry.id, nullJournal);
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

interface DownArguments {
  id: string | undefined;
  all: boolean;
  'dry-run': boolean;
  yes: boolean;
}

export const clusterDown: CliCommand<DownArguments> = {
  command: 'down [id]',
  describe: 'end a cluster: everything on its nodes is lost',
  builder: (yargs) =>
    yargs
      .positional('id', {
        type: 'string',
        describe: 'id of the cluster; may be left out where there is one alone',
      })
      .option('all', {
        type: 'boolean',
        default: false,
        describe: 'every cluster that no running trial uses',
      })
      .option('dry-run', { type: 'boolean', default: false, describe: 'only say what would be done' })
      .option('yes', { type: 'boolean', default: false, describe: 'do not ask' })
      .example('$0 cluster down --dry-run', 'see what would go')
      .example('$0 cluster down --all --yes', 'everything, without a question'),
  handler: async (args, face) => {
    if (asRoot(face)) return;
    const entries = await withClusters((clusters) =>
      Promise.resolve(chooseToEnd(clusters, args.id, args.all)),
    );
    for (const entry of entries)
      face.print(`${args['dry-run'] ? 'would end' : 'to end'}: ${describe(entry)}`);
    if (args['dry-run'] || entries.length === 0) return;
    const message = `End ${entries.length === 1 ? 'this cluster' : `these ${String(entries.length)} clusters`}?`;
    if (!args.yes && !(await face.io.ask({ id: 'cluster-down', message, default: false }))) {
      throw new InfrabedError('IB_USAGE', 'Nothing was ended.', {
        hint: 'Give --yes to end it without a question.',
      });
    }
    await asController(face, async (grounds) => {
      for (const entry of entries) {
        await endCluster(grounds, entry.id);
        face.print(`ended: ${entry.id}`);
      }
    });
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

async function asController(face: Face, work: (grounds: Grounds) => Promise<void>): Promise<void> {
  const controller: Controller = await openController(face, new Map());
  try {
    await work(controller.environment);
  } finally {
    await controller.close();
  }
}

/** Reads the clusters and closes the store again: a shell may be open for hours. */
async function withClusters<T>(use: (clusters: ClusterEntry[]) => Promise<T>): Promise<T> {
  const store = await openStore(stateDir());
  try {
    return await use(await listClusters(store));
  } finally {
    await store.close();
  }
}

/**
 * The kept cluster that is meant. Those of running trials are left out: their only way in is the recorded gateway.
 * @throws InfrabedError IB_CLUSTER_UNKNOWN, IB_NODE_UNKNOWN, IB_USAGE when several have the node.
 */
export function chooseCluster(
  clusters: readonly ClusterEntry[],
  node: string,
  id: string | undefined,
): ClusterEntry {
  const kept = clusters.filter((entry) => entry.kept && (id === undefined || entry.id === id));
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
    const ids = [first, ...others].map((entry) => entry.id).join(', ');
    throw new InfrabedError('IB_USAGE', `Several clusters have a node "${node}".`, {
      hint: `Say which by --cluster: ${ids}.`,
    });
  }
  return first;
}

/** @throws InfrabedError IB_CLUSTER_UNKNOWN, or IB_USAGE when it is not clear which is meant. */
export function chooseToEnd(
  clusters: readonly ClusterEntry[],
  id: string | undefined,
  all: boolean,
): readonly ClusterEntry[] {
  const kept = clusters.filter((entry) => entry.kept);
  if (all) return kept;
  if (id !== undefined) {
    const entry = clusters.find((one) => one.id === id);
    if (entry === undefined) throw unknownCluster(id);
    return [entry];
  }
  if (kept.length > 1) {
    const ids = kept.map((entry) => entry.id).join(', ');
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

function shown(entry: ClusterEntry): Record<string, unknown> {
  const { id, owner, purpose, backend, layers, nodes, kept, inUse, createdAt, lease } = entry;
  return { cluster: id, owner, purpose, backend, layers, nodes, kept, inUse, createdAt, lease };
}

function describe(entry: ClusterEntry): string {
  return `${entry.id} (${entry.nodes.map((node) => node.name).join(', ')}; ${entry.purpose}, ${entry.owner})`;
}

function table(entries: readonly ClusterEntry[]): string {
  const rows = new Table({
    head: ['cluster', 'nodes', 'layers', 'purpose', 'owner', 'since', ''],
    style: { head: [], border: [] },
  });
  for (const entry of entries) {
    rows.push([
      entry.id,
      entry.nodes.map((node) => node.name).join(' '),
      entry.layers.join(' '),
      entry.purpose,
      entry.owner,
      new Date(entry.createdAt).toISOString().slice(0, 16).replace('T', ' '),
      entry.inUse && !entry.kept ? 'in use' : '',
    ]);
  }
  return rows.toString();
}
