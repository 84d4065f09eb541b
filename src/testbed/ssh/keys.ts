/** Ed25519 key pairs in OpenSSH's format: host keys, the controller's key, the keys of a trial. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { redactor } from '../../core/log.js';

export interface KeyPair {
  /** `-----BEGIN OPENSSH PRIVATE KEY-----...`, with a final newline. */
  privateKey: string;
  /** `ssh-ed25519 AAAA... comment`, one line without newline. */
  publicKey: string;
}

/** A string of the SSH wire format: its length, then its bytes. */
function field(value: string | Buffer): Buffer {
  const body = typeof value === 'string' ? Buffer.from(value) : value;
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
}

/**
 * A new key pair; `comment` stands behind the public key. The format is openssh-portable's PROTOCOL.key.
 * Not ssh2's generator: about one in three hundred of its ed25519 keys lacks a leading zero byte and is malformed.
 */
export function generateKeyPair(comment: string): KeyPair {
  const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const publicBytes = Buffer.from(jwk.x ?? '', 'base64url');
  const secret = Buffer.from(jwk.d ?? '', 'base64url');
  const publicBlob = Buffer.concat([field('ssh-ed25519'), field(publicBytes)]);
  const check = randomBytes(4);
  const inner = Buffer.concat([
    check,
    check,
    field('ssh-ed25519'),
    field(publicBytes),
    field(Buffer.concat([secret, publicBytes])),
    field(comment),
  ]);
  // Padded with 1, 2, 3, ... to the block size of the (absent) cipher.
  const padding = Buffer.from([1, 2, 3, 4, 5, 6, 7]).subarray(0, (8 - (inner.length % 8)) % 8);
  const count = Buffer.alloc(4);
  count.writeUInt32BE(1);
  const blob = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    field('none'),
    field('none'),
    field(''),
    count,
    field(publicBlob),
    field(Buffer.concat([inner, padding])),
  ]);
  const lines = blob.toString('base64').match(/.{1,70}/g) ?? [];
  // From now on no line with secret bytes leaves in a record; the first holds the public part alone.
  for (const line of lines.slice(1)) redactor.add(line);
  return {
    privateKey: `-----BEGIN OPENSSH PRIVATE KEY-----\n${lines.join('\n')}\n-----END OPENSSH PRIVATE KEY-----\n`,
    publicKey: `ssh-ed25519 ${publicBlob.toString('base64')} ${comment}`,
  };
}
