/** `infrabed node`: how the nodes stand, their history, and what an operator decides about them. */
import { InfrabedError } from '../../core/errors.js';
import { printable } from '../../core/printable.js';
import {
  nodeClean,
  nodeEnroll,
  nodeHistoryEvents,
  nodeList,
  nodeMaintenance,
  nodeQuarantine,
  nodeShow,
  type NodeJson,
} from '../../web/api/nodes.js';
import { consent, withAsk, type AskArguments } from '../ask.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';
import { historyLines, nodeLines } from '../node-page.js';
import { perform } from '../perform.js';
import { fittedTable } from '../tables.js';
import { formatShort, zoneName } from '../times.js';
import { nodeStates } from '../../testbed/node/states.js';

const jsonOption = { type: 'boolean', default: false, describe: 'one JSON object a node' } as const;
const nodeArgument = {
  type: 'string',
  demandOption: true,
  describe: 'local/n01, or n01 where only one site has it',
} as const;
const whyOption = { type: 'string', nargs: 1, describe: 'why; others see it' } as const;

interface ListArguments {
  site: string | undefined;
  state: (typeof nodeStates)[number] | undefined;
  tag: string | undefined;
  json: boolean;
}

const list: CliCommand<ListArguments> = {
  command: 'list',
  describe: 'the nodes there are, by name',
  builder: (yargs) =>
    yargs
      .option('site', { type: 'string', nargs: 1, describe: 'only of this site' })
      .option('state', { choices: nodeStates, nargs: 1, describe: 'only in this state' })
      .option('tag', { type: 'string', nargs: 1, describe: 'only with this tag' })
      .option('json', jsonOption)
      .example('$0 node list --state quarantined', 'what needs an eye')
      .example('$0 node list --json', 'for other programs'),
  handler: async ({ site, state, tag, json }, face) => {
    const { nodes } = await perform(face, nodeList, {
      ...(site === undefined ? {} : { site }),
      ...(state === undefined ? {} : { state }),
      ...(tag === undefined ? {} : { tag }),
    });
    if (json) for (const node of nodes) face.printJson(node);
    else if (nodes.length === 0) face.print(nothing({ site, state, tag }));
    else printTable(nodes, face);
  },
};

function nothing({ site, state, tag }: Pick<ListArguments, 'site' | 'state' | 'tag'>): string {
  const filtered = [site, state, tag].some((filter) => filter !== undefined);
  if (filtered) return 'No node is like that. "infrabed node list" shows all.';
  return 'There is no node. "infrabed site add FILE" takes in those of an inventory.';
}

function printTable(nodes: readonly NodeJson[], face: Face): void {
  const nowMs = Date.now();
  const rows = nodes.map((node) => [
    node.node,
    node.retired ? `${node.state}, retired` : node.state,
    formatShort(Date.parse(node.since), nowMs),
    node.tags.join(' '),
    remarks(node),
  ]);
  face.print(`Local time (${zoneName()}).`);
  face.print(
    fittedTable(['node', 'state', 'since', 'tags', 'remark'], rows, {
      width: face.columns,
      elastic: 4,
      dense: true,
    }),
  );
}

function remarks({ fault, hold, lease, state, failures }: NodeJson): string {
  const later = state === 'maintenance' ? '' : ', once it is given back';
  return [
    hold === null ? '' : `held by ${hold.by}${later}: ${hold.why}`,
    fault === null ? '' : `${fault.code}: ${fault.message}`,
    lease ?? '',
    failures === 0 ? '' : `${String(failures)} failures in a row`,
  ]
    .filter((text) => text !== '')
    .map(printable)
    .join('\n');
}

interface NodeArguments {
  node: string;
  json: boolean;
}

const show: CliCommand<NodeArguments> = {
  command: 'show <node>',
  describe: 'one node: state, fault, hold, next booking, last clean proof',
  builder: (yargs) =>
    yargs
      .positional('node', nodeArgument)
      .option('json', jsonOption)
      .example('$0 node show n01', 'all about it'),
  handler: async ({ node: name, json }, face) => {
    const node = await perform(face, nodeShow, { node: name });
    if (json) face.printJson(node);
    else for (const line of nodeLines(node)) face.print(line);
  },
};

const history: CliCommand<NodeArguments> = {
  command: 'history <node>',
  describe: 'everything that is on record of a node, oldest first',
  builder: (yargs) =>
    yargs
      .positional('node', nodeArgument)
      .option('json', { ...jsonOption, describe: 'one JSON object an event' })
      .example('$0 node history n01 | tail', 'what happened to it last'),
  handler: async ({ node: name, json }, face) => {
    const { node, events } = await perform(face, nodeHistoryEvents, { node: name });
    if (json) for (const event of events) face.printJson(event);
    else if (events.length === 0) face.print(`Nothing is on record of ${node} yet.`);
    else for (const line of historyLines(events, Date.now())) face.print(line);
  },
};

interface MaintenanceArguments extends NodeArguments {
  state: 'on' | 'off';
  why: string | undefined;
}

const maintenance: CliCommand<MaintenanceArguments> = {
  command: 'maintenance <state> <node>',
  describe: 'hold a node (on), which the machine then never lends or frees; or end the hold (off)',
  builder: (yargs) =>
    yargs
      .positional('state', {
        choices: ['on', 'off'] as const,
        demandOption: true,
        describe: 'begin or end it',
      })
      .positional('node', nodeArgument)
      .option('why', whyOption)
      .option('json', jsonOption)
      .example('$0 node maintenance on n01 --why "new disk"', 'nobody gets it from now on')
      .example('$0 node maintenance off n01', 'it is cleaned, then lent again'),
  handler: async ({ state, node: name, why, json }, face) => {
    const on = state === 'on';
    if (on && why === undefined) {
      throw new InfrabedError('IB_USAGE', 'Why is it held?', { hint: 'Add --why TEXT.' });
    }
    const decision = await perform(face, nodeMaintenance, {
      node: name,
      on,
      ...(why === undefined ? {} : { why }),
    });
    if (json) face.printJson(decision);
    else face.print(heldOrFreed(decision, on));
  },
};

function heldOrFreed({ node, inForce }: { node: string; inForce: boolean }, on: boolean): string {
  if (!on) return `${node} is held no longer; "infrabed node show ${node}" shows how it stands`;
  if (inForce) return `${node} is in maintenance; "infrabed node maintenance off ${node}" ends that`;
  return `${node} is in use; it goes into maintenance when it is given back`;
}

interface QuarantineArguments extends NodeArguments, AskArguments {
  why: string | undefined;
}

const quarantine: CliCommand<QuarantineArguments> = {
  command: 'quarantine <node>',
  describe: 'take a node out for a fault, until a clean succeeds',
  builder: (yargs) =>
    withAsk(
      yargs.positional('node', nodeArgument).option('why', whyOption).option('json', jsonOption),
    ).example('$0 node quarantine n01 --why "disk makes noises" --yes', 'without a question'),
  handler: async (args, face) => {
    const { why } = args;
    if (why === undefined) {
      throw new InfrabedError('IB_USAGE', 'Which fault has it?', { hint: 'Add --why TEXT.' });
    }
    const node = await perform(face, nodeShow, { node: args.node });
    const asked = { id: 'node-quarantine', refused: 'Nothing was quarantined.' };
    const does = `quarantine ${described(node)}`;
    if (!(await consent(face, args, { ...asked, does, question: `Quarantine ${described(node)}?` }))) return;
    const decision = await perform(face, nodeQuarantine, { node: node.node, why });
    if (args.json) face.printJson(decision);
    else if (decision.inForce) {
      face.print(`${decision.node} is quarantined; "infrabed node clean ${decision.node}" brings it back`);
    } else face.print(`${decision.node} is in use; it is quarantined when it is given back`);
  },
};

const clean: CliCommand<NodeArguments & AskArguments> = {
  command: 'clean <node>',
  describe: 'clean a node and prove it by a fresh boot; what is left on it is destroyed',
  builder: (yargs) =>
    withAsk(yargs.positional('node', nodeArgument).option('json', jsonOption)).example(
      '$0 node clean n01 --yes',
      'without a question',
    ),
  handler: async (args, face) => {
    const node = await perform(face, nodeShow, { node: args.node });
    const asked = { id: 'node-clean', refused: 'Nothing was cleaned.' };
    const does = `clean ${described(node)}`;
    const question = `Clean ${described(node)}? What is left on it is destroyed.`;
    if (!(await consent(face, args, { ...asked, does, question }))) return;
    const cleaned = await perform(face, nodeClean, { node: node.node });
    if (args.json) face.printJson(cleaned);
    else
      face.print(
        `${cleaned.node} is clean and ${cleaned.state}; "infrabed node show ${cleaned.node}" has the proof`,
      );
  },
};

const enroll: CliCommand<NodeArguments> = {
  command: 'enroll <node>',
  describe: 'take a node of its inventory into use',
  builder: (yargs) =>
    yargs
      .positional('node', nodeArgument)
      .option('json', jsonOption)
      .example('$0 node enroll wisconsin/c220g2-01', 'a machine that "site add" made known'),
  handler: async ({ node: name, json }, face) => {
    const enrolled = await perform(face, nodeEnroll, { node: name });
    if (json) face.printJson(enrolled);
    else face.print(`${enrolled.node} is clean and ${enrolled.state}`);
  },
};

function described({ node, state, lease }: NodeJson): string {
  return `${node} (${state}${lease === null ? '' : `, lease ${lease}`})`;
}

export const nodeNoun: CliNoun = {
  noun: 'node',
  describe: 'the nodes of the sites: state, history, maintenance, quarantine, cleaning',
  verbs: (face) => [
    toYargs(list, face),
    toYargs(show, face),
    toYargs(history, face),
    toYargs(maintenance, face),
    toYargs(quarantine, face),
    toYargs(clean, face),
    toYargs(enroll, face),
  ],
};
