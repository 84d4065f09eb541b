/**
 * Facts of a node as `kind:subject -> value`, with everything left out that changes by itself:
 * the form in which two moments are compared.
 */
import type { FileFact, NodeFacts } from '../../testbed/facts/facts.js';
import { sha256 } from '../../core/ids.js';

/** Value by subject, by kind. A kind that could not be read is null. */
export type FlatFacts = Readonly<Record<string, ReadonlyMap<string, string> | null>>;

/** Files whose contents or existence belong to the running system, not to anybody's change. */
const volatileFiles: readonly RegExp[] = [
  /^\/etc\/(mtab|\.updated|\.pwd\.lock)$/,
  /^\/var\/\.updated$/,
  /^\/var\/lib\/systemd\/(random-seed|linger|deb-systemd-.*-enabled\/.*)$/,
  /^\/var\/lib\/(chrony|ntp|logrotate|private|plymouth)(\/|$)/,
  /^\/var\/lib\/sudo\/(ts|lectured)(\/|$)/,
  /^\/var\/lib\/(rsyslog|sss)\/.*/,
  /^\/var\/lib\/postgresql\/[^/]+\/[^/]+\/(postmaster\.(pid|opts)|[^/]+)$/,
  /^\/var\/backups\/(dpkg|apt|alternatives)\..*/,
  /^\/tmp\/(systemd-private-.*|snap-private-tmp.*|\.(X11|ICE|XIM|font|Test)-unix.*)$/,
  /^\/var\/tmp\/systemd-private-.*/,
];
/** Of the excluded ones these are configuration all the same. */
const kept = /\/(postgresql\.auto\.conf|pg_hba\.conf|pg_ident\.conf|PG_VERSION|[^/]+\.(signal|recovery))$/;

const volatileUnits =
  /^(session-.*\.scope|user@.*\.service|user-runtime-dir@.*\.service|user-\d+\.slice|.*\.device|run-user-.*\.mount|run-credentials-.*\.mount|run-.*\.scope|sys-.*\.mount|proc-.*\.mount|dev-.*\.mount)$/;
const volatileMounts = /^\/(proc|sys|dev|run\/user|run\/credentials|run\/systemd)(\/|$)/;
const volatileSysctls =
  /^(net\.ipv6\.conf\.[^.]+\.(mtu|stable_secret)|net\.ipv4\.tcp_(mem|fastopen_key)|net\.ipv4\.udp_mem|net\.ipv[46]\.route\..*|net\.netfilter\.nf_conntrack_(count|max|buckets|expect_max)|kernel\.(pid_max|threads-max)|fs\.file-max)$/;

/** Every fact of a node that drift is about. */
export function flattenFacts(facts: NodeFacts): FlatFacts {
  return {
    package: mapOf(facts.packages, (item) => `${item.version} (${item.status})`),
    unit: facts.units && flatUnits(facts.units),
    timer: facts.timers && flatTimers(facts),
    file: flatFiles(facts.files),
    user: mapOf(
      facts.users,
      (user) => `uid ${user.uid}, gid ${user.gid}, ${user.home}, ${user.shell}, password ${user.password}`,
    ),
    group: mapOf(facts.groups, (group) => `gid ${group.gid}: ${group.members.join(',')}`),
    'authorized-key': new Map(
      facts.authorizedKeys.map((key) => [
        `${key.user} ${key.fingerprint}`,
        [key.options, key.comment].filter((part) => part !== '').join(' '),
      ]),
    ),
    sudoers: mapOf(facts.sudoers, short),
    cron: mapOf(facts.cron, short),
    mount: flatMounts(facts.mounts),
    socket: facts.sockets && flatSockets(facts.sockets),
    firewall: facts.firewall && mapOf(facts.firewall, (text) => short([text])),
    sysctl: new Map(Object.entries(facts.sysctls).filter(([name]) => !volatileSysctls.test(name))),
    route: facts.routes && flatRoutes(facts.routes, facts.rules ?? []),
    link: facts.links && flatLinks(facts.links),
  };
}

function mapOf<T>(record: Readonly<Record<string, T>>, value: (item: T) => string): Map<string, string> {
  return new Map(Object.entries(record).map(([key, item]) => [key, value(item)]));
}

/** Lines as one text; a long one by its beginning and its hash. */
function short(lines: readonly string[]): string {
  const text = lines.join('\n');
  return text.length <= 400 ? text : `${text.slice(0, 400)}... (sha256 ${sha256(text).slice(0, 12)})`;
}

function flatFiles(files: NodeFacts['files']): Map<string, string> {
  const out = new Map<string, string>();
  for (const [path, fact] of Object.entries(files)) {
    if (kept.test(path) || !volatileFiles.some((pattern) => pattern.test(path)))
      out.set(path, fileValue(fact));
  }
  return out;
}

function fileValue(fact: FileFact): string {
  const access = `${fact.mode} ${fact.owner}:${fact.group}`;
  if (fact.type === 'symlink') return `link to ${fact.target ?? '?'}`;
  if (fact.type !== 'file') return `${fact.type} ${access}`;
  const size = `${String(fact.sizeBytes ?? 0)} bytes`;
  const content =
    fact.sha256 === undefined ? `stamp ${fact.stamp ?? '?'}` : `sha256 ${fact.sha256.slice(0, 12)}`;
  return `file ${access} ${size} ${content}`;
}

/** Units that are set up or doing something; one that is merely loaded and idle is as good as absent. */
function flatUnits(units: NonNullable<NodeFacts['units']>): Map<string, string> {
  const out = new Map<string, string>();
  for (const [name, unit] of Object.entries(units)) {
    if (volatileUnits.test(name) || name.endsWith('.timer')) continue;
    const active = settled(unit.active);
    if (unit.enabled !== undefined || active !== 'inactive')
      out.set(name, `${unit.enabled ?? 'no file'}, ${active}`);
  }
  return out;
}

/** A unit that is just starting or stopping will be one or the other when somebody looks. */
function settled(active: string | undefined): string {
  if (active === undefined || active === 'deactivating') return 'inactive';
  return active === 'activating' || active === 'reloading' ? 'active' : active;
}

function flatTimers(facts: NodeFacts): Map<string, string> {
  const out = new Map<string, string>();
  for (const [name, unit] of Object.entries(facts.units ?? {})) {
    if (name.endsWith('.timer')) out.set(name, `${unit.enabled ?? 'no file'}, ${settled(unit.active)}`);
  }
  for (const [name, starts] of Object.entries(facts.timers ?? {})) {
    out.set(name, `${out.get(name) ?? 'no file, active'}, starts ${starts || 'nothing'}`);
  }
  return out;
}

/** By mount point. Of an overlay the layers are the backend's own paths, and stay out. */
function flatMounts(mounts: NodeFacts['mounts']): Map<string, string> {
  const out = new Map<string, string>();
  for (const mount of mounts) {
    if (volatileMounts.test(mount.target)) continue;
    const source = mount.type === 'overlay' || mount.type === 'tmpfs' ? '' : ` from ${mount.source}`;
    const options = mount.options
      .split(',')
      .filter((option) => !/^(relatime|noatime|nodiratime)$/.test(option))
      .join(',');
    const value = `${mount.type}${source} ${options}`;
    const before = out.get(mount.target);
    out.set(mount.target, before === undefined ? value : `${before}; ${value}`);
  }
  return out;
}

/** The kernel's ephemeral ports (32768 and up) come and go with whoever asks for one. */
const firstEphemeralPort = 32768;

function flatSockets(sockets: NonNullable<NodeFacts['sockets']>): Map<string, string> {
  const out = new Map<string, string>();
  for (const socket of sockets) {
    const port = Number(socket.local.slice(socket.local.lastIndexOf(':') + 1));
    if (socket.protocol === 'udp' && port >= firstEphemeralPort) continue;
    const subject = `${socket.protocol}/${socket.local}`;
    const names = new Set([...(out.get(subject)?.split(',') ?? []), ...socket.processes]);
    out.set(
      subject,
      [...names]
        .filter((name) => name !== '')
        .sort()
        .join(','),
    );
  }
  return out;
}

function flatRoutes(routes: NonNullable<NodeFacts['routes']>, rules: readonly string[]): Map<string, string> {
  const out = new Map<string, string>();
  for (const route of routes) {
    const subject = `${route.family} ${route.destination} dev ${route.device || 'none'} table ${route.table}`;
    const gateway = route.gateway === '' ? 'direct' : `via ${route.gateway}`;
    const value = `${route.type} ${gateway} metric ${String(route.metric)} ${route.options}`.trim();
    out.set(subject, out.has(subject) ? `${out.get(subject) ?? ''}; ${value}` : value);
  }
  for (const rule of rules) out.set(`rule ${rule}`, 'in force');
  return out;
}

/** Flags that follow the carrier, and autoconfigured addresses, stay out. */
function flatLinks(links: NonNullable<NodeFacts['links']>): Map<string, string> {
  const out = new Map<string, string>();
  for (const [name, link] of Object.entries(links)) {
    const flags = link.flags.filter((flag) => !['LOWER_UP', 'RUNNING', 'NO-CARRIER'].includes(flag));
    const addresses = link.addresses.filter((address) => !address.startsWith('fe80:'));
    const master = link.master === '' ? '' : ` in ${link.master}`;
    out.set(name, `mtu ${String(link.mtu)} ${flags.join(',')}${master} ${addresses.join(' ')}`.trim());
  }
  return out;
}
