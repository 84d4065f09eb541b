/** The common suite inside an emulated host; started by host-systemd.test.ts. Its argument is the state folder. */
import t from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { createContainerBackend, hostChecks } from '../../src/testbed/driver/container/index.js';
import { driverSuite, spec } from '../testbed/driver-suite.js';

t.setTimeout(900_000);
const state = process.argv[2] ?? '';
const backend = createContainerBackend({ stateDir: state });
t.teardown(() => backend.sweep(new Set()));
t.test('the mode in use is found', async (t) => {
  const supervisor = (await hostChecks(state)).find((check) => check.name === 'supervisor');
  t.match(supervisor, { state: 'ok', detail: /systemd/ });
});
t.test('the BMCs of a cluster are a unit, and end with it', async (t) => {
  const cluster = await backend.create(spec('bmc', { nodes: ['node0'] }), nullJournal, silentHost);
  const [node] = cluster.nodes;
  t.equal(await node?.bmc?.powerState(), 'on');
  await node?.bmc?.act(['chassis', 'power', 'off']);
  await waitFor('off', async () => ((await node?.power.state()) === 'off' ? true : undefined), {
    timeoutMs: 60_000,
  });
  await backend.fence('bmc', 2);
  const taken = await backend.open('bmc', nullJournal);
  await taken.nodes[0]?.bmc?.setBootOverride({ device: 'pxe', persistent: false, efi: false });
  await taken.nodes[0]?.power.on();
  t.match(await taken.nodes[0]?.witness?.testify(), { power: 'on', initRunning: false });
  await taken.destroy();
  t.ok((await backend.proveClean('bmc', ['node0'])).every(({ isClean }) => isClean));
});
t.test('the common suite', (t) => driverSuite(t, backend, 'systemd'));
