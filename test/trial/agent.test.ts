import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { systemClock } from '../../src/core/clock.js';
import { parseAgent } from '../../src/trial/agent/agent.js';
import { makeRoom } from '../../src/trial/agent/limits.js';
import { runAgent, type AgentExit } from '../../src/trial/agent/run-agent.js';
import { programFolder, sandboxArguments, type SandboxPlan } from '../../src/trial/agent/sandbox.js';
import { agentEnvironment, makeWorkspace } from '../../src/trial/agent/workspace.js';
import { taskSchema, type TaskPackage } from '../../src/trial/task/schema.js';

const root = mkdtempSync(join(tmpdir(), 'infrabed-agent-'));
const uid = 1_900_000_000 + (process.pid % 100_000);
t.teardown(() => rmSync(root, { recursive: true, force: true }));

interface Ran {
  exit: AgentExit;
  stdout: string;
  stderr: string;
}

async function plan(name: string, changes: Partial<SandboxPlan> = {}): Promise<SandboxPlan> {
  const socketDir = join(root, name, 'sockets');
  mkdirSync(socketDir, { recursive: true });
  const deadlineMs = Date.now() + 60_000;
  const workspace = await makeWorkspace({
    dir: join(root, name, 'workspace'),
    uid,
    instruction: '# Put it right\n',
    nodes: ['node0', 'node1'],
    privateKey: 'not a real key\n',
    publicKey: 'ssh-ed25519 AAAA agent',
    gatewayHostKey: 'ssh-ed25519 BBBB',
    deadlineMs,
    program: null,
  });
  return {
    ...workspace,
    socketDir,
    extraPaths: [],
    hiddenPaths: [],
    uid,
    network: 'none',
    env: agentEnvironment(['node0', 'node1'], deadlineMs),
    ...changes,
  };
}

async function sh(
  script: string,
  options: { plan?: Partial<SandboxPlan>; limitMs?: number; homeBytes?: number; signal?: AbortSignal } = {},
): Promise<Ran> {
  const name = `run-${Math.random().toString(36).slice(2)}`;
  const outputDir = join(root, name, 'output');
  const room = await makeRoom(`test-${name}`, { memoryBytes: 512 * 1024 ** 2, processes: 64 });
  t.teardown(() => room.remove());
  const exit = await runAgent({
    plan: await plan(name, options.plan),
    argv: ['/bin/bash', '-c', script],
    room,
    deadlineMs: Date.now() + (options.limitMs ?? 30_000),
    outputDir,
    ...(options.homeBytes === undefined ? {} : { homeBytes: options.homeBytes }),
    signal: options.signal ?? new AbortController().signal,
    clock: systemClock,
  });
  const read = (file: string): string => readFileSync(join(outputDir, file), 'utf8');
  return { exit, stdout: read('stdout.log'), stderr: read('stderr.log') };
}

t.test(
  'the agent finds its instruction, its key and the names of the nodes, and its exit status is kept',
  async (t) => {
    const { exit, stdout } = await sh(
      'cat instruction.md; stat -c %a.%U .ssh/id_ed25519; echo $INFRABED_NODES; ssh -G node1 | grep -i proxycommand; exit 7',
    );
    t.equal(exit.exitCode, 7);
    t.match(
      stdout,
      /# Put it right\n600\.agent\nnode0 node1\nproxycommand socat - UNIX-CONNECT:\/gateway\/%h.sock/,
    );
  },
);

t.test(
  'the agent is an unprivileged user of the host, alone with its processes and without network',
  async (t) => {
    const { stdout } = await sh(
      'id -u; grep -E "^Cap(Eff|Bnd)|NoNewPrivs" /proc/self/status; ls /proc | grep -c "^[0-9]"; ip -o link | wc -l; touch /usr/x /etc/x',
    );
    const lines = stdout.split('\n');
    t.equal(lines[0], String(uid));
    t.match(stdout, /CapEff:\s+0{16}/);
    t.match(stdout, /CapBnd:\s+0{16}/);
    t.match(stdout, /NoNewPrivs:\s+1/);
    t.ok(Number(lines[4]) <= 6, 'only its own processes');
    t.equal(lines[5], '1', 'loopback only');
  },
);

t.test('nothing of the controller can be found from inside', async (t) => {
  const secretDir = join(root, 'state-with-secrets');
  mkdirSync(secretDir, { recursive: true });
  writeFileSync(join(secretDir, 'checks.txt'), 'the-hidden-check');
  const programDir = join(root, 'searcher');
  mkdirSync(programDir);
  // The needle stands in a file of its own: the command line of the search itself is no find.
  writeFileSync(
    join(programDir, 'search.sh'),
    `cat ${secretDir}/checks.txt; ls /root /home /work /srv /var/lib /run; cat /proc/1/cmdline | tr '\\0' ' '; ` +
      'grep -rl the-hidden-check / --include=*.txt 2>/dev/null; ls -d /agent/../*',
  );
  const { stdout } = await sh('. /program/search.sh', { plan: { programDir } });
  t.notMatch(stdout, /the-hidden-check|state-with-secrets/);
  t.match(stdout, /bwrap --args 3/);
});

t.test('a hidden folder below a visible one is empty', async (t) => {
  const visible = join(root, 'opt');
  mkdirSync(join(visible, 'infrabed', 'tasks'), { recursive: true });
  writeFileSync(join(visible, 'infrabed', 'tasks', 'secret'), 'x');
  writeFileSync(join(visible, 'program'), 'x');
  const { stdout } = await sh(`ls ${visible} ${visible}/infrabed`, {
    plan: { extraPaths: [visible], hiddenPaths: [join(visible, 'infrabed')] },
  });
  t.match(stdout, /program/);
  t.notMatch(stdout, /tasks/);
});

t.test('whatever is shown, what is hidden stays covered; a program at the root is shown alone', async (t) => {
  const hidden = join(root, 'hidden-everywhere');
  mkdirSync(hidden, { recursive: true });
  const args = sandboxArguments(await plan('all', { extraPaths: ['/'], hiddenPaths: [hidden] }));
  t.equal(args[args.indexOf(hidden) - 1], '--tmpfs');
  t.equal(programFolder(join(root, 'no-such-program')), null);
  t.equal(programFolder('/usr/bin/env'), null);
  const program = join(root, 'hidden-everywhere', 'agent.sh');
  writeFileSync(program, '');
  t.equal(programFolder(program), hidden);
  t.equal(programFolder('/proc'), '/proc', 'not its folder, which is /');
  t.end();
});

t.test('an agent that never ends is ended with everything it started', async (t) => {
  const { exit } = await sh('(setsid sleep 1000 &) ; trap "" TERM; while :; do sleep 1; done', {
    limitMs: 700,
  });
  t.ok(exit.timedOut);
  t.ok(exit.durationMs < 10_000);
});

t.test('a process left in the background dies with the agent', async (t) => {
  const { homeDir } = await plan('background');
  const { exit } = await sh(
    '(setsid sh -c "while :; do date +%s%N > /agent/alive; sleep 0.05; done" &) ; sleep 0.3',
    { plan: { homeDir } },
  );
  t.equal(exit.exitCode, 0);
  const alive = (): string => readFileSync(join(homeDir, 'alive'), 'utf8');
  const last = alive();
  await systemClock.sleep(300);
  t.equal(alive(), last, 'it writes no more');
});

t.test('an agent that prints 256 MiB is kept at its first and last MiB, in bounded memory', async (t) => {
  const before = process.memoryUsage().rss;
  const { exit, stdout } = await sh('echo first; head -c 268435456 /dev/zero; echo last');
  t.equal(exit.output.stdoutBytes, 268_435_456 + 'first\nlast\n'.length);
  t.ok(exit.output.truncated);
  t.ok(stdout.startsWith('first\n'));
  t.ok(stdout.endsWith('last\n'));
  t.ok(stdout.length < 3.2 * 1024 * 1024);
  t.ok(process.memoryUsage().rss - before < 150 * 1024 * 1024);
});

t.test('memory and processes of an agent are bounded', async (t) => {
  const hog = await sh('python3 -c "x = bytearray(800 * 1024 * 1024); print(len(x))"; echo status $?');
  t.match(hog.stdout, /status 137/);
  const forks = await sh('for i in $(seq 200); do sleep 5 & done; echo started; kill $(jobs -p); wait');
  t.match(forks.stderr, /Resource temporarily unavailable/);
});

t.test('an agent that fills its folder is ended, and not the disk', async (t) => {
  const { exit } = await sh('head -c 40000000 /dev/zero > big; sleep 60', { homeBytes: 20_000_000 });
  t.ok(exit.overQuota);
  t.ok(exit.durationMs < 20_000);
  t.notOk(exit.timedOut);
});

t.test('a sandbox that cannot be made is an error of ours, not a result of the agent', async (t) => {
  await t.rejects(sh('true', { plan: { extraPaths: ['/does/not/exist'] } }), { code: 'IB_SANDBOX' });
});

t.test('cancelling ends the agent', async (t) => {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 300);
  const { exit } = await sh('sleep 1000', { signal: controller.signal });
  t.equal(exit.exitCode, null);
});

t.test('the network is only there when it is asked for', async (t) => {
  const closed = sandboxArguments(await plan('closed'));
  const open = sandboxArguments(await plan('open', { network: 'host' }));
  t.ok(closed.includes('--unshare-net'));
  t.notOk(open.includes('--unshare-net'));
});

t.test('agents are named in few words, and a wrong word says which there are', (t) => {
  const task = { dir: root, definition: definition(), shortName: 'x' } as unknown as TaskPackage;
  t.equal(parseAgent('noop', task).kind, 'noop');
  t.equal(parseAgent('command:python3 -c 1', task).argv[2], 'python3 -c 1');
  t.equal(parseAgent('command:cd /tmp && true', task).kind, 'command', 'a shell builtin');
  for (const label of [
    'oracle',
    'mutant:other',
    'script:/does/not/exist',
    'command:',
    'command:no-such-agent --x',
    'command:./here',
    'command:/not/there',
    'robot',
  ]) {
    t.throws(() => parseAgent(label, task), { code: 'IB_AGENT_UNKNOWN' }, label);
  }
  t.end();
});

function definition(): unknown {
  return taskSchema.parse({
    schema_version: '1.1',
    task: { name: 'infrabed/x', description: 'x' },
    metadata: { layer: 'L2', stage: 'maintain', difficulty: 'easy' },
    agent: { timeout_sec: 1 },
    environment: { type: 'container-cluster', nodes: [{ name: 'node0' }] },
    mutants: [{ name: 'link-only', trap: 'not-persistent', caught_by: ['x'] }],
  });
}
