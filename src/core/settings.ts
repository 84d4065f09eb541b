/** What the operator of a state folder has decided: settings.yaml, parsed, with a default for everything. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';
import { errnoOf, InfrabedError, messageOf } from './errors.js';

const seconds = z.number().int().nonnegative();

const limitSchema = z.strictObject({
  /** Nodes times hours that a user may hold or have reserved, from now on; null: no limit. */
  node_hours_ahead: z.number().positive().nullable().default(null),
  /** Reservations (not begun or running) at once; null: no limit. */
  leases: z.number().int().positive().nullable().default(null),
});

const settingsSchema = z.strictObject({
  lease: z
    .strictObject({
      /** After each lease its nodes stay taken for this long, to be cleaned. Not shorter than the grace period. */
      cleaning_gap_sec: seconds.default(600),
      /** A notice goes out this long before the end. */
      warning_sec: seconds.default(900),
      /** From the end to when what still runs is taken away by force. */
      grace_sec: seconds.default(300),
      /** Distance of the starts that `slots` offers. */
      slot_step_sec: seconds.min(1).default(1800),
      /** How long `cluster up` without a lease of its own keeps its nodes. */
      own_sec: seconds.min(60).default(8 * 3600),
      longest_sec: seconds.min(60).default(30 * 24 * 3600),
      /** How far ahead a lease may begin. */
      horizon_sec: seconds.min(60).default(365 * 24 * 3600),
    })
    .refine((lease) => lease.cleaning_gap_sec >= lease.grace_sec, {
      error: 'cleaning_gap_sec must not be shorter than grace_sec: nodes are cleaned within the gap',
    })
    .prefault({}),
  limits: z
    .strictObject({
      default: limitSchema.prefault({}),
      users: z.record(z.string(), limitSchema).default({}),
    })
    .prefault({}),
  /** A reservation with `--preempt` may displace reservations, not begun yet, of users with a lower number. */
  priority: z
    .strictObject({
      default: z.number().int().default(0),
      users: z.record(z.string(), z.number().int()).default({}),
    })
    .prefault({}),
  notices: z
    .strictObject({
      /** Program and arguments; the notice comes as JSON on its standard input. */
      hook: z.array(z.string().min(1)).min(1).nullable().default(null),
      webhook: z
        .url({ protocol: /^https?$/ })
        .nullable()
        .default(null),
    })
    .prefault({}),
  agents: z
    .strictObject({
      /** Folders whose programs users of a server may run as agents; an operator may run any. */
      folders: z.array(z.string().startsWith('/')).default(['/usr', '/opt']),
    })
    .prefault({}),
  health: z
    .strictObject({
      /** Idle nodes are probed about this often. 0: never. */
      interval_sec: seconds.default(3600),
      /** Each wait is lengthened or shortened by up to this share, so that probes do not come all at once. */
      jitter: z.number().min(0).max(0.9).default(0.2),
      /** This many failures in a row quarantine a node. */
      failures: z.number().int().min(1).default(3),
    })
    .prefault({}),
});

export type Settings = z.output<typeof settingsSchema>;

/** What holds where settings.yaml says nothing. */
export const defaultSettings: Settings = settingsSchema.parse({});

/**
 * Reads settings.yaml of a state folder; without one, the defaults.
 * @throws InfrabedError IB_SETTINGS naming file, key and what was expected.
 */
export async function loadSettings(stateDir: string): Promise<Settings> {
  const path = join(stateDir, 'settings.yaml');
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return defaultSettings;
    throw error;
  }
  return parseSettings(text, path);
}

export function parseSettings(text: string, path: string): Settings {
  let document: unknown;
  try {
    document = parse(text) as unknown;
  } catch (error) {
    throw wrong(path, messageOf(error), error);
  }
  const parsed = settingsSchema.safeParse(document ?? {});
  if (!parsed.success) throw wrong(path, z.prettifyError(parsed.error), parsed.error);
  return parsed.data;
}

function wrong(path: string, what: string, cause: unknown): InfrabedError {
  return new InfrabedError('IB_SETTINGS', `The settings ${path} are wrong: ${what}`, {
    hint: 'Every key and its default stands in docs/settings.md.',
    cause,
  });
}
