// A gateway from the built code in a process of its own, as in a controller, and what memory it takes.
// Its options come as JSON on the command line; each line of input is answered, and the end of input ends it.
import { connect as dial } from 'node:net';
import { createInterface } from 'node:readline';
import { systemClock } from '../dist/src/core/clock.js';
import { nullJournal } from '../dist/src/core/journal.js';
import { ObjectStore } from '../dist/src/record/bundle/objects.js';
import { connect } from '../dist/src/testbed/ssh/connect.js';
import { startGateway } from '../dist/src/trial/gateway/index.js';

const options = JSON.parse(process.argv[2] ?? '');
const { dir, port, hostKey, username, privateKey, agentPublicKey } = options;

const toNode = () => Promise.resolve(dial({ port, host: '127.0.0.1', noDelay: true }));
const gateway = await startGateway({
  trial: 'bench',
  journal: nullJournal,
  objects: await ObjectStore.open(`${dir}/objects`),
  sessionsDir: `${dir}/sessions`,
  socketDir: `${dir}/s`,
  nodes: [
    {
      name: 'node0',
      connect: (signal) => connect({ dial: toNode, hostKey, username, privateKey, keepAliveMs: 0, signal }),
    },
  ],
  agentPublicKey,
  clock: systemClock,
});

let peakBytes = process.memoryUsage.rss();
setInterval(() => (peakBytes = Math.max(peakBytes, process.memoryUsage.rss())), 20).unref();
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
say({ socket: gateway.socketPath('node0') });
for await (const line of createInterface({ input: process.stdin })) if (line === 'memory') say({ peakBytes });
await gateway.close('end of the benchmark');
