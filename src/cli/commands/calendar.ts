/** `infrabed calendar`: who has which node when, one row a node. */
import { InfrabedError } from '../../core/errors.js';
import { leaseCalendar } from '../../web/api/leases.js';
import { calendarPage } from '../calendar-page.js';
import type { CliCommand } from '../command.js';
import { perform } from '../perform.js';
import { iso, parseTime, startOfDay } from '../times.js';

interface CalendarArguments {
  days: number;
  from: string;
  site: string | undefined;
  json: boolean;
}

export const calendarCommand: CliCommand<CalendarArguments> = {
  command: 'calendar',
  describe: 'who has which node when: a week, one row a node',
  builder: (yargs) =>
    yargs
      .option('days', { type: 'number', nargs: 1, default: 7, describe: 'how many, up to 31' })
      .option('from', {
        type: 'string',
        nargs: 1,
        default: 'today',
        describe: 'first day: 2026-12-01, tomorrow, +7d, -1d',
      })
      .option('site', { type: 'string', nargs: 1, describe: 'only this site [all]' })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a node' })
      .example('$0 calendar', 'the week from today')
      .example('$0 calendar --from tomorrow --days 1', 'one day, by the half hour'),
  handler: async (args, face) => {
    if (!Number.isInteger(args.days) || args.days < 1 || args.days > 31) {
      throw new InfrabedError('IB_USAGE', '--days takes a whole number from 1 to 31.', {
        hint: 'For more, ask for several parts by --from.',
      });
    }
    const nowMs = Date.now();
    const fromMs = startOfDay(parseTime(args.from, '--from', nowMs));
    const calendar = await perform(face, leaseCalendar, {
      from: iso(fromMs),
      // Local days: one of them may have 25 hours.
      to: iso(startOfDay(fromMs, args.days)),
      ...(args.site === undefined ? {} : { site: args.site }),
    });
    if (args.json) {
      for (const node of calendar.nodes) face.printJson(node);
      return;
    }
    if (calendar.nodes.length === 0) {
      face.print('There is no node. "infrabed site add FILE" takes in those of an inventory.');
      return;
    }
    const nodes = calendar.nodes.map(({ node, state, bookings }) => ({
      name: node,
      state,
      bookings: bookings.map(({ start, end, busyUntil, ...booking }) => ({
        ...booking,
        startMs: Date.parse(start),
        endMs: Date.parse(end),
        busyUntilMs: Date.parse(busyUntil),
      })),
    }));
    const page = { fromMs, days: args.days, nowMs, width: face.columns };
    for (const line of calendarPage(nodes, page)) face.print(line);
  },
};
