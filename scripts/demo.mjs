// make demo: one real maintenance task, three agents (a right fix, no action, a fix that does not survive),
// four gates, and a page that sets the three trials side by side.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
console.log(`The demo builds a cluster of three system containers on this machine, four times (the first is a control).
It makes network namespaces, control groups and files under the state folder, and removes the clusters again;
images, bundles and reports stay. The first run builds an image, which takes two minutes more.
`);
const agents = ['oracle', 'noop', 'mutant:runtime-only'].flatMap((agent) => ['--agent', agent]);
const result = spawnSync(
  process.execPath,
  ['bin/infrabed.mjs', 'run', 'storage-mtu-drift', ...agents, '--scorecard', 'scorecard.html'],
  { cwd: root, stdio: 'inherit' },
);
process.exit(result.status ?? 3);
