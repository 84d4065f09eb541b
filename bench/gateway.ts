// What the gateway costs: the same work over it and over a direct SSH connection, in one run, as ratios.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { run, start } from '../src/core/exec.js';
import { generateKeyPair } from '../src/testbed/ssh/keys.js';
import { LoopbackSshd } from '../test/testbed/loopback-sshd.js';

const MiB = 1024 * 1024;
const bulkBytes = Number(process.env['INFRABED_BENCH_MIB'] ?? 256) * MiB;
const rounds = Number(process.env['INFRABED_BENCH_ROUNDS'] ?? 5);

const dir = await mkdtemp(join(tmpdir(), 'infrabed-bench-'));
const sshd = new LoopbackSshd();
await sshd.start();
const agent = generateKeyPair('bench');
const gateway = start(
  'node',
  [
    join(import.meta.dirname, 'gateway-serve.mjs'),
    JSON.stringify({
      dir,
      port: sshd.port,
      hostKey: sshd.host.publicKey,
      username: sshd.username,
      privateKey: sshd.user.privateKey,
      agentPublicKey: agent.publicKey,
    }),
  ],
  { stdio: ['pipe', 'pipe', 'inherit'] },
);
if (!gateway.stdout || !gateway.stdin) throw new Error('the gateway has no pipes');
const gatewayInput = gateway.stdin;
const answers = createInterface({ input: gateway.stdout })[Symbol.asyncIterator]();

/** What the gateway's process says next. */
async function answer(): Promise<Record<string, unknown>> {
  const line = await answers.next();
  if (line.done) throw new Error('the gateway ended; it runs the built code, so "make build" comes first');
  return JSON.parse(line.value) as Record<string, unknown>;
}

const { socket } = await answer();
await writeFile(join(dir, 'direct.key'), sshd.user.privateKey, { mode: 0o600 });
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
  direct: { to: sshd.port, user: sshd.username, keyFile: join(dir, 'direct.key') },
  gateway: { to: String(socket), user: 'root', keyFile: join(dir, 'agent.key') },
};

async function client(route: keyof typeof routes, what: string, amount: number): Promise<number[]> {
  const job = JSON.stringify({ ...routes[route], what, amount, path });
  const { stdout } = await run('node', ['--import=tsx', join(import.meta.dirname, 'gateway-client.ts'), job]);
  return JSON.parse(stdout) as number[];
}

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

/**
 * Both routes in turn, so that what else the machine does meets both. Of single commands the median counts; of bulk
 * transfers the fastest round, the one that other programs disturbed least.
 */
async function compare(what: string, amount: number): Promise<{ direct: number; gateway: number }> {
  const times = { direct: [] as number[], gateway: [] as number[] };
  for (let round = 0; round < (what === 'exec' ? 1 : rounds); round += 1) {
    for (const route of ['direct', 'gateway'] as const)
      times[route].push(...(await client(route, what, amount)));
  }
  const pick = what === 'exec' ? median : (values: number[]): number => Math.min(...values);
  return { direct: pick(times.direct), gateway: pick(times.gateway) };
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

await client('gateway', 'output', 1024 * MiB);
gatewayInput.write('memory\n');
const { peakBytes } = await answer();
print(
  `gateway memory: ${(Number(peakBytes) / 1e6).toFixed(0)} MB at most, 1 GiB in one command among it (under 150)`,
);

gatewayInput.end();
await new Promise((resolve) => gateway.once('exit', resolve));
await sshd.remove();
await rm(dir, { recursive: true, force: true });
