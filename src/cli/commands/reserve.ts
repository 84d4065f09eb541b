/** `infrabed reserve`: nodes for a time, under a lease of one's own. */
import { isInfrabedError, InfrabedError } from '../../core/errors.js';
import { shellQuote } from '../../core/exec.js';
import { printable } from '../../core/printable.js';
import { leaseReserve, type LeaseJson } from '../../web/api/leases.js';
import type { CliCommand } from '../command.js';
import { perform } from '../perform.js';
import { compactNames } from '../tables.js';
import { formatDuration, formatTime, iso, isoLocal, parseDuration, parseTime } from '../times.js';
import { wantedInput, wantedWords, withWanted, type WantedArguments } from '../wanted.js';

interface ReserveArguments extends WantedArguments {
  for: string;
  at: string | undefined;
  why: string;
  preempt: boolean;
  json: boolean;
}

export const reserveCommand: CliCommand<ReserveArguments> = {
  command: 'reserve',
  describe: 'reserve nodes for a time',
  builder: (yargs) =>
    withWanted(yargs)
      .option('for', {
        type: 'string',
        nargs: 1,
        demandOption: true,
        describe: 'how long: 90m, 4h, 2d, 1h30m',
      })
      .option('at', {
        type: 'string',
        nargs: 1,
        describe: 'from when: 2026-12-01T09:00, 09:00, "tomorrow 09:00", +2h [now]',
      })
      .option('why', { type: 'string', nargs: 1, demandOption: true, describe: 'what for; others see it' })
      .option('preempt', {
        type: 'boolean',
        default: false,
        describe:
          'displace reservations, not begun, of people with lower priority where nothing else makes room',
      })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object on standard output' })
      .example('$0 reserve --nodes 3 --for 4h --why "test a fail-over"', 'three nodes, from now')
      .example('$0 reserve --node n01 --node n02 --for 2d --at "tomorrow 09:00" --why upgrade', 'these two'),
  handler: async (args, face) => {
    const nowMs = Date.now();
    const durationMs = parseDuration(args.for, '--for');
    const startMs = args.at === undefined ? undefined : parseTime(args.at, '--at', nowMs);
    const input = {
      ...wantedInput(args),
      durationSec: durationMs / 1000,
      ...(startMs === undefined ? {} : { start: iso(startMs) }),
      purpose: args.why,
      preempt: args.preempt,
    };
    const lease = await perform(face, leaseReserve, input).catch((error: unknown) => {
      throw withEarliest(error, args);
    });
    if (args.json) face.printJson(lease);
    else for (const line of reserved(lease)) face.print(line);
  },
};

function reserved(lease: LeaseJson): string[] {
  const [startMs, endMs] = [Date.parse(lease.start), Date.parse(lease.end)];
  const when = `${formatTime(startMs)} to ${formatTime(endMs)} (${formatDuration(endMs - startMs)})`;
  return [
    `${lease.id}: ${compactNames(lease.nodes)} from ${when}`,
    `use it with "infrabed run TASK --lease ${lease.id}", give it back with "infrabed lease release ${lease.id}"`,
  ];
}

/** Where nothing is free now but something later, the hint is the command line that would get it. */
function withEarliest(error: unknown, args: ReserveArguments): unknown {
  if (!isInfrabedError(error, 'IB_NOT_ENOUGH_NODES')) return error;
  const earliest = error.details['earliest'];
  if (typeof earliest !== 'number') return error;
  const words = ['infrabed', 'reserve', ...wantedWords(args), '--for', args.for, '--at', isoLocal(earliest)];
  const line = [...words, '--why', args.why].map((word) => shellQuote(printable(word))).join(' ');
  return new InfrabedError(error.code, error.message, {
    hint: `The earliest start is ${formatTime(earliest)}: ${line}`,
    details: error.details,
    cause: error,
  });
}
