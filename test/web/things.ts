/** Operations for tests: every kind of input, one that takes long, one that belongs to somebody, and two that break. */
import { once } from 'node:events';
import { z } from 'zod';
import { mayChange } from '../../src/core/actor.js';
import { throwIfAborted } from '../../src/core/clock.js';
import { InfrabedError } from '../../src/core/errors.js';
import { operation, type AnyOperation } from '../../src/web/api/operation.js';

/** Says back what it understood. */
export const echo = operation({
  name: 'thing.echo',
  method: 'GET',
  path: '/v1/things/:id',
  summary: 'Says back what it was asked',
  role: 'user',
  input: z.strictObject({
    id: z.string(),
    text: z.string().optional(),
    count: z.number().int().optional(),
    flag: z.boolean().default(false),
    tags: z.array(z.string()).default([]),
    sizes: z.array(z.number()).optional(),
  }),
  output: z.object({ input: z.record(z.string(), z.unknown()), actor: z.string() }),
  handle: (_desk, input, actor) => Promise.resolve({ input, actor: actor.name }),
});

export const change = operation({
  name: 'thing.change',
  method: 'POST',
  path: '/v1/things/:owner/change',
  summary: 'Changes what belongs to somebody',
  role: 'user',
  input: z.strictObject({ owner: z.string(), to: z.number().positive() }),
  output: z.object({ by: z.string(), to: z.number() }),
  handle(_desk, { owner, to }, actor) {
    if (!mayChange(actor, owner)) {
      throw new InfrabedError('IB_LEASE_CONFLICT', `That is ${owner}'s.`, {
        hint: 'Ask.',
        details: { owner },
      });
    }
    return Promise.resolve({ by: actor.name, to });
  },
});

/** What operations in hand have come to, for the test to look at. */
export const marks: string[] = [];

/** Tells that it began, and goes on until it is asked to end; then it takes two more steps, as a real one does. */
export const wait = operation({
  name: 'thing.wait',
  method: 'POST',
  path: '/v1/things/wait',
  summary: 'Waits until it is told to end',
  role: 'user',
  slow: true,
  input: z.strictObject({ until: z.enum(['aborted', 'at-once']) }),
  output: z.object({ waited: z.boolean() }),
  async handle({ io, signal }, { until }) {
    io.notify({ type: 'phase', scope: 'thing', phase: 'wait', state: 'begin' });
    io.notify({ type: 'progress', scope: 'thing', message: 'waiting', done: 1, total: 2 });
    io.notify({ type: 'info', message: `no token here: ib_${'x'.repeat(43)}` });
    if (until === 'at-once') return { waited: false };
    if (!signal.aborted) await once(signal, 'abort');
    marks.push(`asked to end: ${(signal.reason as Error).message}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
    marks.push('wound down');
    throwIfAborted(signal);
    return { waited: true };
  },
});

export const operatorsOnly = operation({
  name: 'thing.sweep',
  method: 'DELETE',
  path: '/v1/things',
  summary: 'For operators',
  role: 'operator',
  input: z.strictObject({ all: z.boolean() }),
  output: z.object({ swept: z.boolean() }),
  handle: (_desk, { all }) => Promise.resolve({ swept: all }),
});

export const defect = operation({
  name: 'thing.defect',
  method: 'POST',
  path: '/v1/things/defect',
  summary: 'Breaks',
  role: 'user',
  input: z.strictObject({ how: z.enum(['throws', 'other-shape']) }),
  output: z.object({ fine: z.boolean() }),
  handle(_desk, { how }) {
    if (how === 'throws') throw new TypeError(`inner matters of ib_${'y'.repeat(43)}`);
    return Promise.resolve({ fine: 'no boolean' } as unknown as { fine: boolean });
  },
});

export const things: readonly AnyOperation[] = [echo, change, wait, operatorsOnly, defect];
