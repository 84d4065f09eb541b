// The gateway before a container node: what a loopback sshd cannot show (other users, logins, reboots).
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { systemClock, waitFor } from '../../src/core/clock.js';
import { silentHost } from '../../src/core/io.js';
import type { Journal, JournalEntry } from '../../src/core/journal.js';
import { nullJournal } from '../../src/core/journal.js';
import { stateDir } from '../../src/core/paths.js';
import { ObjectStore } from '../../src/record/bundle/objects.js';
import { createContainerBackend, imageCacheDir } from '../../src/testbed/driver/container/index.js';
import { connect } from '../../src/testbed/ssh/connect.js';
import { generateKeyPair } from '../../src/testbed/ssh/keys.js';
import { startGateway } from '../../src/trial/gateway/index.js';
import { spec } from '../testbed/driver-suite.js';
import { client, hostConfig, ssh, type Outcome } from '../trial/openssh.js';
import { needsRoot } from './needs-root.js';

t.setTimeout(300_000);
needsRoot(t);
process.env['INFRABED_IMAGE_CACHE'] ??= imageCacheDir(stateDir());
const state = realpathSync(mkdtempSync(join(tmpdir(), 'infrabed-e2e-')));
const backend = createContainerBackend({ stateDir: state });
t.teardown(async () => {
  await backend.sweep(new Set());
  rmSync(state, { recursive: true, force: true });
});

/** A host user without an account, as agents run under. */
const agentUid = 1_900_000_321;

const controller = generateKeyPair('controller');
const cluster = await backend.create(
  spec('gateway-e2e', { nodes: ['node0'], authorizedKeys: [controller.publicKey] }),
  nullJournal,
  silentHost,
);
const node = cluster.nodes[0]!;
const login = (signal?: AbortSignal): ReturnType<typeof connect> =>
  connect({
    dial: (dialSignal) => node.network.dial(22, dialSignal),
    hostKey: node.hostKey,
    username: 'root',
    privateKey: controller.privateKey,
    name: 'node0',
    keepAliveMs: 0,
    ...(signal ? { signal } : {}),
  });
await waitFor(
  'node0',
  () =>
    login().then(
      (up) => up.end(),
      () => undefined,
    ),
  { timeoutMs: 60_000 },
);

const records: JournalEntry[] = [];
const journal: Journal = { record: (entry) => void records.push(entry), flush: () => Promise.resolve() };
const agent = generateKeyPair('agent');
const home = join(state, 'agent');
await chmod(state, 0o711);
await mkdir(home);
await chown(home, agentUid, agentUid);
const gateway = await startGateway({
  trial: 'e2e',
  journal,
  objects: await ObjectStore.open(join(state, 'objects')),
  sessionsDir: join(state, 'sessions'),
  socketDir: join(state, 's'),
  agentUid,
  nodes: [{ name: 'node0', connect: login }],
  agentPublicKey: agent.publicKey,
  clock: systemClock,
});
t.teardown(() => gateway.close('the test ends'));
await writeFile(join(home, 'key'), agent.privateKey, { mode: 0o600 });
await writeFile(join(home, 'known'), `node0 ${gateway.hostKeyLine}\n`);
const config = join(home, 'config');
await writeFile(
  config,
  hostConfig(home, 'root', `ProxyCommand socat - UNIX-CONNECT:${gateway.socketPath('node0')}`),
);

const asUser = (uid: number, args: string[]): Promise<Outcome> =>
  client('setpriv', ['--reuid', String(uid), '--regid', String(uid), '--clear-groups', ...args]);

t.test('the socket is for the agent of this trial alone', async (t) => {
  const reach = ['socat', '-u', `UNIX-CONNECT:${gateway.socketPath('node0')}`, 'OPEN:/dev/null'];
  const other = await asUser(agentUid + 1, reach);
  t.match(other.stderr, /Permission denied/);
  const own = await asUser(agentUid, ['timeout', '1', ...reach]);
  t.notMatch(own.stderr, /Permission denied/);
});

t.test('commands, files and terminals work on a node', async (t) => {
  const outcome = await ssh(config, ['node0', 'hostname; cat; exit 6'], 'through');
  t.match([outcome.code, outcome.stdout.toString()], [6, 'node0\nthrough']);
  await writeFile(join(home, 'file'), 'uploaded\n');
  t.equal((await client('scp', ['-F', config, join(home, 'file'), 'node0:/root/up'])).code, 0);
  t.equal((await ssh(config, ['node0', 'cat /root/up'])).stdout.toString(), 'uploaded\n');
  t.match((await ssh(config, ['-tt', 'node0', 'tty'])).stdout.toString(), /\/dev\/pts/);
});

t.test('each connection is a login of its own', async (t) => {
  const session = ['node0', 'cat /proc/self/cgroup'];
  const [first, second] = await Promise.all([ssh(config, session), ssh(config, session)]);
  t.match(first.stdout.toString(), /session-/);
  t.not(first.stdout.toString(), second.stdout.toString());
});

t.test('a reboot ends the session as it does without a gateway, and the next one works', async (t) => {
  const outcome = await ssh(config, ['node0', 'echo going; systemctl reboot; sleep 30']);
  t.equal(outcome.stdout.toString(), 'going\n');
  t.equal(outcome.code, 255);
  const back = await waitFor(
    'the node to be back',
    async () => {
      const again = await ssh(config, ['node0', 'echo back']);
      return again.code === 0 ? again : undefined;
    },
    { timeoutMs: 60_000, intervalMs: 300 },
  );
  t.equal(back.stdout.toString(), 'back\n');
  const ended = records.filter(
    ({ kind, payload }) => kind === 'session.exit' && payload['endedBy'] === 'lost',
  );
  t.equal(ended.length, 1, 'the lost session is on record as lost');
});
