// make demo: one real maintenance task, three agents (a right fix, no action, a fix that does not survive),
// four gates, and a page that sets the three trials side by side.
// make demo-vm (argument "vm"): a hardware task on a virtual machine, with the right fix alone.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const agents = (...names) => names.flatMap((name) => ['--agent', name]);
const demos = {
  container: {
    says: `The demo builds a cluster of three system containers on this machine, four times (the first is a control).
It makes network namespaces, control groups and files under the state folder, and removes the clusters again;
images, bundles and reports stay. The first run builds an image, which takes two minutes more.
`,
    words: ['storage-mtu-drift', ...agents('oracle', 'noop', 'mutant:runtime-only')],
  },
  vm: {
    says: `The demo boots one virtual machine on this machine, with a BMC of its own, and removes it again; an image, the bundle
and the report stay. A reset watchdog and a power cycle are part of it. Where machines are emulated it takes five to ten
minutes, and the first run builds an image, which takes some minutes more.
`,
    words: ['watchdog-dead-feeder', '--backend', 'libvirt', ...agents('oracle')],
  },
};
const { says, words } = demos[process.argv[2] ?? 'container'];
console.log(says);
const result = spawnSync(
  process.execPath,
  ['bin/infrabed.mjs', 'run', ...words, '--scorecard', 'scorecard.html'],
  {
    cwd: root,
    stdio: 'inherit',
  },
);
process.exit(result.status ?? 3);
