/** One whole trial on a virtual machine: a right fix is resolved at every gate, also after a boot of its own kernel. */
import { join } from 'node:path';
import t from 'tap';
import { packageRoot } from '../../src/core/paths.js';
import { verifyLedger } from '../../src/record/ledger/verify.js';
import { runAttempt } from '../../src/study/attempt/attempt.js';
import { createLibvirtBackend } from '../../src/testbed/driver/libvirt/index.js';
import { clusterIdOf } from '../../src/trial/run/set-up.js';
import { loadTask } from '../../src/trial/task/load.js';
import { checkers } from '../../checkers/index.js';
import { needsRoot } from '../e2e/needs-root.js';
import { leftovers, newStateDir, openEnvironment, removeStateDir } from '../e2e/trial-harness.js';
import { endOwnHypervisor, needsHypervisor } from './own-hypervisor.js';

t.setTimeout(1_800_000);
needsRoot(t);
needsHypervisor(t);

t.test('a right fix on a virtual machine is resolved, and nothing is left', async (t) => {
  const stateDir = newStateDir();
  const environment = await openEnvironment(stateDir, () => createLibvirtBackend({ stateDir }));
  t.teardown(async () => {
    await environment.backend.sweep(new Set());
    await endOwnHypervisor(stateDir);
    await environment.store.close();
    removeStateDir(stateDir);
  });
  const task = await loadTask(join(packageRoot, 'test/e2e/fixtures/steady'), { checkers });
  const { score, error } = await runAttempt(environment, {
    task,
    admitted: false,
    agent: 'oracle',
    attempt: 1,
    network: 'none',
    keep: false,
    agentPaths: [],
    signal: new AbortController().signal,
  });
  t.equal(error, undefined);
  const missed = score.checks.filter(({ verdict }) => verdict !== 'pass');
  t.match(score, { outcome: 'resolved', reward: 1, safe: true }, JSON.stringify(missed));
  for (const [gate, { verdict }] of Object.entries(score.gates)) t.equal(verdict, 'pass', gate);
  t.match(await verifyLedger(score.bundle), { ok: true });
  // That the generation is still known shows that this is the cluster that was there.
  const proof = await environment.backend.proveClean(clusterIdOf({ id: score.trial }), ['node0']);
  t.match(proof, [{ isClean: true, generation: Number }]);
  await endOwnHypervisor(stateDir);
  t.same(leftovers(stateDir), []);
});
