// A cluster from request to SSH-ready, beside the bare systemd-nspawn loop for the same nodes, in one run, as a ratio.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../src/core/exec.js';
import { silentHost } from '../src/core/io.js';
import { nullJournal } from '../src/core/journal.js';
import { stateDir } from '../src/core/paths.js';
import {
  createContainerBackend,
  dialThrough,
  ImageCache,
  imageCacheDir,
} from '../src/testbed/driver/container/index.js';
import { generateKeyPair } from '../src/testbed/ssh/keys.js';

const rounds = Number(process.env['INFRABED_BENCH_ROUNDS'] ?? 5);
const nodeCount = 3;
const target = 1.3;

process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const folder = await mkdtemp(join(tmpdir(), 'infrabed-bench-'));
const state = join(folder, 'state');
await mkdir(state);
const key = generateKeyPair('bench');
const keyFile = join(folder, 'key');
await writeFile(keyFile, key.privateKey, { mode: 0o600 });
await writeFile(`${keyFile}.pub`, `${key.publicKey}\n`);
const image = await new ImageCache(imageCacheDir(state)).prepare(['os'], silentHost);
const backend = createContainerBackend({ stateDir: state });

/** Ends when every node has let us log in and run `true`: the same prober for both. */
async function allAnswer(netnsPath: string): Promise<void> {
  await Promise.all(
    Array.from({ length: nodeCount }, (_value, index) => answers(netnsPath, `10.77.0.${String(11 + index)}`)),
  );
}

async function answers(netnsPath: string, address: string): Promise<void> {
  for (;;) {
    try {
      (await dialThrough(netnsPath, address, 22)).destroy();
      break;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  const options = [
    'StrictHostKeyChecking=no',
    'UserKnownHostsFile=/dev/null',
    'LogLevel=ERROR',
    'BatchMode=yes',
  ];
  const ssh = [
    'ssh',
    '-i',
    keyFile,
    ...options.flatMap((option) => ['-o', option]),
    `root@${address}`,
    'true',
  ];
  for (;;) {
    const { exitCode } = await run('nsenter', [`--net=${netnsPath}`, ...ssh], { allowFailure: true });
    if (exitCode === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function ours(round: number): Promise<number> {
  const startMs = performance.now();
  const nodes = Array.from({ length: nodeCount }, (_value, index) => `node${String(index)}`);
  const spec = {
    id: `bench${String(round)}`,
    generation: 1,
    nodes,
    layers: ['os'],
    authorizedKeys: [key.publicKey],
  };
  const cluster = await backend.create(spec, nullJournal, silentHost);
  const netns = cluster.networkCommand([]).find((word) => word.startsWith('--net='));
  await allAnswer(netns?.replace('--net=', '') ?? '');
  const durationMs = performance.now() - startMs;
  await cluster.destroy();
  return durationMs;
}

async function bare(round: number): Promise<number> {
  const script = join(import.meta.dirname, 'bare-nodes.sh');
  const netns = `ib-bench-${String(process.pid)}-${String(round)}`;
  const place = join(folder, `bare${String(round)}`);
  await mkdir(place);
  const startMs = performance.now();
  try {
    await run(script, ['up', place, netns, String(nodeCount), `${keyFile}.pub`, image.roots[0] ?? '']);
    await allAnswer(`/run/netns/${netns}`);
    return performance.now() - startMs;
  } finally {
    await run(script, ['down', place, netns]);
  }
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;

const times = { ours: [] as number[], bare: [] as number[] };
try {
  // The first of each warms the page cache and is not counted; then in turn, so that other load meets both.
  for (let round = 0; round <= rounds; round += 1) {
    const bareMs = await bare(round);
    const oursMs = await ours(round);
    if (round === 0) continue;
    times.bare.push(bareMs);
    times.ours.push(oursMs);
  }
} finally {
  await backend.sweep(new Set());
  await rm(folder, { recursive: true, force: true });
}
const ratio = median(times.ours) / median(times.bare);
const result = {
  bench: 'cluster-up',
  nodes: nodeCount,
  rounds,
  clusterMs: Math.round(median(times.ours)),
  bareMs: Math.round(median(times.bare)),
  ratio: Number(ratio.toFixed(2)),
  target,
};
process.stdout.write(`${JSON.stringify(result)}\n`);
if (ratio > target) process.exitCode = 1;
