/** One SSH connection over a given byte stream, to a host whose key is known beforehand. */
import type { Duplex } from 'node:stream';
import ssh2 from 'ssh2';
import type { Client, ConnectConfig, ServerHostKeyAlgorithm } from 'ssh2';
import { deadline, throwIfAborted } from '../../core/clock.js';
import { InfrabedError, isInfrabedError, messageOf } from '../../core/errors.js';
import { log } from '../../core/log.js';

export interface ConnectOptions {
  /** Gives the byte stream to sshd; called once. */
  dial: (signal: AbortSignal) => Promise<Duplex>;
  /** `ssh-ed25519 AAAA...`, as in a known_hosts file or a .pub file; never learned on first use. */
  hostKey: string;
  username: string;
  /** Private key in OpenSSH or PEM format. */
  privateKey: string | Buffer;
  signal?: AbortSignal;
  /** From the dial to the end of the login. Default 20 000; a slow virtual machine needs patience, not retries. */
  timeoutMs?: number;
  /** From the dial to the first byte from the other side, where that shall end sooner than the whole. */
  answerTimeoutMs?: number;
  /** Interval of keep-alive messages; three unanswered ones end the connection. Default 10 000, 0 sends none. */
  keepAliveMs?: number;
  /** What the errors call the other side, e.g. the node's name. */
  name?: string;
}

const defaultTimeoutMs = 20_000;

/**
 * Opens a connection that is ready for channels. The caller ends it by `client.destroy()`: the polite `end()` waits for
 * the other side, and a node that has lost its power never answers.
 * Later failures arrive as the client's `error` and `close` events; an `error` that nobody listens to is logged.
 * @throws InfrabedError IB_SSH_HOST_KEY, IB_SSH_AUTH, IB_NODE_UNREACHABLE, IB_TIMEOUT or IB_CANCELLED.
 */
export async function connect(options: ConnectOptions): Promise<Client> {
  const name = options.name ?? 'the node';
  const known = parsePublicKey(options.hostKey);
  throwIfAborted(options.signal);
  const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
  const unanswered = new AbortController();
  const parents = options.signal === undefined ? [unanswered.signal] : [unanswered.signal, options.signal];
  const limit = deadline(timeoutMs, `Connecting to ${name} over SSH`, AbortSignal.any(parents));
  const answerTimer =
    options.answerTimeoutMs === undefined
      ? undefined
      : setTimeout(() => unanswered.abort(noAnswer(name)), options.answerTimeoutMs);
  let stream: Duplex | undefined;
  try {
    stream = await options.dial(limit.signal);
    return await login(stream, known, options, name, limit.signal, () => clearTimeout(answerTimer));
  } catch (error) {
    stream?.destroy();
    // The limit may end the dial in whatever way the backend reports it; its own reason says more.
    throwIfAborted(limit.signal);
    if (isInfrabedError(error)) throw error;
    throw new InfrabedError(
      'IB_NODE_UNREACHABLE',
      `${name} could not be reached over SSH: ${messageOf(error)}.`,
      {
        cause: error,
      },
    );
  } finally {
    clearTimeout(answerTimer);
    limit.clear();
  }
}

interface PublicKey {
  type: string;
  blob: Buffer;
}

/** @throws InfrabedError IB_USAGE for a text that is no public key. */
export function parsePublicKey(text: string): PublicKey {
  const [type, base64] = text.trim().split(/\s+/);
  if (type === undefined || base64 === undefined || !/^[A-Za-z0-9+/]+=*$/.test(base64)) {
    throw new InfrabedError('IB_USAGE', 'A public key reads "TYPE BASE64", as in a .pub file.');
  }
  return { type, blob: Buffer.from(base64, 'base64') };
}

/** Signature algorithms that go with a key type: offering only these makes the server show the key we know. */
function algorithmsFor(type: string): ServerHostKeyAlgorithm[] {
  return type === 'ssh-rsa' ? ['rsa-sha2-512', 'rsa-sha2-256'] : [type as ServerHostKeyAlgorithm];
}

/** ssh2 itself destroys only a socket that can still be written to, so not one on which `end()` was called before. */
class NodeClient extends ssh2.Client {
  constructor(private readonly stream: Duplex) {
    super();
  }

  override destroy(): this {
    this.stream.destroy();
    return this;
  }
}

function login(
  stream: Duplex,
  known: PublicKey,
  options: ConnectOptions,
  name: string,
  signal: AbortSignal,
  onFirstByte: () => void,
): Promise<Client> {
  const client = new NodeClient(stream);
  let shown: Buffer | undefined;
  const config: ConnectConfig = {
    sock: stream,
    username: options.username,
    privateKey: options.privateKey,
    authHandler: ['publickey'],
    algorithms: { serverHostKey: algorithmsFor(known.type) },
    hostVerifier: (key: Buffer) => {
      shown = key;
      return key.equals(known.blob);
    },
    // The deadline of connect() covers the dial too, so ssh2's own timer is off.
    readyTimeout: 0,
    keepaliveInterval: options.keepAliveMs ?? 10_000,
    keepaliveCountMax: 3,
  };
  return new Promise<Client>((resolve, reject) => {
    const fail = (error: unknown): void => {
      finish();
      stream.destroy();
      reject(loginError(error, known, shown, name));
    };
    const onAbort = (): void => fail(signal.reason);
    const onClose = (): void => fail(new Error('the connection was closed during the login'));
    const finish = (): void => {
      client.off('error', fail).off('close', onClose);
      signal.removeEventListener('abort', onAbort);
      // From now on an error without another listener must not end the controller.
      client.on('error', (error) => log.debug({ node: name, error: error.message }, 'ssh connection failed'));
    };
    client.once('close', () => stream.destroy());
    // An SSH connection has no half: a node that has ended its side (a reboot) is gone, and only then comes `close`.
    client.once('end', () => stream.end());
    client.on('error', fail).on('close', onClose);
    client.once('ready', () => {
      finish();
      resolve(client);
    });
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      throwIfAborted(signal);
      client.connect(config);
      // After connect(), so that ssh2 is already listening when the stream starts to flow.
      stream.once('data', onFirstByte);
    } catch (error) {
      fail(error);
    }
  });
}

function noAnswer(name: string): InfrabedError {
  return new InfrabedError('IB_NODE_UNREACHABLE', `Nothing answers where sshd of ${name} should.`, {
    details: { noAnswer: true },
  });
}

function loginError(error: unknown, known: PublicKey, shown: Buffer | undefined, name: string): Error {
  if (isInfrabedError(error)) return error;
  const message = messageOf(error);
  if ((shown && !shown.equals(known.blob)) || message.includes('no matching host key')) {
    return new InfrabedError('IB_SSH_HOST_KEY', `${name} shows another host key than the one it was given.`, {
      hint: 'Somebody changed the keys in /etc/ssh on the node, or another machine answers at its address.',
      cause: error,
      details: {
        expected: `${known.type} ${known.blob.toString('base64')}`,
        shown: shown?.toString('base64') ?? null,
      },
    });
  }
  const level = (error as { level?: unknown }).level;
  if (level === 'client-authentication' || message.startsWith('Cannot parse privateKey')) {
    return new InfrabedError('IB_SSH_AUTH', `${name} does not accept the key: ${message}.`, {
      hint: 'Look at authorized_keys and sshd_config on the node.',
      cause: error,
    });
  }
  return new InfrabedError('IB_NODE_UNREACHABLE', `${name} could not be reached over SSH: ${message}.`, {
    cause: error,
  });
}
