/** A fresh node's own files: what makes this node different from the others, in its upper layer (make_cluster.py). */
import { randomBytes } from 'node:crypto';
import { bmcAddress, bridgeAddress, prefixLength } from './network.js';
import type { KeyPair } from '../../ssh/keys.js';

interface Entry {
  path: string;
  mode: number;
  /** Absent: a folder. */
  content?: string;
}

/** What other nodes know a node by. */
interface Addressed {
  name: string;
  address: string;
}

/** The files and folders of a node's identity, parents first. */
export function identity(
  cluster: { nodes: readonly Addressed[] },
  node: Addressed,
  hostKey: KeyPair,
  authorizedKeys: readonly string[],
): Entry[] {
  const hosts = cluster.nodes.flatMap((other) => [
    `${other.address}\t${other.name}`,
    `${bmcAddress(other.address)}\t${other.name}-bmc`,
  ]);
  const network = [
    '[Match]',
    'Name=eth0',
    '',
    '[Network]',
    `Address=${node.address}/${String(prefixLength)}`,
    `Gateway=${bridgeAddress}`,
    'LinkLocalAddressing=no',
    'IPv6AcceptRA=no',
  ];
  return [
    { path: 'etc', mode: 0o755 },
    { path: 'etc/ssh', mode: 0o755 },
    { path: 'etc/ssh/ssh_host_ed25519_key', mode: 0o600, content: hostKey.privateKey },
    { path: 'etc/ssh/ssh_host_ed25519_key.pub', mode: 0o644, content: `${hostKey.publicKey}\n` },
    { path: 'etc/hostname', mode: 0o644, content: `${node.name}\n` },
    { path: 'etc/hosts', mode: 0o644, content: `127.0.0.1\tlocalhost\n${hosts.join('\n')}\n` },
    { path: 'etc/machine-id', mode: 0o444, content: `${randomBytes(16).toString('hex')}\n` },
    { path: 'etc/systemd', mode: 0o755 },
    { path: 'etc/systemd/network', mode: 0o755 },
    { path: 'etc/systemd/network/10-eth0.network', mode: 0o644, content: `${network.join('\n')}\n` },
    { path: 'root', mode: 0o700 },
    { path: 'root/.ssh', mode: 0o700 },
    { path: 'root/.ssh/authorized_keys', mode: 0o600, content: `${authorizedKeys.join('\n')}\n` },
  ];
}
