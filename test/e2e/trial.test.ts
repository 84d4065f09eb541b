import { cpSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { run } from '../../src/core/exec.js';
import { packageRoot } from '../../src/core/paths.js';
import { verifyLedger } from '../../src/record/ledger/verify.js';
import { gradeBundle } from '../../src/review/score/grade.js';
import type { TrialScore } from '../../src/review/score/score.js';
import { runAttempt, type Attempt } from '../../src/study/attempt/attempt.js';
import type { Backend, DriverCluster } from '../../src/testbed/driver/driver.js';
import { loadTask } from '../../src/trial/task/load.js';
import type { TaskPackage } from '../../src/trial/task/schema.js';
import type { TrialEnvironment } from '../../src/trial/run/trial.js';
import { checkers } from '../../checkers/index.js';
import { heldNodes, leftovers, newStateDir, openEnvironment, removeStateDir } from './trial-harness.js';
import { needsRoot } from './needs-root.js';

needsRoot(t);

t.setTimeout(1_200_000);

const stateDir = newStateDir();
const environment = await openEnvironment(stateDir);
const task = await loadTask(join(packageRoot, 'test/e2e/fixtures/goal'), { checkers });
const agents = join(packageRoot, 'test/e2e/fixtures/agents');

t.teardown(async () => {
  await environment.store.close();
  removeStateDir(stateDir);
});

interface Options {
  environment?: TrialEnvironment;
  task?: TaskPackage;
  signal?: AbortSignal;
}

/** A script of fixtures/agents: each reaches the goal first, and then does something that agents do. */
const script = (name: string): string => `script:${join(agents, `${name}.sh`)}`;

function attempt(agent: string, options: Options = {}): Promise<Attempt> {
  return runAttempt(options.environment ?? environment, {
    task: options.task ?? task,
    admitted: false,
    agent,
    attempt: 1,
    network: 'none',
    keep: false,
    agentPaths: [],
    signal: options.signal ?? new AbortController().signal,
  });
}

function verdicts(score: TrialScore, id: string): Record<string, string> {
  return Object.fromEntries(
    score.checks.filter((check) => check.id === id).map((check) => [check.gate, check.verdict]),
  );
}

interface LedgerLine {
  kind: string;
  node: string | null;
  payload: Record<string, unknown>;
}

function ledger(score: TrialScore): LedgerLine[] {
  const text = readFileSync(join(score.bundle, 'ledger.jsonl'), 'utf8');
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as LedgerLine);
}

const output = (score: TrialScore, stream = 'stdout'): string =>
  readFileSync(join(score.bundle, 'agent', `${stream}.log`), 'utf8');

/** The fixture with another limit or a further check. */
async function variant(
  name: string,
  change: (toml: string) => string,
  files: Record<string, string> = {},
): Promise<TaskPackage> {
  const dir = join(stateDir, 'variants', name);
  cpSync(task.dir, dir, { recursive: true });
  const path = join(dir, 'task.toml');
  writeFileSync(path, change(readFileSync(path, 'utf8')));
  for (const [file, content] of Object.entries(files)) writeFileSync(join(dir, file), content);
  return loadTask(dir, { checkers });
}

// Trials side by side, each started when it is declared: two `run` at once is what the store and the backend must bear.
await t.test('trials side by side', { jobs: 3, timeout: 900_000 }, (t) => {
  const test = (name: string, body: (t: Test) => Promise<void>): void =>
    void t.test(name, { timeout: 600_000 }, body);

  test('a right fix is resolved; its record verifies, and one changed byte shows', async (t) => {
    const { score, error } = await attempt('oracle');
    t.equal(error, undefined);
    t.match(score, {
      outcome: 'resolved',
      reward: 1,
      effective: 1,
      safe: true,
      resolved: true,
      timedOut: false,
    });
    t.same(new Set(Object.values(score.gates).map((gate) => gate.verdict)), new Set(['pass']));
    for (const phase of ['lease', 'provision', 'agent', 'reboot', 'seal', 'clean', 'release'] as const) {
      t.type(score.timings[phase], 'number', phase);
    }
    const kinds = new Set(ledger(score).map((record) => record.kind));
    for (const kind of [
      'trial.begin',
      'session.exec',
      'session.exit',
      'node.close',
      'power.cycle',
      'bundle.files',
    ]) {
      t.ok(kinds.has(kind), kind);
    }
    t.match(await verifyLedger(score.bundle), { ok: true });
    t.same(
      (await gradeBundle(score.bundle, checkers)).checks,
      score.checks,
      'graded again, offline: the same',
    );
    const copy = join(stateDir, 'tampered');
    cpSync(score.bundle, copy, { recursive: true });
    const bytes = readFileSync(join(copy, 'ledger.jsonl'));
    bytes.writeUInt8(bytes.readUInt8(200) ^ 1, 200);
    writeFileSync(join(copy, 'ledger.jsonl'), bytes);
    t.match(await verifyLedger(copy), { ok: false });
  });

  test('doing nothing fails; it is no error of ours', async (t) => {
    const { score } = await attempt('noop');
    t.equal(score.outcome, 'partial');
    t.ok(score.reward < 0.5);
    t.same(verdicts(score, 'goal-reached'), { immediate: 'fail', running: 'fail', reboot: 'fail' });
  });

  test('loops left in the background, hidden in whatever unit, are dead before anything is graded', async (t) => {
    const { score } = await attempt(script('loops'));
    t.equal(output(score).trim(), '5', 'the goal and four loops');
    t.same(verdicts(score, 'nothing-rewrites'), { immediate: 'pass' });
    t.equal(score.outcome, 'resolved');
    const close = ledger(score).find((record) => record.kind === 'node.close' && record.node === 'node0');
    t.ok((close?.payload['killedUnits'] as string[]).some((unit) => unit.startsWith('run-')));
    t.ok((close?.payload['killedProcesses'] as unknown[]).length >= 2);
  });

  test('loops are dead too where systemd was made deaf', async (t) => {
    const { score } = await attempt(script('deaf'));
    t.equal(output(score).trim(), 'deaf 3', 'systemd does not answer; the goal and two loops');
    t.same(verdicts(score, 'nothing-rewrites'), { immediate: 'pass' });
    const close = ledger(score).find((record) => record.kind === 'node.close' && record.node === 'node0');
    t.match(close?.payload['silence'], /systemctl show failed/);
    t.ok((close?.payload['killedProcesses'] as unknown[]).length >= 2);
    t.not(score.outcome, 'verifier_error');
  });

  test('tools that lie fail the checks they were to deceive, and nothing ends as a verifier error', async (t) => {
    const { score } = await attempt(script('liar'));
    t.same(verdicts(score, 'cron-runs'), { immediate: 'fail', reboot: 'fail' });
    t.equal(score.outcome, 'partial');
    t.same(verdicts(score, 'goal-reached'), { immediate: 'pass', running: 'pass', reboot: 'pass' });
  });

  test('sshd stopped for good fails what concerns it; the rest is still judged', async (t) => {
    const { score } = await attempt(script('no-sshd'));
    t.equal(score.outcome, 'partial');
    t.equal(verdicts(score, 'nodes-reachable')['immediate'], 'fail');
    t.equal(verdicts(score, 'peer-answers')['immediate'], 'fail');
    t.equal(verdicts(score, 'goal-reached')['immediate'], 'pass');
  });

  test('a node that no longer boots after what the agent changed fails its checks', async (t) => {
    const { score } = await attempt(script('no-boot'));
    t.equal(score.outcome, 'partial');
    t.same(verdicts(score, 'goal-reached'), { immediate: 'pass', running: 'pass', reboot: 'fail' });
    const rebooted = ledger(score).find(
      (record) => record.kind === 'node.rebooted' && record.node === 'node0',
    );
    t.match(rebooted?.payload, { outcome: 'not-back', blame: 'node' });
  });

  test('a node that does not come back because of us is an error, not a failure', async (t) => {
    const { score } = await attempt('oracle', {
      environment: { ...environment, backend: losingTheNetworkAtCycle(environment.backend) },
    });
    t.equal(score.outcome, 'verifier_error');
    t.equal(verdicts(score, 'goal-reached')['reboot'], 'error');
  });

  test('an agent that never ends is ended at its deadline, and what it printed is kept at both ends', async (t) => {
    const short = await variant('short', (toml) => toml.replace('timeout_sec = 60\n', 'timeout_sec = 45\n'));
    const { score } = await attempt(script('endless'), { task: short });
    t.ok(score.timedOut);
    t.equal(verdicts(score, 'goal-reached')['immediate'], 'pass', 'a late but right state counts');
    const size = statSync(join(score.bundle, 'agent', 'stdout.log')).size;
    t.ok(size < 3 * 1024 * 1024, `${String(size)} bytes of 64 MiB are kept`);
    t.ok(output(score).endsWith('last words\n'));
    t.notMatch(score.outcome, /error/, 'without a home directory on the node');
  });

  test('an agent that ends with an error is graded all the same', async (t) => {
    const { score } = await attempt(script('angry'));
    t.equal(score.outcome, 'resolved');
    t.equal(output(score, 'stderr'), 'out of ideas\n');
    t.match(ledger(score).find((record) => record.kind === 'agent.exit')?.payload, { exitCode: 3 });
  });

  test('an agent that looks for the harness finds none of it, and a foreign key opens nothing', async (t) => {
    const { score } = await attempt(script('curious'));
    const said = output(score).split('\n').filter(Boolean);
    t.same(
      said.filter((line) => line.startsWith('inside: ')).sort(),
      ['inside: /agent/.ssh/id_ed25519', 'inside: /agent/.ssh/id_ed25519.pub'],
      'its own key, and nothing else',
    );
    t.ok(said.includes('foreign key: refused'));
    t.ok(said.includes('node0 was searched') && said.includes('node1 was searched'));
    t.same(
      said.filter((line) => /^node\d: /.test(line)),
      [],
      'nothing on the nodes',
    );
    t.ok(
      ledger(score).some((record) => /refus|auth/.test(record.kind)),
      'the refusal is on record',
    );
  });

  test('a full disk under the bundle ends the trial as an error, with nothing left running', async (t) => {
    const own = newStateDir();
    mkdirSync(join(own, 'trials'));
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', join(own, 'trials')]);
    const full = await openEnvironment(own);
    try {
      const { score, error } = await attempt('noop', { environment: full });
      t.equal(score.outcome, 'infra_error');
      t.match(error, { code: 'IB_DISK_FULL' });
      t.same(await heldNodes(full), []);
    } finally {
      await full.store.close();
      await run('umount', [join(own, 'trials')]);
    }
    t.same(leftovers(own), []);
    removeStateDir(own);
  });

  test('a cancelled trial ends as such and leaves nothing', async (t) => {
    const controller = new AbortController();
    const pending = attempt(script('patient'), { signal: controller.signal });
    setTimeout(() => controller.abort(), 12_000);
    t.equal((await pending).score.outcome, 'cancelled');
  });

  test('a checker that throws is an error of ours, and the others are still judged', async (t) => {
    const odd = await variant(
      'odd',
      (toml) =>
        `${toml}\n[[checks]]\nid = "throws"\ngates = ["immediate"]\nuses = "./checks/throws.mjs"\non = "node0"\nkind = "guard"\nclass = "safety"\n`,
      {
        'checks/throws.mjs':
          'export default { gather() { throw new Error("no idea"); }, judge: () => ({ verdict: "pass", why: "never" }) };\n',
      },
    );
    const { score } = await attempt('oracle', { task: odd });
    t.equal(score.outcome, 'verifier_error');
    t.equal(verdicts(score, 'throws')['immediate'], 'error');
    t.equal(verdicts(score, 'goal-reached')['reboot'], 'pass');
  });

  t.end();
});

await t.test('afterwards nothing is left on the machine and every node can be lent', async (t) => {
  t.same(await heldNodes(environment), []);
  t.same(leftovers(stateDir), []);
});

/** A backend whose cluster network is lost at the first power-cycle: a fault that is proven to be ours. */
function losingTheNetworkAtCycle(backend: Backend): Backend {
  const sabotage = (cluster: DriverCluster): DriverCluster => {
    const [, path] = /--net=(\S+)/.exec(cluster.networkCommand(['true']).join(' ')) ?? [];
    for (const node of cluster.nodes) {
      const cycle = node.power.cycle.bind(node.power);
      node.power.cycle = async (signal) => {
        await cycle(signal);
        if (path !== undefined && existsSync(path)) await run('umount', ['-l', path], { allowFailure: true });
      };
    }
    return cluster;
  };
  return { ...backend, create: async (...args) => sabotage(await backend.create(...args)) };
}
