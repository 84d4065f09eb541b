/** The options by which a person says which nodes: a number and tags, or names. `reserve` and `slots` have them. */
import type { Argv } from 'yargs';
import { InfrabedError } from '../core/errors.js';

export interface WantedArguments {
  nodes: number | undefined;
  tag: string[];
  node: string[];
  site: string | undefined;
}

export function withWanted(yargs: Argv): Argv<WantedArguments> {
  return yargs
    .option('nodes', { type: 'number', nargs: 1, describe: 'how many' })
    .option('tag', {
      type: 'string',
      array: true,
      default: [],
      describe: 'only nodes with this tag (each of several)',
    })
    .option('node', {
      type: 'string',
      array: true,
      default: [],
      describe: 'these nodes, by name, in place of --nodes',
    })
    .option('site', { type: 'string', nargs: 1, describe: 'of this site [the one of this machine]' });
}

/** As an operation takes it. @throws InfrabedError IB_USAGE. */
export function wantedInput({ nodes, tag, node, site }: WantedArguments): {
  nodes?: number;
  tags: string[];
  names: string[];
  site?: string;
} {
  if (nodes !== undefined && node.length > 0) {
    throw new InfrabedError('IB_USAGE', '--nodes and --node exclude each other.', {
      hint: 'Give a number (with --tag where you like), or names.',
    });
  }
  if (nodes === undefined && node.length === 0) {
    throw new InfrabedError('IB_USAGE', 'Which nodes?', { hint: 'Give --nodes 3, or --node NAME for each.' });
  }
  if (nodes !== undefined && !Number.isInteger(nodes)) {
    throw new InfrabedError('IB_USAGE', '--nodes takes a whole number from 1.');
  }
  return {
    ...(nodes === undefined ? {} : { nodes }),
    tags: tag,
    names: node,
    ...(site === undefined ? {} : { site }),
  };
}

/** The same options again, for a command line that can be pasted. */
export function wantedWords({ nodes, tag, node, site }: WantedArguments): string[] {
  return [
    ...(nodes === undefined ? [] : ['--nodes', String(nodes)]),
    ...tag.flatMap((name) => ['--tag', name]),
    ...node.flatMap((name) => ['--node', name]),
    ...(site === undefined ? [] : ['--site', site]),
  ];
}
