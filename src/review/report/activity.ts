/** What the ledger tells of a trial, in the form in which a page shows it: phases, events, the agent's commands. */
import { join } from 'node:path';
import { z } from 'zod';
import { messageOf } from '../../core/errors.js';
import { readLedger } from '../../record/ledger/reader.js';
import type { LedgerRecord } from '../../record/ledger/record.js';
import { bundleFiles } from '../../record/bundle/schema.js';
import { Budget, excerptOf, storedObjectSchema, type Excerpt, type Stored } from './excerpt.js';

export interface Span {
  name: string;
  beginAt: number;
  /** null when it did not end. */
  endAt: number | null;
}

export interface Event {
  at: number;
  actor: string;
  node: string | null;
  kind: string;
  detail: string;
}

export interface AgentCommand {
  session: string;
  at: number;
  node: string | null;
  kind: string;
  /** null for a shell. */
  command: string | null;
  /** How it ended: `0`, `1`, `SIGKILL`, or null while that is not known. */
  ended: string | null;
  durationMs: number | null;
  streams: { name: string; excerpt: Excerpt }[];
  /** Files that an sftp session touched, one sentence each. */
  files: string[];
}

export interface Activity {
  phases: Span[];
  events: Event[];
  commands: AgentCommand[];
  /** Of everything that is not shown, one sentence each. */
  notes: string[];
}

const maxCommands = 1000;
const maxEvents = 400;
const maxFiles = 200;
const maxDetail = 300;
const excerptBytes = 3 * 1024 * 1024;

const text = z.string().catch('');
const numberOrNull = z.number().nullable().catch(null);
const stringOrNull = z.string().nullable().catch(null);

/** Reads the ledger of a bundle; damage ends the reading and becomes a note, since a report must be able to say so. */
export async function readActivity(bundleDir: string): Promise<Activity> {
  const collector = new Collector(join(bundleDir, bundleFiles.objects));
  try {
    for await (const record of readLedger(join(bundleDir, bundleFiles.ledger))) await collector.take(record);
  } catch (error) {
    collector.notes.push(`The ledger could be read only so far: ${messageOf(error)}`);
  }
  return collector.finish();
}

class Collector {
  readonly notes: string[] = [];
  private readonly phases: Span[] = [];
  private readonly events: Event[] = [];
  private readonly commands = new Map<string, AgentCommand>();
  private readonly budget = new Budget(excerptBytes);
  private eventCount = 0;
  private commandCount = 0;

  constructor(private readonly objectsDir: string) {}

  async take(record: LedgerRecord): Promise<void> {
    const { kind } = record;
    if (kind === 'phase.begin' || kind === 'phase.end') this.phase(record);
    else if (kind === 'session.exit') await this.exit(record);
    else if (/^session\.(exec|shell|subsystem)$/.test(kind)) this.begin(record);
    else if (kind.startsWith('sftp.')) await this.file(record);
    // The controller's own commands are many; they stay in the ledger.
    else if (!kind.startsWith('node.exec')) this.event(record);
  }

  private phase({ kind, at, payload }: LedgerRecord): void {
    const name = text.parse(payload['phase']);
    if (kind === 'phase.begin') this.phases.push({ name, beginAt: at, endAt: null });
    const open = this.phases.findLast((span) => span.name === name);
    if (kind === 'phase.end' && open !== undefined) open.endAt = at;
  }

  private begin({ kind, at, node, payload }: LedgerRecord): void {
    this.commandCount += 1;
    if (this.commands.size >= maxCommands) return;
    const session = text.parse(payload['session']);
    this.commands.set(session, {
      session,
      at,
      node,
      kind: kind.slice('session.'.length),
      command: stringOrNull.parse(payload['command']),
      ended: null,
      durationMs: null,
      streams: [],
      files: [],
    });
  }

  private async exit({ payload }: LedgerRecord): Promise<void> {
    const command = this.commands.get(text.parse(payload['session']));
    if (command === undefined) return;
    const exitCode = numberOrNull.parse(payload['exitCode']);
    const endedBy = text.parse(payload['endedBy']);
    command.ended =
      exitCode === null
        ? (stringOrNull.parse(payload['signal']) ?? `ended by ${endedBy || 'nobody known'}`)
        : String(exitCode);
    command.durationMs = numberOrNull.parse(payload['durationMs']);
    for (const name of ['stdin', 'stdout', 'stderr']) {
      const stored = storedObjectSchema.safeParse(payload[name]);
      if (stored.success && stored.data.sizeBytes > 0) await this.stream(command, name, stored.data);
    }
  }

  private async stream(command: AgentCommand, name: string, stored: Stored): Promise<void> {
    command.streams.push({ name, excerpt: await excerptOf(this.objectsDir, stored, this.budget) });
  }

  private async file({ kind, payload }: LedgerRecord): Promise<void> {
    const command = this.commands.get(text.parse(payload['session']));
    if (command === undefined || command.files.length > maxFiles) return;
    const full = command.files.length === maxFiles;
    const rest = { ...payload, session: undefined, content: undefined };
    command.files.push(full ? 'and more, in the ledger' : `${kind} ${detailOf(rest)}`);
    const content = storedObjectSchema.safeParse(payload['content']);
    if (content.success && !full) {
      await this.stream(command, `written to ${text.parse(payload['path'])}`, content.data);
    }
  }

  private event({ at, actor, node, kind, payload }: LedgerRecord): void {
    this.eventCount += 1;
    if (this.events.length >= maxEvents) return;
    const detail = kind === 'bundle.files' ? 'the hashes of all files of the bundle' : detailOf(payload);
    this.events.push({ at, actor, node, kind, detail });
  }

  finish(): Activity {
    const { notes, phases, events, commandCount, eventCount } = this;
    if (commandCount > maxCommands)
      notes.push(
        `Of ${String(commandCount)} sessions the first ${String(maxCommands)} are shown; the ledger has all.`,
      );
    if (eventCount > maxEvents)
      notes.push(
        `Of ${String(eventCount)} events the first ${String(maxEvents)} are shown; the ledger has all.`,
      );
    return { phases, events, commands: [...this.commands.values()], notes };
  }
}

function detailOf(payload: Record<string, unknown>): string {
  const shown = Object.entries(payload).filter(([, value]) => value !== undefined);
  const parts = shown.map(
    ([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  const whole = parts.join(' ');
  return whole.length > maxDetail ? `${whole.slice(0, maxDetail)}...` : whole;
}
