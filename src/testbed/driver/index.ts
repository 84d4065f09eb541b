/** Every backend by its name: an explicit map, no discovery. */
import type { Clock } from '../../core/clock.js';
import type { IoHost } from '../../core/io.js';
import type { Backend } from './driver.js';
import { createContainerBackend } from './container/index.js';
import { createFakeBackend } from './fake/index.js';
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
