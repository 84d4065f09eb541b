// What the IPMI driver costs: one command through it and by bare ipmitool in turn, against the same ipmi_sim.
import { nullJournal } from '../src/core/journal.js';
import { run } from '../src/core/exec.js';
import { createBmc } from '../src/testbed/driver/ipmi/index.js';
import { SimBmc } from '../test/testbed/ipmi-sim.js';

const rounds = Number(process.env['INFRABED_BENCH_ROUNDS'] ?? 30);
const mostExtraMs = 150;

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

const sim = await SimBmc.start();
try {
  const bmc = createBmc({
    name: 'node0',
    address: '127.0.0.1',
    port: sim.port,
    username: 'infrabed',
    passwordFile: sim.passwordFile,
    reach: (argv) => argv,
    journal: nullJournal,
  });
  const target = ['-H', '127.0.0.1', '-p', String(sim.port), '-U', 'infrabed', '-f', sim.passwordFile];
  const bare = ['-I', 'lanplus', ...target, '-C', '3', 'raw', '0x00', '0x01'];
  // Finding the cipher suite is made once a BMC, and remembered.
  await bmc.powerState();
  const times = { bare: [] as number[], driver: [] as number[] };
  for (let round = 0; round < rounds; round += 1) {
    times.bare.push(await timed(() => run('ipmitool', bare)));
    times.driver.push(await timed(() => bmc.powerState()));
  }
  const bareMs = median(times.bare);
  const driverMs = median(times.driver);
  const extraMs = driverMs - bareMs;
  process.stdout.write(
    `one BMC command: ipmitool ${bareMs.toFixed(0)} ms, through the driver ${driverMs.toFixed(0)} ms, ` +
      `${extraMs.toFixed(0)} ms more (at most ${String(mostExtraMs)}), median of ${String(rounds)}\n`,
  );
  if (extraMs > mostExtraMs) process.exitCode = 1;
} finally {
  await sim.remove();
}
