/** A controller that makes a cluster and is killed by the test meanwhile. Its argument is the state folder. */
import { silentHost } from '../../src/core/io.js';
import { nullJournal } from '../../src/core/journal.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import { spec } from '../testbed/driver-suite.js';

const backend = createContainerBackend({ stateDir: process.argv[2] ?? '' });
process.stdout.write('begin\n');
await backend.create(spec('crashed', { nodes: ['node0', 'node1', 'node2'] }), nullJournal, silentHost);
setInterval(() => undefined, 1000);
