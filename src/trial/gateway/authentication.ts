/** Who may come in: the holder of the trial's key, as root, until the key is revoked. */
import { createHash } from 'node:crypto';
import ssh2, { type AuthContext, type ParsedKey } from 'ssh2';
import { InfrabedError } from '../../core/errors.js';
import type { RefusalReason } from './refusals.js';

/** `ask`: the client may go on (it was told which key would do); `admit`: it proved that it holds the key. */
export type Verdict =
  { answer: 'ask' | 'admit' } | { answer: 'refuse'; reason: RefusalReason | null; detail: string };

export class Doorkeeper {
  private readonly key: ParsedKey;
  private readonly blob: Buffer;
  private revoked = false;

  /** @throws InfrabedError IB_USAGE for a text that is no public key. */
  constructor(publicKey: string) {
    const parsed = ssh2.utils.parseKey(publicKey);
    if (parsed instanceof Error) {
      throw new InfrabedError('IB_USAGE', `The agent's public key cannot be read: ${parsed.message}.`);
    }
    this.key = parsed;
    this.blob = parsed.getPublicSSH();
  }

  get fingerprint(): string {
    return fingerprint(this.blob);
  }

  revoke(): void {
    this.revoked = true;
  }

  judge(context: AuthContext): Verdict {
    // The first request of OpenSSH asks with no method at all which methods there are.
    if (context.method === 'none') return { answer: 'refuse', reason: null, detail: '' };
    if (context.method !== 'publickey') {
      return { answer: 'refuse', reason: 'unsupported-authentication', detail: context.method };
    }
    const shown = fingerprint(context.key.data);
    if (this.revoked) return { answer: 'refuse', reason: 'closed', detail: shown };
    if (!this.blob.equals(context.key.data))
      return { answer: 'refuse', reason: 'unknown-key', detail: shown };
    if (context.username !== 'root')
      return { answer: 'refuse', reason: 'unknown-user', detail: context.username };
    if (context.signature === undefined || context.blob === undefined) return { answer: 'ask' };
    // Its type says boolean, but what cannot be verified comes back as an Error, which is truthy.
    const proven: unknown = this.key.verify(context.blob, context.signature, context.hashAlgo);
    return proven === true
      ? { answer: 'admit' }
      : { answer: 'refuse', reason: 'unknown-key', detail: `${shown}, badly signed` };
  }
}

/** As ssh-keygen -l shows it. */
export function fingerprint(blob: Uint8Array): string {
  return `SHA256:${createHash('sha256').update(blob).digest('base64').replace(/=+$/, '')}`;
}
