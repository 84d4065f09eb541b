/** The site's Ed25519 key: made at first use, readable by its owner alone, and what seals are signed with. */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
  verify,
  type KeyObject,
} from 'node:crypto';
import { chmod, link, mkdir, open, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { diskError } from '../../core/disk.js';
import { errnoOf, InfrabedError, messageOf } from '../../core/errors.js';

export interface SiteKey {
  readonly privateKey: KeyObject;
  /** Raw Ed25519 public key, base64: what the seal carries. */
  readonly publicKey: string;
}

/** Where the private key lies; the public one lies beside it as site.pub, for those who verify elsewhere. */
export function siteKeyPath(stateDir: string): string {
  return join(stateDir, 'keys', 'site.key');
}

/**
 * Loads the key of a site, making it where there is none; safe with several processes at once.
 * @throws InfrabedError IB_STATE_DIR when it cannot be read or others may read it, IB_DISK_FULL.
 */
export async function loadSiteKey(stateDir: string): Promise<SiteKey> {
  const path = siteKeyPath(stateDir);
  const pem = (await readKey(path)) ?? (await makeKey(stateDir, path));
  try {
    return fromPem(pem);
  } catch (error) {
    throw new InfrabedError('IB_STATE_DIR', `${path} is not an Ed25519 private key: ${messageOf(error)}.`, {
      hint: 'Restore it from a copy; a new key cannot stand behind seals made with the old one.',
      cause: error,
    });
  }
}

/** The site's public key where the site has a key, else undefined: verifying makes no key. */
export async function sitePublicKey(stateDir: string): Promise<string | undefined> {
  const pem = await readKey(siteKeyPath(stateDir));
  return pem === undefined ? undefined : fromPem(pem).publicKey;
}

/**
 * A public key as people hand it on: site.pub (raw, base64) or PEM. Returns it raw, in base64.
 * @throws InfrabedError IB_USAGE when the file holds no Ed25519 public key.
 */
export async function readPublicKey(path: string): Promise<string> {
  try {
    const text = (await readFile(path, 'utf8')).trim();
    if (/^[A-Za-z0-9+/]{43}=$/.test(text)) return text;
    const key = createPublicKey(text);
    if (key.asymmetricKeyType !== 'ed25519') throw new Error(`it is ${String(key.asymmetricKeyType)}`);
    return rawPublicKey(key);
  } catch (error) {
    throw new InfrabedError('IB_USAGE', `${path} holds no Ed25519 public key: ${messageOf(error)}.`, {
      hint: 'Name the site.pub of the site that sealed the bundle (<state folder>/keys/site.pub).',
      cause: error,
    });
  }
}

function fromPem(pem: string): SiteKey {
  const privateKey = createPrivateKey(pem);
  if (privateKey.asymmetricKeyType !== 'ed25519')
    throw new Error(`it is ${String(privateKey.asymmetricKeyType)}`);
  return { privateKey, publicKey: rawPublicKey(createPublicKey(privateKey)) };
}

/** The 32 bytes of an Ed25519 public key: the `x` of its JWK (RFC 8037), in plain base64. */
function rawPublicKey(key: KeyObject): string {
  const { x } = key.export({ format: 'jwk' });
  return Buffer.from(x ?? '', 'base64url').toString('base64');
}

async function readKey(path: string): Promise<string | undefined> {
  try {
    const { mode } = await stat(path);
    if ((mode & 0o077) !== 0) {
      throw new InfrabedError('IB_STATE_DIR', `Others may read the site's private key ${path}.`, {
        hint: `Run "chmod 600 ${path}"; if it may have been read, seals made with it prove little.`,
      });
    }
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw diskError(error, `read the site's key ${path}`, path);
  }
}

async function makeKey(stateDir: string, path: string): Promise<string> {
  const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const temporary = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await mkdir(join(stateDir, 'keys'), { recursive: true, mode: 0o700 });
    await writeSynced(temporary, pem, 0o600);
    // A link, not a rename: when two processes make the first key at once, the first one stays.
    await link(temporary, path);
    await writeSynced(join(stateDir, 'keys', 'site.pub'), `${fromPem(pem).publicKey}\n`, 0o644);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw diskError(error, `make the site's key ${path}`, path);
  } finally {
    await rm(temporary, { force: true });
  }
  const kept = await readKey(path);
  if (kept === undefined)
    throw new InfrabedError('IB_STATE_DIR', `The site's key ${path} vanished as it was made.`);
  return kept;
}

async function writeSynced(path: string, content: string, mode: number): Promise<void> {
  const handle = await open(path, 'w', mode);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await chmod(path, mode);
}

/** Signs a text; base64. */
export function signText(key: SiteKey, text: string): string {
  return sign(null, Buffer.from(text), key.privateKey).toString('base64');
}

/** True if the signature (base64) over the text was made by the key whose raw public half is given (base64). */
export function signatureHolds(publicKey: string, text: string, signature: string): boolean {
  try {
    const x = Buffer.from(publicKey, 'base64').toString('base64url');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    return verify(null, Buffer.from(text), key, Buffer.from(signature, 'base64'));
  } catch {
    // Not a key at all: then nothing was signed by it.
    return false;
  }
}
