/** The common suite inside an emulated host; started by host-systemd.test.ts. Its argument is the state folder. */
import t from 'tap';
import { createContainerBackend, hostChecks } from '../../src/testbed/driver/container/index.js';
import { driverSuite } from '../testbed/driver-suite.js';

t.setTimeout(300_000);
const state = process.argv[2] ?? '';
const backend = createContainerBackend({ stateDir: state });
t.teardown(() => backend.sweep(new Set()));
t.test('the mode in use is found', async (t) => {
  const supervisor = (await hostChecks(state)).find((check) => check.name === 'supervisor');
  t.match(supervisor, { state: 'ok', detail: /systemd/ });
});
t.test('the common suite', (t) => driverSuite(t, backend, 'systemd'));
