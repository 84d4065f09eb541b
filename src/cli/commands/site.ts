/** `infrabed site`: inventories: taken in, listed, checked, and compared with what the machines report. */
import { readFile } from 'node:fs/promises';
import { errorCatalogue, InfrabedError, messageOf } from '../../core/errors.js';
import { printable } from '../../core/printable.js';
import { invalidSite, parseInventory, validateInventory } from '../../testbed/inventory/inventory.js';
import { siteAdd, siteDiff, siteList } from '../../web/api/sites.js';
import type { InspectionJson, SiteJson, SitePlanJson } from '../../web/api/sites.js';
import { consent, withAsk, type AskArguments } from '../ask.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';
import { perform } from '../perform.js';
import { compactNames, fittedTable } from '../tables.js';
import { formatShort, zoneName } from '../times.js';

const fileArgument = { type: 'string', demandOption: true, describe: 'inventory file (YAML)' } as const;

interface FileArguments {
  file: string;
  json: boolean;
}

/** @throws InfrabedError IB_USAGE when it cannot be read. */
async function readInventory(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new InfrabedError('IB_USAGE', `The inventory ${path} cannot be read: ${messageOf(error)}`, {
      hint: 'docs/inventory.md describes the file; inventory/cloudlab-wisconsin.yaml is an example.',
      cause: error,
    });
  }
}

const validate: CliCommand<FileArguments> = {
  command: 'validate <file>',
  describe: 'everything that is wrong with an inventory, with line and fix; needs no root and no server',
  builder: (yargs) =>
    yargs
      .positional('file', fileArgument)
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object' })
      .example('$0 site validate inventory/cloudlab-wisconsin.yaml', 'ends with 2 when something is wrong'),
  handler: async ({ file, json }, face) => {
    const text = await readInventory(file);
    const problems = validateInventory(text, file);
    if (json) {
      face.printJson({ file, ok: problems.length === 0, problems });
      if (problems.length > 0) face.exitStatus = errorCatalogue.IB_SITE_INVALID;
      return;
    }
    if (problems.length > 0) throw invalidSite(file, problems);
    const site = parseInventory(text, file);
    face.print(`ok: site ${site.name} with ${counted(site.nodes.length)}`);
  },
};

function counted(nodes: number): string {
  return nodes === 1 ? '1 node' : `${String(nodes)} nodes`;
}

interface AddArguments extends FileArguments, AskArguments {}

const add: CliCommand<AddArguments> = {
  command: 'add <file>',
  describe: 'take a site in, or bring it in line with a newer inventory; its other nodes are retired',
  builder: (yargs) =>
    withAsk(
      yargs
        .positional('file', fileArgument)
        .option('json', { type: 'boolean', default: false, describe: 'one JSON object' }),
    )
      .example('$0 site add ./wisconsin.yaml --dry-run', 'see what would change')
      .example('$0 site add ./wisconsin.yaml', 'asks only where nodes would be retired'),
  handler: async (args, face) => {
    const text = await readInventory(args.file);
    const plan = await perform(face, siteAdd, { text, path: args.file, dryRun: true });
    if (args['dry-run']) {
      report(plan, args, face);
      return;
    }
    if (plan.retired.length > 0) {
      const names = compactNames(plan.retired);
      const asked = { id: 'site-add', does: `retire ${names}`, refused: 'Nothing was changed.' };
      const question = `The file no longer has ${names}. Retire ${plan.retired.length === 1 ? 'it' : 'them'}?`;
      if (!(await consent(face, args, { ...asked, question }))) return;
    }
    report(await perform(face, siteAdd, { text, path: args.file, dryRun: false }), args, face);
  },
};

function report(plan: SitePlanJson, { json }: AddArguments, face: Face): void {
  if (json) face.printJson(plan);
  else for (const line of planLines(plan)) face.print(line);
}

function planLines(plan: SitePlanJson): string[] {
  const { site, isNew, done, added, changed, retired, returned, unchanged, inUse } = plan;
  const would = done ? '' : 'would be ';
  const line = (what: string, names: readonly string[]): string[] =>
    names.length === 0 ? [] : [`  ${would}${what}: ${compactNames(names)}`];
  return [
    isNew ? `site ${site} ${done ? 'is added' : 'would be added'}` : `site ${site}`,
    ...line('enrolled', added),
    ...line('changed', changed),
    ...line('retired', retired),
    ...line('back in use', returned),
    ...(unchanged === 0 ? [] : [`  as before: ${counted(unchanged)}`]),
    ...inUse.map(({ node, leases }) => `  in the way: ${node} is held or reserved by ${leases.join(', ')}`),
  ];
}

const list: CliCommand<{ json: boolean }> = {
  command: 'list',
  describe: 'the sites there are, by name',
  builder: (yargs) =>
    yargs
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a site' })
      .example('$0 site list', 'sites, their nodes and states'),
  handler: async ({ json }, face) => {
    const { sites } = await perform(face, siteList, {});
    if (json) for (const site of sites) face.printJson(site);
    else if (sites.length === 0) {
      face.print('There is no site. "infrabed site add FILE" takes one in; see docs/inventory.md.');
    } else printTable(sites, face);
  },
};

function printTable(sites: readonly SiteJson[], face: Face): void {
  const nowMs = Date.now();
  const counts = (numbers: Readonly<Record<string, number>>): string =>
    Object.entries(numbers)
      .map(([word, count]) => `${String(count)} ${word}`)
      .join('\n');
  const rows = sites.map((site) => [
    site.site,
    String(site.nodes) + (site.retired === 0 ? '' : `\n${String(site.retired)} retired`),
    counts(site.states),
    counts(site.backends),
    formatShort(Date.parse(site.addedAt), nowMs),
    printable(site.description ?? ''),
  ]);
  const head = ['site', 'nodes', 'states', 'backends', 'added', 'description'];
  face.print(`Local time (${zoneName()}).`);
  face.print(fittedTable(head, rows, { width: face.columns, elastic: 5, dense: true }));
}

interface DiffArguments {
  site: string;
  node: string[];
  json: boolean;
}

const diff: CliCommand<DiffArguments> = {
  command: 'diff <site>',
  describe: 'compare the hardware of the nodes with the inventory; a node that differs is quarantined',
  builder: (yargs) =>
    yargs
      .positional('site', { type: 'string', demandOption: true, describe: 'name of the site' })
      .option('node', { type: 'string', array: true, default: [], describe: 'only these nodes' })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a node' })
      .example('$0 site diff local', 'ends with 3 when something differs or could not be read')
      .example('$0 site diff local --node n01 --json', 'one node, for other programs'),
  handler: async ({ site, node, json }, face) => {
    const { nodes } = await perform(face, siteDiff, { site, ...(node.length === 0 ? {} : { nodes: node }) });
    if (json) for (const one of nodes) face.printJson(one);
    else for (const line of nodes.flatMap(inspectionLines)) face.print(line);
    if (nodes.length === 0 && !json) face.print(`The site ${printable(site)} has no node.`);
    if (nodes.some(({ outcome }) => outcome !== 'matches')) face.exitStatus = 3;
  },
};

function inspectionLines({ node, outcome, state, why, differences }: InspectionJson): string[] {
  if (outcome === 'matches') return [`${node}: as in the inventory`];
  if (outcome === 'not-inspected') return [`${node}: not looked at: ${printable(why ?? '')}`];
  return [
    `${node}: differs, ${state === 'quarantined' ? 'quarantined' : `${state}, quarantined when it is given back`}`,
    ...differences.map(({ field, kind, declared, reported, why: reason }) =>
      printable(
        `  ${field} (${kind}): declared ${declared ?? 'nothing'}, reported ${reported ?? 'nothing'}. ${reason}`,
      ),
    ),
  ];
}

export const siteNoun: CliNoun = {
  noun: 'site',
  describe: 'inventories: take in, list, check, compare with the machines',
  verbs: (face) => [toYargs(add, face), toYargs(list, face), toYargs(validate, face), toYargs(diff, face)],
};
