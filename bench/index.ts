// make bench: every benchmark one after the other, each against the bare mechanism in the same run.
// Results are ratios and sizes for docs/benchmarks.md; a missed target fails the command, not a test.
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { spawn } from 'node:child_process';

const benches = ['cluster-up.ts', 'gateway.ts', 'ledger.ts', 'calendar.ts', 'bmc.ts', 'vm.ts'];

function runBench(file: string): Promise<number> {
  const child = spawn(process.execPath, ['--import=tsx', join(import.meta.dirname, file)], {
    stdio: 'inherit',
  });
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => resolve(status ?? 1));
  });
}

const gibibytes = (totalmem() / 1024 ** 3).toFixed(0);
process.stdout.write(
  `${new Date().toISOString().slice(0, 10)}, ${String(cpus().length)} processors, ${gibibytes} GiB, node ${process.version}\n`,
);
for (const file of benches) {
  process.stdout.write(`== ${file}\n`);
  const status = await runBench(file);
  if (status !== 0) {
    process.stdout.write(`${file} missed its target or failed (status ${String(status)})\n`);
    process.exitCode = 1;
  }
}
