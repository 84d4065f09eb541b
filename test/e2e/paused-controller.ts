/**
 * A controller that does one thing to a cluster, to be stopped on the way by a failpoint or by its test. Arguments: state
 * folder, what to do, cluster, node or generation. Prints `ok` or the code of the error.
 */
import { silentHost } from '../../src/core/io.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { nullJournal } from '../../src/core/journal.js';
import { createContainerBackend } from '../../src/testbed/driver/container/index.js';
import type { DriverCluster, NodeDriver } from '../../src/testbed/driver/driver.js';
import { spec } from '../testbed/driver-suite.js';

const [stateDir = '', verb = '', id = '', last = ''] = process.argv.slice(2);
const backend = createContainerBackend({ stateDir });

const onNode: Record<string, (node: NodeDriver) => Promise<unknown>> = {
  on: (node) => node.power.on(),
  off: (node) => node.power.off(),
  'soft-off': (node) => node.power.softOff(),
  cycle: (node) => node.power.cycle(),
  exec: async (node) => node.witness?.exec({ argv: ['touch', '/root/touched'] }),
  set: async (node) => node.witness?.execOwn({ argv: ['touch', '/root/touched'] }),
  linger: async (node) =>
    node.witness?.execOwn({ argv: ['sh', '-c', 'setsid sleep 306 & sleep 307'], timeoutMs: 300_000 }),
  dial: async (node) => {
    const stream = await node.network.dial(22);
    process.stdout.write('connected ');
    // Ends when the other side does, or whoever carries the bytes.
    stream.resume();
    await new Promise<void>((resolve, reject) => stream.once('close', resolve).once('error', reject));
  },
};

async function work(): Promise<void> {
  if (verb === 'create') {
    const made = spec(id, { nodes: ['node0'], generation: Number(last) });
    const cluster = await backend.create(made, nullJournal, silentHost);
    // A creation that was over when it was stopped: then the next act is what must not be done.
    await cluster.nodes[0]?.power.cycle();
    return;
  }
  const cluster: DriverCluster = await backend.open(id, nullJournal);
  process.stdout.write('opened ');
  if (verb === 'destroy') return cluster.destroy();
  const node = cluster.nodes.find(({ name }) => name === last);
  const doing = onNode[verb];
  if (!node || !doing) throw new Error(`nothing to do: ${verb} ${last}`);
  await doing(node);
}

try {
  await work();
  process.stdout.write('ok');
} catch (error) {
  process.stdout.write(isInfrabedError(error) ? error.code : String(error));
}
process.exit(0);
