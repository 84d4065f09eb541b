// What the gateway costs: the same work over it and over a direct SSH connection, in one run, as ratios.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/core/clock.js';
import { run } from '../src/core/exec.js';
import { nullJournal } from '../src/core/journal.js';
import { ObjectStore } from '../src/record/bundle/objects.js';
import { generateKeyPair } from '../src/testbed/ssh/keys.js';
import { startGateway } from '../src/trial/gateway/index.js';
import { startSshd } from '../test/trial/loopback-sshd.js';

const MiB = 1024 * 1024;
const bulkBytes = Number(process.env['INFRABED_BENCH_MIB'] ?? 256) * MiB;
const rounds = 3;

const dir = await mkdtemp(join(tmpdir(), 'infrabed-bench-'));
const sshd = await startSshd();
const agent = generateKeyPair('bench');
const gateway = await startGateway({
  trial: 'bench',
  journal: nullJournal,
  objects: await ObjectStore.open(join(dir, 'objects')),
  sessionsDir: join(dir, 'sessions'),
  socketDir: join(dir, 's'),
  nodes: [{ name: 'node0', connect: (signal) => sshd.connect(signal) }],
  agentPublicKey: agent.publicKey,
  clock: systemClock,
});
await writeFile(join(dir, 'direct.key'), sshd.key.privateKey, { mode: 0o600 });
await writeFile(join(dir, 'agent.key'), agent.privateKey, { mode: 0o600 });
const path = join(dir, 'file');
await run('dd', [
  'if=/dev/zero',
  `of=${path}.local`,
  'bs=1M',
  `count=${String(bulkBytes / MiB)}`,
  'status=none',
]);

const routes = {
  direct: { to: sshd.port, user: sshd.user, keyFile: join(dir, 'direct.key') },
  gateway: { to: gateway.socketPath('node0'), user: 'root', keyFile: join(dir, 'agent.key') },
};

async function client(route: keyof typeof routes, what: string, amount: number): Promise<number[]> {
  const job = JSON.stringify({ ...routes[route], what, amount, path });
  const { stdout } = await run('node', ['--import=tsx', join(import.meta.dirname, 'gateway-client.ts'), job]);
  return JSON.parse(stdout) as number[];
}

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

/** Both routes in turn, so that what else the machine does meets both. */
async function compare(what: string, amount: number): Promise<{ direct: number; gateway: number }> {
  const times = { direct: [] as number[], gateway: [] as number[] };
  for (let round = 0; round < rounds; round += 1) {
    for (const route of ['direct', 'gateway'] as const)
      times[route].push(...(await client(route, what, amount)));
  }
  return { direct: median(times.direct), gateway: median(times.gateway) };
}

const print = (text: string): void => void process.stdout.write(`${text}\n`);

const exec = await compare('exec', 200);
print(
  `gateway exec: direct ${exec.direct.toFixed(2)} ms, through ${exec.gateway.toFixed(2)} ms, ` +
    `ratio ${(exec.gateway / exec.direct).toFixed(2)} (at most 1.5)`,
);
for (const what of ['output', 'input', 'upload', 'download']) {
  const { direct, gateway: through } = await compare(what, bulkBytes);
  const rate = (ms: number): string => (bulkBytes / MiB / (ms / 1000)).toFixed(0);
  print(
    `gateway ${what}: direct ${rate(direct)} MiB/s, through ${rate(through)} MiB/s, ` +
      `ratio ${(direct / through).toFixed(2)} (at least 0.5)`,
  );
}

let peak = 0;
const sampler = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 20);
await client('gateway', 'output', 1024 * MiB);
clearInterval(sampler);
print(`gateway memory: ${(peak / 1e6).toFixed(0)} MB at most while 1 GiB passes (under 150)`);

await gateway.close('end of the benchmark');
await sshd.stop();
await rm(dir, { recursive: true, force: true });
