/** Whether Debian packages are installed, and in which version. */
import { z } from 'zod';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { asList, fail, pass } from './expectation.js';
import { requireSuccess } from './node-script.js';

const name = z.string().regex(/^[a-z0-9][a-z0-9+.-]*$/, 'a Debian package name');
const parameters = z.strictObject({
  package: z.union([name, z.array(name).min(1)]).describe('Name, or list of names.'),
  state: z
    .enum(['installed', 'absent'])
    .default('installed')
    .describe('absent: not even configuration files remain.'),
  version: z.string().optional().describe('Exact version of all of them.'),
  min_version: z.string().optional().describe('Lowest version of all of them, compared as dpkg does.'),
});
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  packages: z.array(
    z.strictObject({
      name: z.string(),
      /** dpkg's word (installed, config-files, ...), or null where it knows no such package. */
      status: z.string().nullable(),
      version: z.string().nullable(),
      /** What dpkg says about version >= min_version; null where it was not asked. */
      atLeast: z.boolean().nullable(),
    }),
  ),
});
type Evidence = z.output<typeof evidence>;

async function gather(context: CheckContext, wanted: Parameters): Promise<Evidence> {
  const { cluster, node, commandTimeoutMs: timeoutMs, signal } = context;
  const names = asList(wanted.package);
  const argv = ['dpkg-query', '-W', '-f', '${Package}\\t${db:Status-Status}\\t${Version}\\n', '--', ...names];
  const result = await cluster.exec(node, { argv, timeoutMs, signal });
  // 1: at least one of the names is unknown; the others are printed all the same.
  if (result.exitCode !== 1) requireSuccess(result, 'dpkg-query', context);
  const known = parseDpkg(result.stdout);
  const packages = [];
  for (const one of names) {
    const { status, version } = known.get(one) ?? { status: null, version: null };
    const atLeast = await reaches(context, version, wanted.min_version);
    packages.push({ name: one, status, version, atLeast });
  }
  return { packages };
}

/** Lines of `Package TAB Status TAB Version`; a package of several architectures counts once. */
export function parseDpkg(text: string): Map<string, { status: string; version: string | null }> {
  const found = new Map<string, { status: string; version: string | null }>();
  for (const line of text.split('\n')) {
    const [name, status, version] = line.split('\t');
    if (name === undefined || status === undefined || found.get(name)?.status === 'installed') continue;
    found.set(name, { status, version: version === undefined || version === '' ? null : version });
  }
  return found;
}

async function reaches(
  context: CheckContext,
  version: string | null,
  minimum: string | undefined,
): Promise<boolean | null> {
  if (minimum === undefined || version === null) return null;
  const argv = ['dpkg', '--compare-versions', version, 'ge', minimum];
  const { commandTimeoutMs: timeoutMs, signal } = context;
  const result = await context.cluster.exec(context.node, { argv, timeoutMs, signal });
  if (result.exitCode !== 1) requireSuccess(result, 'dpkg --compare-versions', context);
  return result.exitCode === 0;
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  for (const one of seen.packages) {
    const is = `${one.name} is ${one.status ?? 'unknown to dpkg'}`;
    if (wanted.state === 'absent') {
      if (one.status !== null && one.status !== 'not-installed') return fail(is);
      continue;
    }
    if (one.status !== 'installed') return fail(is);
    if (wanted.version !== undefined && one.version !== wanted.version)
      return fail(`${one.name} has version ${String(one.version)}, not ${wanted.version}`);
    if (wanted.min_version !== undefined && one.atLeast !== true)
      return fail(`${one.name} has version ${String(one.version)}, below ${wanted.min_version}`);
  }
  return pass(`${seen.packages.map((one) => one.name).join(', ')}: ${wanted.state}`);
}

export const packageState = defineChecker<Parameters, Evidence>({
  name: 'package-state',
  summary: 'Debian packages are installed (in a version) or gone.',
  with: parameters,
  evidence,
  programs: ['dpkg-query', 'dpkg'],
  gather,
  judge,
});
