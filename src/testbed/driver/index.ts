/** Every backend by its name: an explicit map, no discovery. */
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { Backend } from './driver.js';
import { createContainerBackend } from './container/index.js';
import { createFakeBackend } from './fake/index.js';
import { joinBackends } from './joined.js';
import { createLibvirtBackend } from './libvirt/index.js';

export interface BackendOptions {
  stateDir: string;
  clock?: Clock;
  io?: IoHost;
}

export const backends: Readonly<
  Record<'container' | 'fake' | 'libvirt', (options: BackendOptions) => Backend>
> = {
  container: createContainerBackend,
  libvirt: createLibvirtBackend,
  fake: createFakeBackend,
};

/** Backends whose nodes are on this machine: what --backend takes. */
export const hostBackendNames = ['container', 'libvirt'] as const;
export type HostBackend = (typeof hostBackendNames)[number];

/** All backends of this machine, joined so that the named one makes new clusters. */
export function hostBackends(options: BackendOptions): (chosen: HostBackend) => Backend {
  const made = { container: backends.container(options), libvirt: backends.libvirt(options) };
  return (chosen) =>
    joinBackends(
      made[chosen],
      hostBackendNames.filter((name) => name !== chosen).map((name) => made[name]),
    );
}
