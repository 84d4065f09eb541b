/** A node is cleaned for real: booted from the bare image, read back, removed, and what goes wrong quarantines it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../../src/core/clock.js';
import { InfrabedError } from '../../src/core/errors.js';
import { silentHost } from '../../src/core/io.js';
import { asset } from '../../src/core/paths.js';
import { defaultSettings } from '../../src/core/settings.js';
import { loadSiteKey } from '../../src/record/ledger/site-key.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import { embeddedSite } from '../../src/testbed/inventory/inventory.js';
import { cleanDue, cleanNode } from '../../src/testbed/lease/clean-node.js';
import type { CleanGround } from '../../src/testbed/lease/clean-node.js';
import { enrollSite } from '../../src/testbed/node/enroll.js';
import { quarantineNode } from '../../src/testbed/node/operate.js';
import { showNode } from '../../src/testbed/node/view.js';
import { recover } from '../../src/trial/run/recover.js';
import { needsRoot } from './needs-root.js';
import { leftovers, newStateDir } from './trial-harness.js';

t.setTimeout(600_000);
needsRoot(t);

const stateDir = newStateDir();
const store = await openStore(stateDir);
const backend = createContainerBackend({ stateDir });
const ground: CleanGround = {
  store,
  backend,
  stateDir,
  controller: await registerController(store, systemClock),
  settings: defaultSettings,
  clock: systemClock,
  io: silentHost,
};
const ada = { name: 'ada', role: 'operator' } as const;
await store.db.transaction().execute(async (db) => enrollSite(db, await embeddedSite(), systemClock));
t.teardown(async () => {
  await backend.sweep(new Set());
  await store.close();
  rmSync(stateDir, { recursive: true, force: true });
});
const show = (node: string): ReturnType<typeof showNode> => showNode(store, node, systemClock.now());

t.test('a fault is cleared by a boot that was read back, and nothing of it stays', async (t) => {
  await quarantineNode(ground, 'local/n01', 'its fan rattles', ada);
  const { state, proof } = await cleanNode(ground, 'local/n01', ada);
  t.equal(state, 'available');
  t.match(proof, {
    method: 'verified-boot',
    image: { hash: await backend.prepareImage(['os'], silentHost), known: 'backend' },
    bootId: { value: /^[0-9a-f-]{36}$/ },
  });
  t.match(await show('local/n01'), { state: 'available', fault: null, lease: null, lastClean: { proof } });
  t.strictSame(await store.db.selectFrom('clusters').selectAll().execute(), []);
  t.strictSame(leftovers(stateDir), []);
});

t.test(
  'a node whose fresh boot cannot be read back is off and quarantined, with the step that failed',
  async (t) => {
    // A node that does not answer as it has to: its boot seen from outside is another one.
    const lying: CleanGround = {
      ...ground,
      backend: {
        ...backend,
        create: async (...args) => {
          const cluster = await backend.create(...args);
          const [node] = cluster.nodes;
          const { witness } = node!;
          Object.defineProperty(node, 'witness', {
            value: {
              ...witness,
              exec: witness!.exec.bind(witness),
              execOwn: witness!.execOwn.bind(witness),
              testify: async () => ({ ...(await witness!.testify()), bootId: 'another' }),
            },
          });
          return cluster;
        },
      },
    };
    await t.rejects(cleanNode(lying, 'local/n02', ada), {
      code: 'IB_NODE_FAILED',
      message: /from outside it is another/,
    });
    t.match(await show('local/n02'), {
      state: 'quarantined',
      fault: { code: 'clean-failed', step: 'read-back', isOff: true },
      failures: 1,
    });
    t.strictSame(leftovers(stateDir), []);

    await t.test('and another clean brings it back', async (t) => {
      await cleanNode(ground, 'local/n02', ada);
      t.match(await show('local/n02'), { state: 'available', fault: null, failures: 0 });
    });
  },
);

t.test('what cannot be removed is said not to be off', async (t) => {
  const stuck: CleanGround = {
    ...ground,
    backend: {
      ...backend,
      proveClean: async (id, nodes) => {
        const evidence = await backend.proveClean(id, nodes);
        return evidence.map((one) => ({
          ...one,
          isClean: false,
          parts: [...one.parts, { what: 'a mount', found: '/mnt/stuck' }],
        }));
      },
    },
  };
  await t.rejects(cleanNode(stuck, 'local/n03', ada), { code: 'IB_NODE_FAILED', message: /a mount/ });
  t.match(await show('local/n03'), {
    state: 'quarantined',
    fault: { code: 'clean-failed', step: 'prove', isOff: false, message: /Left of it: a mount/ },
  });
});

t.test('an aborted clean is broken off, and is no failure of the node', async (t) => {
  const signal = AbortSignal.timeout(400);
  await t.rejects(cleanNode({ ...ground, signal }, 'local/n04', ada), InfrabedError);
  t.match(await show('local/n04'), {
    state: 'quarantined',
    fault: { code: 'clean-interrupted', isOff: true },
    failures: 0,
  });
  t.strictSame(leftovers(stateDir), []);
});

t.test('rests of an old cluster that nobody knows go with it', async (t) => {
  mkdirSync(join(stateDir, 'clusters', 'c-old'), { recursive: true });
  await cleanNode(ground, 'local/n05', ada);
  t.strictSame(leftovers(stateDir), []);
});

for (const point of ['clean.begun', 'clean.booted', 'clean.proved']) {
  t.test(
    `a controller killed at ${point} leaves a node that is quarantined, and cleaned by the next`,
    async (t) => {
      const child = spawn(
        process.execPath,
        ['--import=tsx', asset('test/fixtures/clean-and-die.ts'), stateDir, 'local/n06'],
        { env: { ...process.env, INFRABED_FAILPOINT: `kill:${point}#1` }, stdio: 'inherit' },
      );
      const [, signal] = (await once(child, 'exit')) as [number | null, string | null];
      t.equal(signal, 'SIGKILL');
      t.equal((await show('local/n06')).state, 'cleaning');
      const siteKey = await loadSiteKey(stateDir);
      const recovery = await recover({ ...ground, siteKey, version: 'test' });
      t.strictSame(recovery.failed, []);
      t.match(await show('local/n06'), {
        state: 'quarantined',
        fault: { code: 'clean-interrupted' },
        lease: null,
      });
      t.strictSame(leftovers(stateDir), []);
      const outcomes = await cleanDue(ground);
      t.match(
        outcomes.find((one) => one.node === 'local/n06'),
        { error: undefined },
      );
      t.match(await show('local/n06'), { state: 'available', fault: null });
    },
  );
}
