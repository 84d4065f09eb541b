/** The hardware of real container nodes against inventories that are right and wrong about it. */
import { rmSync } from 'node:fs';
import t from 'tap';
import { systemClock } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { defaultSettings } from '../../src/core/settings.js';
import { registerController } from '../../src/record/store/controllers.js';
import { openStore } from '../../src/record/store/store.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import { parseInventory } from '../../src/testbed/inventory/inventory.js';
import { inspectNode, inspectNodes } from '../../src/testbed/lease/inspect.js';
import { addSite } from '../../src/testbed/node/enroll.js';
import { showNode } from '../../src/testbed/node/view.js';
import { needsRoot } from './needs-root.js';
import { leftovers, newStateDir } from './trial-harness.js';

t.setTimeout(600_000);
needsRoot(t);

const stateDir = newStateDir();
const store = await openStore(stateDir);
const backend = createContainerBackend({ stateDir });
const controller = await registerController(store, systemClock);
const ground = {
  store,
  backend,
  stateDir,
  controller,
  settings: defaultSettings,
  clock: systemClock,
  io: silentHost,
};
const ada = { name: 'ada', role: 'operator' } as const;
t.teardown(async () => {
  await backend.sweep(new Set());
  await store.close();
  rmSync(stateDir, { recursive: true, force: true });
});

const inventory = `
name: lab
defaults: {backend: container}
nodes:
  - {name: plain}
  - {name: boastful, memory: 64TiB, bmc: {firmware: "4.1"}}
  - {name: elsewhere, backend: cloudlab}
`;

t.test(
  'a node that has less than its inventory says is quarantined, one that agrees is available',
  async (t) => {
    await addSite(ground, parseInventory(inventory, 'lab.yaml'), ada);
    const [boastful, elsewhere, plain] = await inspectNodes(ground, undefined, ada);
    t.match(plain, {
      node: 'lab/plain',
      outcome: 'matches',
      how: 'booted',
      state: 'available',
      differences: [],
    });
    t.match(boastful, {
      outcome: 'differs',
      how: 'booted',
      state: 'quarantined',
      differences: [
        { field: 'memory', kind: 'differs', declared: '65536 GiB' },
        { field: 'bmc.firmware', kind: 'unknown' },
      ],
    });
    t.match(elsewhere, { outcome: 'not-inspected', why: /cloudlab node/, state: 'enrolled' });
    const { fault } = await showNode(store, 'lab/boastful', systemClock.now());
    t.match(fault, {
      code: 'hardware-differs',
      message: /memory \(differs\)/,
      differences: [{ field: 'memory' }],
    });
    const notices = await store.db.selectFrom('notices').select(['kind', 'subject']).execute();
    t.strictSame(notices, [{ kind: 'node.quarantined', subject: 'lab/boastful' }]);
    t.strictSame(await store.db.selectFrom('clusters').selectAll().execute(), []);
    t.strictSame(leftovers(stateDir), []);
    await t.rejects(inspectNode(ground, 'lab/boastful', ada), {
      code: 'IB_NODE_STATE',
      message: /is quarantined/,
    });
  },
);
