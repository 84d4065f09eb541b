/** Which cluster `infrabed cluster ssh` and `cluster down` mean, and what they say when that is not clear. */
import t from 'tap';
import { chooseCluster, chooseToEnd } from '../../src/cli/commands/cluster.js';
import type { ClusterJson } from '../../src/web/api/clusters.js';

const entry = (id: string, nodes: readonly string[], kept = true): ClusterJson => ({
  cluster: id,
  lease: `l-${id}`,
  owner: 'ada',
  purpose: 'cluster up',
  backend: 'container',
  layers: ['os'],
  nodes: nodes.map((name) => ({ name, node: `local/${name}`, roles: [] })),
  kept,
  inUse: !kept,
  created: '2026-01-02T03:04:05.000Z',
});

t.test('ssh takes the one kept cluster that has the node', (t) => {
  const one = entry('c1', ['node0', 'node1']);
  const two = entry('c2', ['node0', 'db']);
  const trial = entry('t1', ['secret'], false);
  t.equal(chooseCluster([one], 'node1', undefined), one);
  t.equal(chooseCluster([one, two], 'db', undefined), two);
  t.equal(chooseCluster([one, two], 'node0', 'c2'), two);
  t.throws(() => chooseCluster([one, two], 'node0', undefined), { code: 'IB_USAGE', hint: /c1, c2/ });
  t.throws(() => chooseCluster([one, two], 'node7', undefined), {
    code: 'IB_NODE_UNKNOWN',
    hint: /node0, node1, db/,
  });
  t.throws(() => chooseCluster([one], 'node0', 'c9'), { code: 'IB_CLUSTER_UNKNOWN' });
  t.throws(() => chooseCluster([], 'node0', undefined), { code: 'IB_CLUSTER_UNKNOWN' });
  t.throws(
    () => chooseCluster([trial], 'secret', undefined),
    { code: 'IB_CLUSTER_UNKNOWN' },
    'a trial is entered by its gateway alone',
  );
  t.end();
});

t.test('down takes the one there is, the one named, or all', (t) => {
  const one = entry('c1', ['node0']);
  const two = entry('c2', ['node0']);
  const trial = entry('t1', ['node0'], false);
  t.strictSame(chooseToEnd([one, trial], undefined, false), [one]);
  t.strictSame(chooseToEnd([one, two], 'c2', false), [two]);
  t.strictSame(chooseToEnd([one, two, trial], undefined, true), [one, two]);
  t.throws(() => chooseToEnd([one, two], undefined, false), { code: 'IB_USAGE', hint: /c1, c2/ });
  t.throws(() => chooseToEnd([one], 'c9', false), { code: 'IB_CLUSTER_UNKNOWN' });
  t.throws(() => chooseToEnd([], undefined, false), { code: 'IB_CLUSTER_UNKNOWN' });
  t.end();
});
