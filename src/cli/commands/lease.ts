/** `infrabed lease`: who has what, and what can be done with a lease of one's own. */
import { InfrabedError } from '../../core/errors.js';
import { printable } from '../../core/printable.js';
import {
  leaseExtend,
  leaseList,
  leaseRelease,
  leaseShow,
  leaseTransfer,
  type LeaseJson,
} from '../../web/api/leases.js';
import { consent, withAsk, type AskArguments } from '../ask.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';
import { perform } from '../perform.js';
import { compactNames, fittedTable } from '../tables.js';
import {
  formatDuration,
  formatShort,
  formatTime,
  iso,
  parseDuration,
  parseTime,
  zoneName,
} from '../times.js';

const jsonOption = { type: 'boolean', default: false, describe: 'one JSON object a lease' } as const;
const idArgument = { type: 'string', demandOption: true, describe: 'id of the lease' } as const;

interface ListArguments {
  all: boolean;
  owner: string | undefined;
  json: boolean;
}

const list: CliCommand<ListArguments> = {
  command: 'list',
  describe: 'the leases there are, by their start',
  builder: (yargs) =>
    yargs
      .option('all', { type: 'boolean', default: false, describe: 'also those that have ended' })
      .option('owner', { type: 'string', nargs: 1, describe: 'only those of this user' })
      .option('json', jsonOption)
      .example('$0 lease list --owner ada', 'what ada has and will have')
      .example('$0 lease list --all --json', 'for other programs'),
  handler: async ({ all, owner, json }, face) => {
    const { leases } = await perform(face, leaseList, { all, ...(owner === undefined ? {} : { owner }) });
    if (json) for (const lease of leases) face.printJson(lease);
    else if (leases.length === 0) face.print(nothing(all, owner));
    else printTable(leases, face);
  },
};

function nothing(all: boolean, owner: string | undefined): string {
  const whose = owner === undefined ? '' : ` of ${printable(owner)}`;
  const more = all ? '' : ' (--all shows those that have ended)';
  return `There is no lease${whose}${more}. "infrabed slots" shows what is free, "infrabed reserve" takes it.`;
}

function printTable(leases: readonly LeaseJson[], face: Face): void {
  const nowMs = Date.now();
  const rows = leases.map((lease) => [
    `${lease.id}\n${printable(lease.purpose)}`,
    `${printable(lease.owner)}\n${stateOf(lease)}`,
    compactNames(lease.nodes) || '-',
    // When it really ended, where it has.
    [lease.start, lease.endedAt ?? lease.end].map((text) => formatShort(Date.parse(text), nowMs)).join('\n'),
  ]);
  const head = ['lease, purpose', 'owner, state', 'nodes', 'start, end'];
  face.print(`Local time (${zoneName()}).`);
  face.print(fittedTable(head, rows, { width: face.columns, elastic: 0 }));
}

function stateOf(lease: LeaseJson): string {
  if (lease.endReason !== null) return lease.endReason;
  return lease.controller === null ? lease.state : `${lease.state}, in use`;
}

interface ShowArguments {
  lease: string;
  json: boolean;
}

const show: CliCommand<ShowArguments> = {
  command: 'show <lease>',
  describe: 'one lease: nodes, times, what stands on it',
  builder: (yargs) =>
    yargs
      .positional('lease', idArgument)
      .option('json', jsonOption)
      .example('$0 lease show l-20260115-093000-abcd', 'all about it'),
  handler: async ({ lease: id, json }, face) => {
    const lease = await perform(face, leaseShow, { id });
    if (json) face.printJson(lease);
    else for (const line of lines(lease, Date.now())) face.print(line);
  },
};

function lines(lease: LeaseJson, nowMs: number): string[] {
  const [startMs, endMs] = [Date.parse(lease.start), Date.parse(lease.end)];
  const field = (name: string, value: string): string => `${name.padEnd(11)} ${value}`;
  return [
    field('lease', `${lease.id}${lease.own ? ' (taken by a command for itself)' : ''}`),
    field('owner', printable(lease.owner)),
    field('purpose', printable(lease.purpose)),
    field('state', `${lease.state}${remark(lease, startMs, endMs, nowMs)}`),
    field('nodes', lease.nodes.join(' ') || '-'),
    field('start', formatTime(startMs)),
    field('end', `${formatTime(endMs)} (${formatDuration(endMs - startMs)})`),
    field('generation', String(lease.generation)),
    ...(lease.controller === null ? [] : [field('in hands of', lease.controller)]),
    ...(lease.clusters.length === 0 ? [] : [field('clusters', lease.clusters.join(' '))]),
  ];
}

function remark(lease: LeaseJson, startMs: number, endMs: number, nowMs: number): string {
  const toTheMinute = (ms: number): string =>
    formatDuration(Math.max(60_000, Math.round(ms / 60_000) * 60_000));
  if (lease.endedAt !== null) return `, ${lease.endReason ?? ''} at ${formatTime(Date.parse(lease.endedAt))}`;
  if (lease.state === 'reserved')
    return startMs > nowMs ? `, begins in ${toTheMinute(startMs - nowMs)}` : ', due';
  return endMs > nowMs ? `, ${toTheMinute(endMs - nowMs)} left` : ', past its end';
}

interface ExtendArguments {
  lease: string;
  by: string | undefined;
  until: string | undefined;
  json: boolean;
}

const extend: CliCommand<ExtendArguments> = {
  command: 'extend <lease>',
  describe: 'let a lease end later, up to the next reservation',
  builder: (yargs) =>
    yargs
      .positional('lease', idArgument)
      .option('by', {
        alias: 'for',
        type: 'string',
        nargs: 1,
        describe: 'so much longer: 90m, 4h, 1h30m',
      })
      .option('until', { type: 'string', nargs: 1, describe: 'or to this end: 18:00, 2026-12-01T09:00' })
      .option('json', jsonOption)
      .example('$0 lease extend l-20260115-093000-abcd --by 2h', 'two hours more')
      .example('$0 lease extend l-20260115-093000-abcd --until 18:00', 'until six in the evening'),
  handler: async (args, face) => {
    const { by, until } = args;
    if ((by === undefined) === (until === undefined)) {
      throw new InfrabedError('IB_USAGE', 'How much longer?', { hint: 'Give --by 2h, or --until 18:00.' });
    }
    const change =
      by === undefined
        ? { until: iso(parseTime(until ?? '', '--until', Date.now())) }
        : { durationSec: parseDuration(by, '--by') / 1000 };
    const lease = await perform(face, leaseExtend, { id: args.lease, ...change });
    if (args.json) face.printJson(lease);
    else face.print(`${lease.id} now ends ${formatTime(Date.parse(lease.end))}`);
  },
};

interface ReleaseArguments extends ShowArguments, AskArguments {}

const release: CliCommand<ReleaseArguments> = {
  command: 'release <lease>',
  describe: 'give a lease back, or cancel one that has not begun',
  builder: (yargs) =>
    withAsk(yargs.positional('lease', idArgument).option('json', jsonOption))
      .example('$0 lease release l-20260115-093000-abcd --dry-run', 'see what would be given back')
      .example('$0 lease release l-20260115-093000-abcd --yes', 'without a question'),
  handler: async (args, face) => {
    const lease = await perform(face, leaseShow, { id: args.lease });
    const does = `${lease.state === 'active' ? 'give back' : 'cancel'} ${described(lease)}`;
    if (lease.state === 'active') {
      const asked = { id: 'lease-release', does, question: `Give back ${described(lease)}?` };
      if (!(await consent(face, args, { ...asked, refused: 'Nothing was given back.' }))) return;
    } else if (args['dry-run']) {
      face.print(lease.state === 'reserved' ? `would ${does}` : `${lease.id} has ended already`);
      return;
    }
    const ended = await perform(face, leaseRelease, { id: args.lease });
    if (args.json) face.printJson(ended);
    else face.print(`${ended.endReason ?? ended.state}: ${ended.id}`);
  },
};

function described(lease: LeaseJson): string {
  const nodes = compactNames(lease.nodes) || 'no nodes';
  return `${lease.id} (${nodes}; ${printable(lease.purpose)}, ${printable(lease.owner)})`;
}

interface TransferArguments extends ShowArguments {
  to: string;
}

const transfer: CliCommand<TransferArguments> = {
  command: 'transfer <lease>',
  describe: 'hand a lease over to somebody else',
  builder: (yargs) =>
    yargs
      .positional('lease', idArgument)
      .option('to', { type: 'string', nargs: 1, demandOption: true, describe: 'name of the new owner' })
      .option('json', jsonOption)
      .example('$0 lease transfer l-20260115-093000-abcd --to grace', 'it is hers from now on'),
  handler: async (args, face) => {
    const lease = await perform(face, leaseTransfer, { id: args.lease, owner: args.to });
    if (args.json) face.printJson(lease);
    else face.print(`${lease.id} belongs to ${printable(lease.owner)} now`);
  },
};

export const leaseNoun: CliNoun = {
  noun: 'lease',
  describe: 'reservations: list, show, extend, give back, hand over',
  verbs: (face) => [
    toYargs(list, face),
    toYargs(show, face),
    toYargs(extend, face),
    toYargs(release, face),
    toYargs(transfer, face),
  ],
};
