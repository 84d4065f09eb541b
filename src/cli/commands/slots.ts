/** `infrabed slots`: when so many nodes could be had for so long. */
import { leaseSlots, type SlotJson } from '../../web/api/leases.js';
import type { CliCommand } from '../command.js';
import { perform } from '../perform.js';
import { compactNames, fittedTable } from '../tables.js';
import { formatShort, iso, isoLocal, parseDuration, parseTime, weekday, zoneName } from '../times.js';
import { wantedInput, withWanted, type WantedArguments } from '../wanted.js';

const minuteMs = 60_000;

interface SlotsArguments extends WantedArguments {
  for: string;
  from: string | undefined;
  json: boolean;
}

export const slotsCommand: CliCommand<SlotsArguments> = {
  command: 'slots',
  describe: 'the next ten possible starts of a reservation',
  builder: (yargs) =>
    withWanted(yargs)
      .option('for', {
        type: 'string',
        nargs: 1,
        demandOption: true,
        describe: 'how long: 90m, 4h, 2d, 1h30m',
      })
      .option('from', {
        type: 'string',
        nargs: 1,
        describe: 'not before this time, written as for reserve [now]',
      })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a slot' })
      .example('$0 slots --nodes 3 --for 4h', 'when three nodes are free for four hours')
      .example('$0 slots --nodes 2 --for 8h --tag nvme --from "tomorrow 08:00"', 'with a tag, from tomorrow'),
  handler: async (args, face) => {
    const nowMs = Date.now();
    const { slots } = await perform(face, leaseSlots, {
      ...wantedInput(args),
      durationSec: parseDuration(args.for, '--for') / 1000,
      ...(args.from === undefined ? {} : { from: iso(parseTime(args.from, '--from', nowMs)) }),
      limit: 10,
    });
    if (args.json) {
      for (const slot of slots) face.printJson(slot);
      return;
    }
    if (slots.length === 0) {
      face.print(
        'Nothing is free for that long as far ahead as one may reserve; ask for fewer nodes or less time.',
      );
      return;
    }
    const rows = slots.map((slot) => {
      const startMs = startToShow(slot);
      return [
        weekday(startMs),
        isoLocal(startMs).replace(/(Z|[+-]\d\d:\d\d)$/, ''),
        formatShort(Date.parse(slot.end) + startMs - Date.parse(slot.start), nowMs),
        slot.extendableUntil === null ? 'open' : formatShort(Date.parse(slot.extendableUntil), nowMs),
        String(slot.freeNodes),
        compactNames(slot.nodes),
      ];
    });
    const head = ['', 'start', 'end', 'could last until', 'free', 'nodes'];
    face.print(`Local time (${zoneName()}).`);
    face.print(fittedTable(head, rows, { width: face.columns, elastic: 5, dense: true }));
    face.print('Reserve one with "infrabed reserve", the same options, --at START and --why TEXT.');
  },
};

/** The next full minute, which is easier to write down, where the slot leaves room for that. */
function startToShow({ start, end, extendableUntil }: SlotJson): number {
  const startMs = Date.parse(start);
  const laterMs = Math.ceil(startMs / minuteMs) * minuteMs;
  const lastsUntil = Date.parse(end) + laterMs - startMs;
  return extendableUntil === null || lastsUntil <= Date.parse(extendableUntil) ? laterMs : startMs;
}
