/** Makes ed25519 keys in OpenSSH's own format, without starting a program. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';

export interface SshKeyPair {
  /** `-----BEGIN OPENSSH PRIVATE KEY-----...`, with a newline at its end. */
  privateKey: string;
  /** `ssh-ed25519 AAAA... comment`, without a newline. */
  publicKey: string;
}

const text = (value: string | Buffer): Buffer => {
  const body = Buffer.from(value as string);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
};

/** The format is openssh-portable's PROTOCOL.key. */
export function generateSshKey(comment: string): SshKeyPair {
  const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const publicBytes = Buffer.from(jwk.x ?? '', 'base64url');
  const secret = Buffer.from(jwk.d ?? '', 'base64url');
  const publicBlob = Buffer.concat([text('ssh-ed25519'), text(publicBytes)]);
  const check = randomBytes(4);
  const inner = Buffer.concat([
    check,
    check,
    text('ssh-ed25519'),
    text(publicBytes),
    text(Buffer.concat([secret, publicBytes])),
    text(comment),
  ]);
  // Padded with 1, 2, 3, ... to the block size of the (absent) cipher.
  const padding = Buffer.from([1, 2, 3, 4, 5, 6, 7]).subarray(0, (8 - (inner.length % 8)) % 8);
  const count = Buffer.alloc(4);
  count.writeUInt32BE(1);
  const blob = Buffer.concat([
    Buffer.from('openssh-key-v1\0'),
    text('none'),
    text('none'),
    text(''),
    count,
    text(publicBlob),
    text(Buffer.concat([inner, padding])),
  ]);
  const lines = blob.toString('base64').match(/.{1,70}/g) ?? [];
  return {
    privateKey: `-----BEGIN OPENSSH PRIVATE KEY-----\n${lines.join('\n')}\n-----END OPENSSH PRIVATE KEY-----\n`,
    publicKey: `ssh-ed25519 ${publicBlob.toString('base64')} ${comment}`,
  };
}
