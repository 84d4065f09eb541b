/** What is read back of a node that was booted from the bare image, before it counts as clean. */
import { InfrabedError } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import type { OwnedCluster } from '../cluster/create.js';
import type { CleanEvidence } from '../driver/driver.js';
import { destroyedProof, type CleanProof } from '../node/clean-proof.js';

/** Where people and programs leave data; a bare image has nothing in any of them. */
export const dataAreas = ['/home', '/srv', '/mnt', '/media', '/opt', '/var/crash', '/var/mail', '/var/local'];

export interface BootedNode {
  imageHash: string;
  generation: number;
  bootId: string;
  areas: { path: string; state: 'absent' | 'empty' }[];
  release: string;
}

/**
 * Reads identity and data areas of the one node of a cluster that has just booted.
 * @throws InfrabedError IB_NODE_FAILED naming what is not as it has to be, and as the cluster's functions.
 */
export async function readBooted(
  { cluster, driverCluster }: OwnedCluster,
  node: string,
  signal?: AbortSignal,
): Promise<BootedNode> {
  // A fresh session accepts only the host key of this generation, so that the node itself answers, not an older one.
  const bootId = await cluster.bootId(node, signal);
  const testimony = await driverCluster.nodes.find(({ name }) => name === node)?.witness?.testify(signal);
  const seen = testimony?.bootId ?? bootId;
  if (seen !== bootId) {
    throw failed(`${node} says that its boot is ${bootId}, and from outside it is ${seen}.`);
  }
  const areas = await readAreas(cluster, node);
  const { generation, imageHash } = driverCluster;
  return { imageHash, generation, bootId, areas, release: await release(cluster, node) };
}

/** One look at all of them: `find` prints each that is there, and what is in it, one level deep. */
async function readAreas(cluster: OwnedCluster['cluster'], node: string): Promise<BootedNode['areas']> {
  const { exitCode, stdout, stderr } = await cluster.setUp(node, {
    argv: ['find', '-H', ...dataAreas, '-maxdepth', '1', '-printf', '%d %p\n'],
    env: { LC_ALL: 'C' },
  });
  const lines = stdout.split('\n').filter((line) => line !== '');
  const content = lines.find((line) => line.startsWith('1 '));
  if (content !== undefined)
    throw failed(`${content.slice(2)} is there on ${node}, which has just been made.`);
  const areas = dataAreas.map((path): BootedNode['areas'][number] => ({
    path,
    state: lines.includes(`0 ${path}`) ? 'empty' : 'absent',
  }));
  // Only an area that find itself says does not exist is absent; whatever else it complains of is not read.
  const complaints = stderr.split('\n').filter((line) => line !== '');
  const isMissing = (path: string): boolean =>
    complaints.includes(`find: '${path}': No such file or directory`);
  const absent = areas.filter(({ state }) => state === 'absent');
  if (
    exitCode === (absent.length === 0 ? 0 : 1) &&
    complaints.length === absent.length &&
    absent.every(({ path }) => isMissing(path))
  )
    return areas;
  throw failed(`The data areas of ${node} cannot be read: ${lastLines(stderr, 2) || 'find said nothing'}`);
}

async function release(cluster: OwnedCluster['cluster'], node: string): Promise<string> {
  const file = await cluster.read(node, '/usr/lib/os-release');
  const name = file.type === 'file' ? /^PRETTY_NAME="?([^"\n]+)/m.exec(file.content)?.[1] : undefined;
  if (name !== undefined) return name;
  throw failed(`/usr/lib/os-release of ${node} does not tell its operating system.`);
}

function failed(sentence: string): InfrabedError {
  return new InfrabedError('IB_NODE_FAILED', sentence);
}

/**
 * The proof of a boot that was read back, after whose end nothing of it was found.
 * @throws InfrabedError IB_NODE_FAILED when something is left of it, or the backend knows of another image or generation.
 */
export function verifiedProof(booted: BootedNode, evidence: CleanEvidence): CleanProof {
  const gone = destroyedProof(evidence, booted.generation);
  if (gone.method !== 'container-destroyed' && gone.method !== 'vm-destroyed')
    throw failed('There is no proof that the node is gone.');
  const { imageHash: hash, generation, bootId, areas, release } = booted;
  if (gone.hostKeyGeneration !== generation || (gone.image.hash ?? hash) !== hash) {
    throw failed(`What was removed is not what was booted: another image or generation.`);
  }
  return {
    method: 'verified-boot',
    image: { hash, known: 'backend' },
    hostKeyGeneration: generation,
    bootId: { value: bootId },
    dataAreas: [...areas, ...gone.dataAreas],
    bmc: null,
    readBack: [
      `A fresh session with the host key of the generation ${String(generation)} gave the boot_id.`,
      `It runs ${release}.`,
      ...gone.readBack,
    ],
  };
}
