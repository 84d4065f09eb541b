/** The disk that the virtual machines of one image share below their overlays: made once from the image's layers, cached. */
import { existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../../../core/clock.js';
import { InfrabedError, messageOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import { newId, sha256 } from '../../../core/ids.js';
import type { IoHost } from '../../../core/io.js';
import { withLock } from '../../../core/lock.js';
import { asset } from '../../../core/paths.js';
import type { ImageCache, Image } from '../container/image-cache.js';
import type { LayerRef } from '../driver.js';

/** Raised when what is made of the same layers changes. */
const diskVersion = 1;
const diskSizeMiB = 6144;
const makeTimeoutMs = 15 * 60_000;

/** What each node has of its own; made as files of one block, so that they can be filled in without a mount. */
const placeholders = [
  { path: 'etc', mode: 0o755, isFolder: true },
  { path: 'etc/ssh', mode: 0o755, isFolder: true },
  { path: 'etc/ssh/ssh_host_ed25519_key', mode: 0o600 },
  { path: 'etc/ssh/ssh_host_ed25519_key.pub', mode: 0o644 },
  { path: 'etc/hostname', mode: 0o644 },
  { path: 'etc/hosts', mode: 0o644 },
  { path: 'etc/machine-id', mode: 0o444 },
  { path: 'etc/systemd', mode: 0o755, isFolder: true },
  { path: 'etc/systemd/network', mode: 0o755, isFolder: true },
  { path: 'etc/systemd/network/10-eth0.network', mode: 0o644 },
  { path: 'root', mode: 0o700, isFolder: true },
  { path: 'root/.ssh', mode: 0o700, isFolder: true },
  { path: 'root/.ssh/authorized_keys', mode: 0o600 },
];

/** The layers of a container's image with the kernel above the bottom one, so that a task's own layers find it there. */
export function withKernel(layers: readonly LayerRef[]): LayerRef[] {
  const [bottom, ...others] = layers;
  if (bottom === undefined || others.includes('vm')) return [...layers];
  return [bottom, 'vm', ...others];
}

/** Beside the layers; the cache takes no notice of names that begin with a dot. */
export const disksFolder = (cacheFolder: string): string => join(cacheFolder, '.disks');

/** Folder of root.raw, vmlinuz, initrd.img and disk.json of an image. Never changed once it is there. */
export async function rootDisk(
  image: Image,
  cache: ImageCache,
  io: IoHost,
  signal?: AbortSignal,
): Promise<string> {
  const key = sha256(JSON.stringify({ diskVersion, diskSizeMiB, placeholders, layers: image.keys })).slice(
    0,
    16,
  );
  const all = disksFolder(cache.folder);
  const folder = join(all, key);
  if (existsSync(join(folder, 'disk.json'))) return folder;
  const scope = 'disk of virtual machines';
  const onWait = (): void =>
    io.notify({ type: 'progress', scope, message: 'another process makes this disk; waiting for it' });
  await withLock(
    join(all, `.lock-${key}`),
    async () => {
      if (existsSync(join(folder, 'disk.json'))) return;
      io.notify({ type: 'phase', scope, phase: 'build', state: 'begin' });
      const temporary = join(all, `.${newId('making', systemClock.now())}`);
      try {
        await make(temporary, image, signal);
        await rename(temporary, folder);
      } catch (error) {
        io.notify({ type: 'phase', scope, phase: 'build', state: 'failed' });
        throw error;
      } finally {
        await rm(temporary, { recursive: true, force: true });
      }
      io.notify({ type: 'phase', scope, phase: 'build', state: 'end' });
    },
    { onWait, ...(signal ? { signal } : {}) },
  );
  return folder;
}

/** In namespaces that end with the maker, as image layers are built. */
async function make(folder: string, image: Image, signal?: AbortSignal): Promise<void> {
  await mkdir(folder, { mode: 0o711 });
  const lowers = [...image.roots].reverse().join(':');
  const script = asset('src/testbed/driver/libvirt/make-root-disk.py');
  const python = ['/usr/bin/python3', '-I', '-S', script, folder, String(diskSizeMiB), lowers];
  const argv = ['--mount', '--propagation=private', '--pid', '--fork', '--kill-child=KILL', ...python];
  try {
    await run('unshare', [...argv, JSON.stringify(placeholders)], {
      timeoutMs: makeTimeoutMs,
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (error instanceof InfrabedError && error.code !== 'IB_PROGRAM_FAILED') throw error;
    throw new InfrabedError(
      'IB_IMAGE_BUILD',
      `The disk of virtual machines could not be made: ${messageOf(error)}`,
      {
        hint: 'A full disk is the usual reason: it takes about as much room as the layers together.',
        cause: error,
      },
    );
  }
}
