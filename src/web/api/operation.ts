/**
 * An operation is one thing that can be asked of infrabed: what it takes, what it gives, who may, and how it is done.
 * The command line on this machine, the HTTP server and its client are three callers of the same list.
 */
import type { z } from 'zod';
import type { Actor, Role } from '../../core/actor.js';
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { Settings } from '../../core/settings.js';
import type { Store } from '../../record/store/store.js';
import type { Backend } from '../../testbed/driver/driver.js';
import type { HostBackend } from '../../testbed/driver/index.js';
import type { TrialEnvironment } from '../../trial/run/trial.js';

/** What an operation works on. */
export interface Desk {
  store: Store;
  stateDir: string;
  settings: Settings;
  clock: Clock;
  /** Progress; a server sends it on to who asked. */
  io: IoHost;
  signal: AbortSignal;
  /** Makes containers where it makes something; finds and removes clusters of any backend. */
  backend: Backend;
  /** The same with another backend to make something. */
  backendNamed(name: HostBackend): Backend;
  checkers: TrialEnvironment['checkers'];
  /** Registers this process as a controller, once, for operations that act on nodes. */
  controller(): Promise<string>;
  /** What trials of this actor run in, their progress told to `io`; as this controller. */
  trials(actor: Actor, io: IoHost, backend: HostBackend): Promise<TrialEnvironment>;
}

export interface Operation<I, O> {
  /** Noun and verb: `lease.extend`. */
  readonly name: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** With parameters: `/v1/leases/:id/extend`. They, the query and the body together are the input. */
  readonly path: string;
  readonly summary: string;
  /** The least role that may ask at all; ownership is the handler's to check. */
  readonly role: Role;
  /**
   * An object of JSON-able values; parsing what was parsed once changes nothing. Unknown keys are refused. Text of a
   * query has become numbers, booleans and lists, as this schema wants them, before it is parsed (wire.ts).
   */
  readonly input: z.ZodType<I>;
  /** JSON-able too: it travels. */
  readonly output: z.ZodType<O>;
  /** True where it may take longer than a second: progress is sent while it goes on. */
  readonly slow?: boolean;
  /**
   * True where neither nodes nor leases are touched: a command on this machine then does not first deal with what dead
   * controllers left. What only looks (GET) never does.
   */
  readonly withoutRecovery?: boolean;
  /** @throws InfrabedError; its code reaches the caller whatever is between them. */
  handle(desk: Desk, input: I, actor: Actor): Promise<O>;
}

/** An operation of whatever types, as lists of them hold it. */
export type AnyOperation = Operation<unknown, unknown>;

/** Lets inference fill in the types of an operation. */
export function operation<I, O>(definition: Operation<I, O>): Operation<I, O> {
  return definition;
}
