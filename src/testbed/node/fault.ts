/** Faults of a node: machine-readable, kept apart from a person's hold, and cleared by a verified clean only. */
import { z } from 'zod';

/** Fields beside these are the fault's own: `step` of a clean, `differences` of hardware, `last` of failures in a row. */
export const nodeFaultSchema = z.looseObject({
  /** Stable, for programs; docs/nodes.md lists them. */
  code: z.string().min(1),
  /** One sentence. */
  message: z.string().min(1),
  /** When it was found. */
  at: z.number().optional(),
});

/** Machine-readable reason of a quarantine. */
export type NodeFault = z.output<typeof nodeFaultSchema>;

/** A person's hold. */
export const holdSchema = z.object({ by: z.string(), why: z.string(), at: z.number() });
export type Hold = z.output<typeof holdSchema>;

export function parseFault(stored: string | null): NodeFault | null {
  return stored === null ? null : nodeFaultSchema.parse(JSON.parse(stored));
}

export function parseHold(stored: string | null): Hold | null {
  return stored === null ? null : holdSchema.parse(JSON.parse(stored));
}
