// A virtual machine from request to SSH, beside bare virsh for the same domain and an untouched copy of its disk.
import { existsSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { run } from '../src/core/exec.js';
import { silentHost } from '../src/core/io.js';
import type { Journal } from '../src/core/journal.js';
import { stateDir } from '../src/core/paths.js';
import { createCluster } from '../src/testbed/cluster/create.js';
import { imageCacheDir } from '../src/testbed/driver/container/index.js';
import { vmFolder } from '../src/testbed/driver/libvirt/cluster-state.js';
import { hypervisorOf } from '../src/testbed/driver/libvirt/hypervisor.js';
import { createLibvirtBackend } from '../src/testbed/driver/libvirt/index.js';
import { endOwnHypervisor } from '../test/vm/own-hypervisor.js';

const rounds = Number(process.env['INFRABED_BENCH_ROUNDS'] ?? 3);
const target = 1.2;

if (!existsSync('/usr/bin/virsh') || !existsSync('/usr/bin/qemu-system-x86_64')) {
  process.stdout.write('virtual machines: not measured, run "make setup-vm" first\n');
  process.exit(0);
}
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = await mkdtemp(join(tmpdir(), 'infrabed-bench-vm-'));
const backend = createLibvirtBackend({ stateDir: state });
const { uri } = hypervisorOf(vmFolder(state));
await backend.prepareImage(['os'], silentHost);

/** One machine by infrabed, then the same one by virsh: as it was before its first boot. Milliseconds. */
async function round(number: number): Promise<{ oursMs: number; bareMs: number }> {
  const id = `vm${String(number)}`;
  const folder = join(vmFolder(state), 'clusters', id, 'nodes', 'node0');
  const disk = join(folder, 'root.qcow2');
  const untouched = join(state, `${id}.qcow2`);
  let isIntent = false;
  // Written down before the machine is switched on for the first time: the moment to copy its disk.
  const journal: Journal = {
    record: ({ kind, payload }) => {
      isIntent = kind === 'power.on' && payload['state'] === 'begin';
    },
    flush: async () => {
      if (isIntent && !existsSync(untouched)) await copyFile(disk, untouched);
    },
  };
  const startMs = performance.now();
  const owned = await createCluster({
    backend,
    id,
    generation: 1,
    nodes: [{ name: 'node0', roles: [] }],
    layers: ['os'],
    stateDir: state,
    journal,
    io: silentHost,
  });
  const oursMs = performance.now() - startMs;
  try {
    await owned.cluster.power('node0').off();
    await copyFile(untouched, disk);
    return { oursMs, bareMs: await bare(folder, owned.cluster) };
  } finally {
    await owned.destroy();
  }
}

async function bare(
  folder: string,
  cluster: Awaited<ReturnType<typeof createCluster>>['cluster'],
): Promise<number> {
  const xmlPath = join(folder, 'domain.xml');
  const xml = await readFile(xmlPath, 'utf8');
  const part = (pattern: RegExp): string => pattern.exec(xml)?.[1] ?? '';
  const netns = cluster.networkCommand([]).find((word) => word.startsWith('--net=')) ?? '';
  const machine = [uri, part(/<name>([^<]+)</), xmlPath, netns.replace('--net=', '')];
  const card = [part(/<target dev="(ibv[^"]+)"/), '9216'];
  const script = join(import.meta.dirname, 'bare-vm.sh');
  const startMs = performance.now();
  await run(script, ['up', ...machine, ...card]);
  // The same prober for both.
  await cluster.waitForSsh(['node0'], 600_000);
  const bareMs = performance.now() - startMs;
  await run(script, ['down', ...machine, ...card]);
  return bareMs;
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;

const times = { ours: [] as number[], bare: [] as number[] };
try {
  for (let number = 1; number <= rounds; number += 1) {
    const { oursMs, bareMs } = await round(number);
    times.ours.push(oursMs);
    times.bare.push(bareMs);
  }
} finally {
  await backend.sweep(new Set());
  await endOwnHypervisor(state);
  await rm(state, { recursive: true, force: true });
}
const ratio = median(times.ours) / median(times.bare);
const result = {
  bench: 'vm',
  rounds,
  vmMs: Math.round(median(times.ours)),
  bareMs: Math.round(median(times.bare)),
  all: { vmMs: times.ours.map((ms) => Math.round(ms)), bareMs: times.bare.map((ms) => Math.round(ms)) },
  ratio: Number(ratio.toFixed(2)),
  target,
};
process.stdout.write(`${JSON.stringify(result)}\n`);
if (ratio > target) process.exitCode = 1;
