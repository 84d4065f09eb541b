/** Layers by ansible-runner: progress, failures named, nothing left running. Runs playbooks on this machine only. */
import t, { type Test as Tap } from 'tap';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isInfrabedError, InfrabedError } from '../../src/core/errors.js';
import { silentHost, type IoEvent, type IoHost } from '../../src/core/io.js';
import { failureMessage, meaningOf, parseEvent } from '../../src/testbed/provision/events.js';
import { provision, type ProvisionOptions } from '../../src/testbed/provision/provision.js';
import { inventoryOf } from '../../src/testbed/provision/workspace.js';

const nodes = [
  { name: 'node0', address: '10.77.0.11', hostKey: 'ssh-ed25519 AAAA', roles: ['storage', 'first-one'] },
  { name: 'node1', address: '10.77.0.12', hostKey: 'ssh-ed25519 BBBB', roles: ['storage'] },
];

async function options(
  t: Tap,
  playbooks: Record<string, string>,
  io: IoHost = silentHost,
): Promise<ProvisionOptions> {
  const dir = await mkdtemp(join(tmpdir(), 'provision-'));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  await mkdir(join(dir, 'playbooks'));
  await mkdir(join(dir, 'work'));
  for (const [layer, text] of Object.entries(playbooks))
    await writeFile(join(dir, 'playbooks', `${layer}.yml`), text);
  return {
    cluster: { id: 'c', nodes, networkCommand: (argv) => argv },
    layers: Object.keys(playbooks),
    controllerKey: 'not used by local connections',
    nonce: 'n0nce',
    variables: { ansible_connection: 'local' },
    workDir: join(dir, 'work'),
    playbooksDir: join(dir, 'playbooks'),
    io,
  };
}

async function failure(promise: Promise<unknown>): Promise<InfrabedError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!isInfrabedError(error)) throw new Error(`no InfrabedError but ${String(error)}`);
  return error;
}

const play = (tasks: string): string => `- name: The play
  hosts: storage
  gather_facts: false
  tasks:
${tasks.replace(/^/gm, '    ')}
`;

t.test('a layer runs task by task, with the nonce, and leaves neither key nor folder', async (t) => {
  const said: IoEvent[] = [];
  const settings = await options(
    t,
    {
      good: play(
        '- name: Say it\n  ansible.builtin.command: echo {{ infrabed_nonce }} {{ groups["first_one"][0] }}',
      ),
    },
    { ...silentHost, notify: (event) => said.push(event) },
  );
  const report = await provision(settings);
  t.match(report.layers, [
    { layer: 'good', hosts: { node0: { ok: 0, changed: 1, failed: 0 }, node1: { changed: 1 } } },
  ]);
  t.match(said, [{ type: 'progress', scope: 'layer good', message: 'Say it' }]);
  t.same(await readdir(settings.workDir), []);
});

t.test('a failing task is named with play, host and last lines, and what others did is kept', async (t) => {
  const settings = await options(t, {
    bad: play(
      '- name: Break\n  ansible.builtin.shell: "for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit 3"\n  when: inventory_hostname == "node1"',
    ),
  });
  const error = await failure(provision(settings));
  t.equal(error.code, 'IB_PROVISION');
  t.match(error.message, /^Layer bad: "Break" failed on node1: line 3 \| line 4 \| line 5 \| line 6$/);
  t.match(error.hint, /playbooks\/bad\.yml, play "The play"/);
  t.match(error.details, { failures: [{ task: 'Break', host: 'node1' }], hosts: { node1: { failed: 1 } } });
  t.same(await readdir(settings.workDir), []);
});

t.test('a playbook that does not parse is told by its own words', async (t) => {
  const error = await failure(
    provision(await options(t, { odd: '- hosts: all\n  tasks:\n  - nosuchmodule: x\n' })),
  );
  t.equal(error.code, 'IB_PROVISION');
  t.match(error.message, /nosuchmodule/);
});

t.test('a node that cannot be reached is told apart from a task that fails', async (t) => {
  const settings = await options(t, { good: play('- ansible.builtin.command: id') });
  const error = await failure(
    provision({
      ...settings,
      variables: { ansible_connection: 'ssh', ansible_port: 1, ansible_host: '127.0.0.1' },
    }),
  );
  t.match(error.message, /could not be reached on node[01] \(node[01] too\)/);
});

t.test('an unknown layer is refused before anything runs, naming those there are', async (t) => {
  const settings = await options(t, { good: play('- ansible.builtin.command: id') });
  const error = await failure(provision({ ...settings, layers: ['good', 'ceph'] }));
  t.equal(error.code, 'IB_LAYER_UNKNOWN');
  t.match(error.hint, /The layers are: good/);
});

t.test('cancelled, it leaves no process of Ansible behind', async (t) => {
  const controller = new AbortController();
  const marker = String(100_000 + Math.floor(Math.random() * 100_000));
  const settings = await options(
    t,
    { slow: play(`- name: Sleep\n  ansible.builtin.command: sleep ${marker}`) },
    {
      ...silentHost,
      notify: () => {
        setTimeout(() => controller.abort(), 1500);
      },
    },
  );
  const error = await failure(provision({ ...settings, signal: controller.signal }));
  t.equal(error.code, 'IB_CANCELLED');
  t.same(await processesNaming(marker, settings.workDir), []);
});

/** Command lines of living processes that hold one of the words. */
async function processesNaming(...words: string[]): Promise<string[]> {
  const ids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name) && name !== String(process.pid));
  const lines = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, 'utf8').catch(() => '')));
  return lines.filter((line) => words.some((word) => line.includes(word)));
}

t.test('roles become groups, dashes becoming underscores as Ansible wants them', (t) => {
  t.match(inventoryOf(nodes, '/key', '/known', { more: 1 }), {
    all: {
      hosts: { node0: { ansible_host: '10.77.0.11' } },
      vars: { more: 1, ansible_ssh_common_args: /StrictHostKeyChecking=yes/ },
      children: { first_one: { hosts: { node0: {} } }, storage: { hosts: { node0: {}, node1: {} } } },
    },
  });
  t.end();
});

t.test('events with another shape, and lines that are none, are no obstacle', (t) => {
  t.equal(parseEvent('[WARNING]: something'), undefined);
  t.equal(parseEvent('{"event":'), undefined);
  t.same(meaningOf(parseEvent('{"event":"verbose","stdout":"x"}')!), { type: 'nothing' });
  t.match(meaningOf(parseEvent('{"event":"runner_on_failed","event_data":{"ignore_errors":true}}')!), {
    type: 'nothing',
  });
  t.equal(
    failureMessage({ msg: 'MODULE FAILURE\nSee stdout', module_stderr: 'Traceback\nOSError: no space\n' }),
    'Traceback | OSError: no space',
  );
  t.equal(
    failureMessage({
      msg: 'All items completed',
      results: [{ failed: false }, { failed: true, msg: 'no such user' }],
    }),
    'no such user',
  );
  t.equal(failureMessage(undefined), 'nothing was said');
  t.end();
});
