/** Ed25519 key pairs in OpenSSH's format: host keys, the controller's key, the keys of a trial. */
import ssh2 from 'ssh2';

export interface KeyPair {
  /** `-----BEGIN OPENSSH PRIVATE KEY-----...`, with a final newline. */
  privateKey: string;
  /** `ssh-ed25519 AAAA... comment`, one line without newline. */
  publicKey: string;
}

/** A new key pair; `comment` stands behind the public key. */
export function generateKeyPair(comment: string): KeyPair {
  const pair = ssh2.utils.generateKeyPairSync('ed25519', { comment });
  return { privateKey: withNewline(pair.private), publicKey: pair.public.trim() };
}

function withNewline(text: string): string {
  return text.endsWith('\n') ? text : `${text}\n`;
}
