// How fast the ledger takes records (synced in batches) and how fast a million of them are verified.
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../src/core/clock.js';
import { Redactor } from '../src/core/log.js';
import { loadSiteKey } from '../src/record/ledger/site-key.js';
import { verifyLedger } from '../src/record/ledger/verify.js';
import { LedgerWriter } from '../src/record/ledger/writer.js';

const records = Number(process.argv[2] ?? 1_000_000);
const folder = await mkdtemp(join(tmpdir(), 'infrabed-bench-ledger-'));
try {
  const file = join(folder, 'ledger.jsonl');
  const redactor = new Redactor();
  redactor.add('a-secret-of-the-trial');
  const writer = await LedgerWriter.open(file, { trial: 't-bench', clock: systemClock, redactor });
  const begun = performance.now();
  for (let n = 0; n < records; n++) {
    writer.record({
      kind: 'agent.exec',
      actor: 'agent',
      node: 'node0',
      payload: {
        command: `networkctl status eth0 --lines ${String(n)}`,
        connection: 3,
        stdin: 'e3b0c44298fc1c149afbf4c8996fb924',
      },
    });
    // Other work of the controller, syncing among it, gets its turn as it would in a trial.
    if (n % 500 === 0) await new Promise(setImmediate);
  }
  await writer.flush();
  const appendSeconds = (performance.now() - begun) / 1000;
  await writer.seal(await loadSiteKey(folder));
  const verifyBegun = performance.now();
  const { ok, count } = await verifyLedger(folder);
  const verifySeconds = (performance.now() - verifyBegun) / 1000;
  if (!ok || count !== records) throw new Error('the ledger just written does not verify');
  const result = {
    bench: 'ledger',
    records,
    sizeBytes: (await stat(file)).size,
    appendsPerSecond: Math.round(records / appendSeconds),
    verifySeconds: Number(verifySeconds.toFixed(2)),
    verifiedPerSecond: Math.round(records / verifySeconds),
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
} finally {
  await rm(folder, { recursive: true, force: true });
}
