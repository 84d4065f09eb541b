/** How a client of the agent comes in: it proves the trial's key, its own login on the node is made, both are joined. */
import type { AuthContext, Client, Connection } from 'ssh2';
import { isInfrabedError, messageOf } from '../../core/errors.js';
import type { Journal } from '../../core/journal.js';
import type { Doorkeeper } from './authentication.js';
import type { AgentConnection } from './connection.js';
import type { RefusalReason } from './refusals.js';

/** As many as sshd's MaxAuthTries allows. */
const maxAttempts = 6;

export interface EntranceOptions {
  client: Connection;
  connection: AgentConnection;
  /** `SSH-2.0-...` of the client. */
  software: string;
  door: Doorkeeper;
  journal: Journal;
  /** Makes the login on the node; waits for its turn. */
  login: (signal: AbortSignal) => Promise<Client>;
  signal: AbortSignal;
  /** The key was proven. */
  onProven: () => void;
  fault: (error: unknown) => void;
}

/** Answers the client's requests for authentication from now on. */
export function openEntrance(options: EntranceOptions): void {
  let attempts = 0;
  let admitted = false;
  const refuse = (context: AuthContext, reason: RefusalReason | null, detail: string): void => {
    if (reason !== null) {
      attempts += 1;
      options.connection.refused(reason, { detail, client: options.software });
    }
    if (attempts >= maxAttempts) options.client.end();
    else context.reject(['publickey']);
  };
  options.client.on('authentication', (context) => {
    const verdict = options.door.judge(context);
    if (verdict.answer === 'refuse') {
      refuse(context, verdict.reason, verdict.detail);
    } else if (verdict.answer === 'ask') {
      context.accept();
    } else if (!admitted) {
      admitted = true;
      options.onProven();
      admit(options, context).catch((error: unknown) => {
        options.fault(error);
        options.client.end();
      });
    }
  });
}

async function admit(options: EntranceOptions, context: AuthContext): Promise<void> {
  const { connection, client, journal } = options;
  const fields = { connection: connection.connection, client: options.software };
  journal.record({ kind: 'connection.open', actor: 'agent', node: connection.node, payload: fields });
  const upstream = await login(options);
  if (options.signal.aborted) {
    if (!(upstream instanceof Error)) upstream.destroy();
    return;
  }
  client.once('ready', () => connection.join(upstream));
  context.accept();
}

async function login(options: EntranceOptions): Promise<Client | Error> {
  const { connection } = options;
  try {
    return await options.login(options.signal);
  } catch (error) {
    if (!options.signal.aborted) {
      options.journal.record({
        kind: 'connection.unreachable',
        actor: 'controller',
        node: connection.node,
        payload: {
          connection: connection.connection,
          code: isInfrabedError(error) ? error.code : null,
          message: messageOf(error),
        },
      });
    }
    return error instanceof Error ? error : new Error(messageOf(error));
  }
}
