/** Files with which OpenSSH's own programs reach the nodes of a cluster as root, from any process of the same user. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { shellQuote } from '../../core/exec.js';
import type { DriverCluster } from '../driver/driver.js';
import { controllerKeyPath, keyFolder } from './create.js';

/** Writes ssh_config and known_hosts beside the cluster's key. Returns the path of ssh_config. */
export async function writeSshConfig(stateDir: string, driverCluster: DriverCluster): Promise<string> {
  const folder = keyFolder(stateDir, driverCluster.id);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const knownHosts = join(folder, 'known_hosts');
  const config = join(folder, 'ssh_config');
  const key = controllerKeyPath(stateDir, driverCluster.id);
  await writeFile(knownHosts, driverCluster.nodes.map((node) => `${node.name} ${node.hostKey}\n`).join(''), {
    mode: 0o600,
  });
  await writeFile(config, sshConfig(driverCluster, { key, knownHosts }), { mode: 0o600 });
  return config;
}

/** The text of an ssh_config: host keys are known, nothing is learned, asked or taken from an agent. */
export function sshConfig(
  driverCluster: Pick<DriverCluster, 'nodes' | 'networkCommand'>,
  paths: { key: string; knownHosts: string },
): string {
  const hosts = driverCluster.nodes.map((node) => {
    const proxy = driverCluster.networkCommand(['socat', '-', `TCP:${node.address}:22,nodelay`]);
    return [
      `Host ${node.name}`,
      // ssh expands % in a ProxyCommand (ssh_config(5), TOKENS).
      `  ProxyCommand ${proxy.map((word) => shellQuote(word).replaceAll('%', '%%')).join(' ')}`,
    ].join('\n');
  });
  const common = [
    'Host *',
    '  User root',
    `  IdentityFile "${paths.key}"`,
    '  IdentitiesOnly yes',
    '  IdentityAgent none',
    `  UserKnownHostsFile "${paths.knownHosts}"`,
    '  GlobalKnownHostsFile /dev/null',
    '  StrictHostKeyChecking yes',
    '  UpdateHostKeys no',
    '  BatchMode yes',
    '  LogLevel ERROR',
  ].join('\n');
  return `${[...hosts, common].join('\n')}\n`;
}
