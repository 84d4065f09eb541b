/** The folder ansible-runner works in: inventory, key, known hosts and settings, made anew for each run. */
import { chmod, copyFile, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, errnoOf } from '../../core/errors.js';
import type { ProvisionNode } from './provision.js';

export interface Workspace {
  /** The runner's private data directory. */
  dir: string;
  /** Takes the key (and all else) away. */
  remove(): Promise<void>;
}

export interface WorkspaceContent {
  nodes: readonly ProvisionNode[];
  playbook: string;
  controllerKey: string;
  variables: Readonly<Record<string, unknown>>;
}

/** Names of the layers that have a playbook. */
export async function knownLayers(playbooksDir: string): Promise<string[]> {
  const names = await readdir(playbooksDir);
  return names
    .filter((name) => name.endsWith('.yml'))
    .map((name) => name.slice(0, -'.yml'.length))
    .sort();
}

export async function makeWorkspace(dir: string, content: WorkspaceContent): Promise<Workspace> {
  try {
    await rm(dir, { recursive: true, force: true });
    await mkdir(join(dir, 'inventory'), { recursive: true, mode: 0o700 });
    await mkdir(join(dir, 'project'));
    await mkdir(join(dir, 'env'));
    const key = join(dir, 'controller.key');
    await writeFile(key, content.controllerKey.trimEnd() + '\n', { mode: 0o600 });
    await chmod(key, 0o600);
    const known = join(dir, 'known_hosts');
    await writeFile(known, content.nodes.map((node) => `${node.address} ${node.hostKey}\n`).join(''));
    const inventory = inventoryOf(content.nodes, key, known, content.variables);
    await writeFile(join(dir, 'inventory', 'hosts.json'), JSON.stringify(inventory, null, 1));
    await copyFile(content.playbook, join(dir, 'project', 'play.yml'));
    // Empty: a configuration of this machine's own must not change what the playbooks do.
    await writeFile(join(dir, 'ansible.cfg'), '');
  } catch (error) {
    const code = errnoOf(error) === 'ENOSPC' ? 'IB_DISK_FULL' : 'IB_PROVISION';
    throw new InfrabedError(code, `The folder for Ansible, ${dir}, could not be made.`, { cause: error });
  }
  return { dir, remove: () => rm(dir, { recursive: true, force: true }) };
}

/** Every node under `all`, and a group for each role. */
export function inventoryOf(
  nodes: readonly ProvisionNode[],
  keyFile: string,
  knownHosts: string,
  variables: Readonly<Record<string, unknown>>,
): object {
  const roles = [...new Set(nodes.flatMap((node) => node.roles))].sort();
  return {
    all: {
      hosts: Object.fromEntries(nodes.map((node) => [node.name, { ansible_host: node.address }])),
      vars: {
        ansible_user: 'root',
        ansible_python_interpreter: '/usr/bin/python3',
        ansible_ssh_private_key_file: keyFile,
        // The default of 60 s for a persistent connection would outlive the cluster; one login a task is fast here.
        ansible_ssh_args: '-F none -o ControlMaster=no -o IPQoS=none',
        ansible_ssh_common_args: [
          `-o UserKnownHostsFile=${knownHosts}`,
          '-o GlobalKnownHostsFile=/dev/null',
          '-o StrictHostKeyChecking=yes',
          '-o IdentitiesOnly=yes',
          // An emulated machine on a busy computer takes its time to greet.
          '-o ConnectTimeout=60',
        ].join(' '),
        ...variables,
      },
      children: Object.fromEntries(
        roles.map((role) => [
          role.replaceAll('-', '_'),
          {
            hosts: Object.fromEntries(
              nodes.filter((node) => node.roles.includes(role)).map((node) => [node.name, {}]),
            ),
          },
        ]),
      ),
    },
  };
}
