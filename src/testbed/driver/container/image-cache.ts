/** The cache of built layers: by content key, built once under a lock, in a temporary name that is then renamed. */
import { mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { systemClock, type Clock } from '../../../core/clock.js';
import { InfrabedError, errnoOf } from '../../../core/errors.js';
import { newId, sha256 } from '../../../core/ids.js';
import type { IoHost } from '../../../core/io.js';
import { withLock } from '../../../core/lock.js';
import { stateDir } from '../../../core/paths.js';
import { run } from '../../../core/exec.js';
import type { LayerRef } from '../driver.js';
import { buildLayer } from './image-build.js';
import { planLayers, type LayerPlan } from './image-layers.js';
import { installedPackages, manifestText } from './image-manifest.js';

const recordSchema = z.strictObject({
  name: z.string(),
  key: z.string(),
  /** Keys of the layers below, from the bottom up. */
  below: z.array(z.string()),
  manifestHash: z.string(),
  packages: z.number(),
  builtMs: z.number(),
  buildDurationMs: z.number(),
  sizeBytes: z.number(),
});

/** What the cache knows of one built layer. */
export type LayerRecord = z.infer<typeof recordSchema>;

/** A finished image: the folders of its layers from the bottom up, and the hash of its package manifest. */
export interface Image {
  hash: string;
  manifest: string;
  /** Keys of the layers, from the bottom up. */
  keys: string[];
  /** Root folders of the layers, from the bottom up. Never to be changed: nodes have them mounted. */
  roots: string[];
}

/** INFRABED_IMAGE_CACHE, else `images` in the state folder. */
export function imageCacheDir(state: string = stateDir(), env: NodeJS.ProcessEnv = process.env): string {
  return env['INFRABED_IMAGE_CACHE'] ? resolve(env['INFRABED_IMAGE_CACHE']) : join(state, 'images');
}

export class ImageCache {
  constructor(
    readonly folder: string,
    private readonly clock: Clock = systemClock,
  ) {}

  /**
   * Finds the image of these layers, or builds what is missing of it.
   * @throws InfrabedError IB_LAYER_UNKNOWN, IB_IMAGE_BUILD, IB_CANCELLED.
   */
  async prepare(layers: readonly LayerRef[], io: IoHost, signal?: AbortSignal): Promise<Image> {
    const plans = await planLayers(layers);
    await mkdir(this.folder, { recursive: true, mode: 0o711 });
    for (const [index, plan] of plans.entries()) {
      if ((await this.record(plan)) === undefined) await this.build(plan, plans.slice(0, index), io, signal);
    }
    return await this.image(plans);
  }

  /** The image of these layers if all of them are built, else undefined. */
  async find(layers: readonly LayerRef[]): Promise<Image | undefined> {
    const plans = await planLayers(layers);
    for (const plan of plans) if ((await this.record(plan)) === undefined) return undefined;
    return await this.image(plans);
  }

  /** All layers in the cache, the oldest first. */
  async list(): Promise<LayerRecord[]> {
    const names = await readdir(this.folder).catch((error: unknown) => {
      if (errnoOf(error) === 'ENOENT') return [];
      throw error;
    });
    const records: LayerRecord[] = [];
    for (const name of names.filter((entry) => !entry.startsWith('.'))) {
      const record = await this.readRecord(join(this.folder, name));
      if (record) records.push(record);
    }
    return records.sort((a, b) => a.builtMs - b.builtMs);
  }

  /** Removes layers that `keep` does not name; their keys must not be mounted by any node. Returns what went. */
  async prune(keep: ReadonlySet<string>): Promise<LayerRecord[]> {
    const gone = (await this.list()).filter((record) => !keep.has(record.key));
    for (const record of gone) {
      const path = this.folderOf(record);
      const dying = join(this.folder, `.${newId('pruned', this.clock.now())}`);
      await rename(path, dying);
      await rm(dying, { recursive: true });
    }
    return gone;
  }

  /** Where a layer lies, or would lie. */
  folderOf(layer: { name: string; key: string }): string {
    return join(this.folder, `${layer.name}-${layer.key.slice(0, 16)}`);
  }

  private record(plan: LayerPlan): Promise<LayerRecord | undefined> {
    return this.readRecord(this.folderOf(plan));
  }

  private async readRecord(path: string): Promise<LayerRecord | undefined> {
    try {
      return recordSchema.parse(JSON.parse(await readFile(join(path, 'layer.json'), 'utf8')));
    } catch (error) {
      if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return undefined;
      throw new InfrabedError('IB_IMAGE_BUILD', `${path} is not a layer of this version.`, {
        hint: `Remove that folder; it is built again when it is needed.`,
        cause: error,
      });
    }
  }

  private async image(plans: readonly LayerPlan[]): Promise<Image> {
    const last = plans.at(-1);
    if (!last) throw new InfrabedError('IB_INTERNAL', 'An image without layers.');
    const manifest = await readFile(join(this.folderOf(last), 'manifest.txt'), 'utf8');
    return {
      hash: sha256(manifest),
      manifest,
      keys: plans.map((plan) => plan.key),
      roots: plans.map((plan) => join(this.folderOf(plan), 'root')),
    };
  }

  private async build(
    plan: LayerPlan,
    below: readonly LayerPlan[],
    io: IoHost,
    signal?: AbortSignal,
  ): Promise<void> {
    const scope = `image ${plan.name}`;
    const lock = join(this.folder, `.lock-${plan.name}`);
    const onWait = (): void =>
      io.notify({ type: 'progress', scope, message: 'another process builds this layer; waiting for it' });
    await withLock(
      lock,
      async () => {
        if ((await this.record(plan)) !== undefined) return;
        await this.removeAbandoned(plan.name);
        io.notify({ type: 'phase', scope, phase: 'build', state: 'begin' });
        const folder = join(this.folder, `.building-${plan.name}-${newId('b', this.clock.now())}`);
        try {
          await this.buildInto(folder, plan, below, io, signal);
        } catch (error) {
          io.notify({ type: 'phase', scope, phase: 'build', state: 'failed' });
          await rm(folder, { recursive: true, force: true });
          throw error;
        }
        io.notify({ type: 'phase', scope, phase: 'build', state: 'end' });
      },
      { onWait, ...(signal ? { signal } : {}) },
    );
  }

  private async buildInto(
    folder: string,
    plan: LayerPlan,
    below: readonly LayerPlan[],
    io: IoHost,
    signal?: AbortSignal,
  ): Promise<void> {
    const startMs = this.clock.now();
    await mkdir(folder, { mode: 0o755 });
    await mkdir(join(this.folder, '.logs'), { recursive: true });
    const logPath = join(this.folder, '.logs', `${plan.name}-${plan.key.slice(0, 16)}.log`);
    const lowers = below.map((lower) => join(this.folderOf(lower), 'root'));
    await buildLayer(plan, lowers, folder, { io, logPath, ...(signal ? { signal } : {}) });
    const packages = await installedPackages([...lowers, join(folder, 'root')]);
    const manifest = manifestText(packages, [...below, plan]);
    await writeFile(join(folder, 'manifest.txt'), manifest);
    const record: LayerRecord = {
      name: plan.name,
      key: plan.key,
      below: below.map((lower) => lower.key),
      manifestHash: sha256(manifest),
      packages: packages.length,
      builtMs: this.clock.now(),
      buildDurationMs: this.clock.now() - startMs,
      sizeBytes: await diskUse(join(folder, 'root')),
    };
    await writeFile(join(folder, 'layer.json'), `${JSON.stringify(record, null, 2)}\n`);
    await rename(folder, this.folderOf(plan));
  }

  /** What a builder left that was killed. We hold its lock, so it is gone. */
  private async removeAbandoned(name: string): Promise<void> {
    for (const entry of await readdir(this.folder)) {
      if (entry.startsWith(`.building-${name}-b-`))
        await rm(join(this.folder, entry), { recursive: true, force: true });
    }
  }
}

async function diskUse(path: string): Promise<number> {
  const { stdout } = await run('du', ['-s', '--block-size=1', path]);
  const sizeBytes = Number.parseInt(stdout, 10);
  return Number.isNaN(sizeBytes) ? (await stat(path)).size : sizeBytes;
}
