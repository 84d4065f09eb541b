/** Harbor and InfraBench packages that bring only tests/test.sh: what they lack is filled in, and said. */

type Table = Record<string, unknown>;

export interface ForeignTask {
  raw: Table;
  /** What was filled in, one sentence each. */
  assumed: string[];
}

/** The raw task.toml with infrabed's own keys filled in; `instruction` gives the description where there is none. */
export function adoptForeign(raw: Table, folder: string, instruction: string): ForeignTask {
  const assumed: string[] = [];
  const fill = (table: Table, key: string, value: unknown, valid: (value: unknown) => boolean): void => {
    if (valid(table[key])) return;
    table[key] = value;
    assumed.push(`${key} = ${JSON.stringify(value)}`);
  };
  const task = { ...tableOf(raw['task']) };
  fill(
    task,
    'name',
    `foreign/${slug(folder)}`,
    (value) => typeof value === 'string' && /^[a-z0-9-]+\/[a-z0-9-]+$/.test(value),
  );
  const summary =
    instruction
      .split('\n')
      .find((line) => line.trim() !== '')
      ?.trim()
      .slice(0, 200) ?? folder;
  fill(task, 'description', summary, (value) => typeof value === 'string' && value !== '');
  const metadata = { ...tableOf(raw['metadata']) };
  fill(metadata, 'layer', 'L2', oneOf(['L1', 'L2', 'L3', 'L4']));
  fill(metadata, 'stage', 'maintain', oneOf(['deploy', 'operate', 'maintain', 'decommission']));
  fill(metadata, 'difficulty', 'medium', oneOf(['easy', 'medium', 'hard']));
  fill(metadata, 'source', [], (value) => value === undefined || Array.isArray(value));
  const agent = { ...tableOf(raw['agent']) };
  fill(agent, 'timeout_sec', 900, isPositive);
  const environment = { ...tableOf(raw['environment']) };
  fill(
    environment,
    'type',
    'container-cluster',
    oneOf(['docker', 'container-cluster', 'vm', 'vm-cluster', 'cloudlab', 'metal']),
  );
  fill(environment, 'nodes', [{ name: 'node0' }], (value) => Array.isArray(value) && value.length > 0);
  const timeout = tableOf(raw['verifier'])['timeout_sec'];
  const check = {
    id: 'harbor-test',
    gates: ['immediate'],
    uses: 'harbor-test',
    on: firstNode(environment['nodes']),
    weight: 1,
    class: 'functional',
    timeout_sec: isPositive(timeout) ? timeout : 600,
  };
  const version = raw['schema_version'] ?? raw['version'] ?? '1.0';
  return {
    raw: { ...raw, schema_version: version, task, metadata, agent, environment, checks: [check] },
    assumed,
  };
}

function tableOf(value: unknown): Table {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as Table) : {};
}

const oneOf =
  (words: readonly string[]) =>
  (value: unknown): boolean =>
    typeof value === 'string' && words.includes(value);

const isPositive = (value: unknown): boolean => typeof value === 'number' && value > 0;

function firstNode(nodes: unknown): unknown {
  return Array.isArray(nodes) ? tableOf(nodes[0])['name'] : undefined;
}

function slug(folder: string): string {
  return (
    folder
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '-')
      .replace(/^-+|-+$/g, '') || 'task'
  );
}
