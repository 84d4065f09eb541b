/** One node, and its history, as lines for a person. */
import type { z } from 'zod';
import { printable } from '../core/printable.js';
import type { nodeHistoryEvents, nodeShow } from '../web/api/nodes.js';
import { formatShort, formatTime, zoneName } from './times.js';

type NodeDetails = z.output<(typeof nodeShow)['output']>;
type NodeEvent = z.output<(typeof nodeHistoryEvents)['output']>['events'][number];

export function nodeLines(node: NodeDetails): string[] {
  const field = (name: string, value: string): string => `${name.padEnd(12)} ${value}`;
  const time = (text: string): string => formatTime(Date.parse(text));
  const { fault, hold, nextBooking, lastClean } = node;
  return [
    field('node', `${node.node}${node.retired ? ' (retired: no longer in its inventory)' : ''}`),
    field('state', `${node.state} since ${time(node.since)}`),
    ...(fault === null ? [] : [field('fault', printable(`${fault.code}: ${fault.message}`))]),
    ...(hold === null
      ? []
      : [field('hold', printable(`by ${hold.by} at ${time(hold.at)}: ${hold.why}${pending(node)}`))]),
    ...(node.lease === null ? [] : [field('lease', node.lease)]),
    field('next lease', nextBooking === null ? '-' : `${nextBooking.lease} from ${time(nextBooking.start)}`),
    field('last clean', lastClean === null ? 'never' : `${lastClean.method} at ${time(lastClean.at)}`),
    ...proofLines(lastClean?.proof ?? {}).map((line) => field('', line)),
    ...(node.failures === 0 ? [] : [field('failures', `${String(node.failures)} in a row`)]),
    field('backend', node.backend),
    field('tags', node.tags.join(' ') || '-'),
    ...specLines(node.spec).map(([name, value]) => field(name, value)),
  ];
}

function pending({ state }: NodeDetails): string {
  return state === 'maintenance' ? '' : ' (when its lease gives it back)';
}

/** What was read back says it in sentences; the rest stands in --json. */
function proofLines(proof: Record<string, unknown>): string[] {
  const said = proof['readBack'];
  return Array.isArray(said) ? said.map((sentence) => printable(String(sentence))) : [];
}

function specLines(spec: Record<string, unknown>): [string, string][] {
  const shown = new Set(['name', 'backend', 'tags']);
  return Object.entries(spec)
    .filter(([key]) => !shown.has(key))
    .map(([key, value]) => [key, printable(specText(value))]);
}

function specText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value.join(' ');
  return JSON.stringify(value);
}

/** One line an event: when, what, by whom, and what is worth knowing. */
export function historyLines(events: readonly NodeEvent[], nowMs: number): string[] {
  const rows = events.map((event) => [
    formatShort(Date.parse(event.at), nowMs),
    event.kind.replace(/^node\./, ''),
    printable(event.actor),
    printable(remark(event)),
  ]);
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  return [
    `Local time (${zoneName()}).`,
    ...rows.map((row) =>
      row
        .map((text, column) => text.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    ),
  ];
}

function remark({ detail, lease, clean }: NodeEvent): string {
  const fault = detail['fault'];
  const why = detail['why'];
  return [
    typeof fault === 'object' && fault !== null && 'code' in fault ? String(fault.code) : '',
    typeof why === 'string' ? why : '',
    lease === null ? '' : `${lease.id} (${lease.owner}: ${lease.purpose})`,
    clean === null ? '' : clean.method,
  ]
    .filter((text) => text !== '')
    .join('; ');
}
