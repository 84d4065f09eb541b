/** What an image is made of: the layer files of playbooks/images, and the key of each layer in the cache. */
import { createHash } from 'node:crypto';
import { readFile, readdir, readlink, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { parse } from 'smol-toml';
import { z } from 'zod';
import { InfrabedError, errnoOf, messageOf } from '../../../core/errors.js';
import { canonicalJson, sha256 } from '../../../core/ids.js';
import { asset } from '../../../core/paths.js';
import type { LayerRef } from '../driver.js';

/** Raised when the builder changes in a way that changes what it builds: old cache entries are then left alone. */
const builderVersion = 1;

const layerSchema = z.strictObject({
  /** Debian suite of a bottom layer. */
  suite: z.string().optional(),
  /** Layers that have to stand below this one. */
  requires: z.array(z.string()).default([]),
  packages: z.array(z.string()).default([]),
  enable: z.array(z.string()).default([]),
  disable: z.array(z.string()).default([]),
  mask: z.array(z.string()).default([]),
});

export type LayerFile = z.infer<typeof layerSchema>;

/** One layer, ready to be built: its key covers its own definition and everything below it. */
export type LayerPlan = { name: string; key: string } & (
  { kind: 'packages'; file: LayerFile; hook: string | undefined } | { kind: 'script'; script: string }
);

/** Folder of the layer files that ship with infrabed. */
export const layerFolder = (): string => asset('playbooks/images');

/** The names that a cluster may ask for. */
export async function layerNames(folder = layerFolder()): Promise<string[]> {
  const names = await readdir(folder);
  return names
    .filter((name) => name.endsWith('.toml'))
    .map((name) => basename(name, '.toml'))
    .sort();
}

/** A layer with those that it requires, from the bottom up: the smallest image that has it. */
export async function layerStack(name: string, folder = layerFolder()): Promise<string[]> {
  const { requires } = await readLayer(name, folder);
  return [...requires, name];
}

/**
 * Reads the layers and gives each its content key.
 * @throws InfrabedError IB_LAYER_UNKNOWN for a name that has no file, a wrong order or a malformed file.
 */
export async function planLayers(layers: readonly LayerRef[], folder = layerFolder()): Promise<LayerPlan[]> {
  const plans: LayerPlan[] = [];
  for (const [index, layer] of layers.entries()) {
    const below = plans.map((plan) => plan.name);
    const keyBelow = plans.at(-1)?.key ?? '';
    if (typeof layer === 'string') plans.push(await planPackages(layer, below, keyBelow, folder));
    else plans.push(await planScript(layer, index, keyBelow));
  }
  if (plans.length === 0)
    throw new InfrabedError('IB_LAYER_UNKNOWN', 'An image needs at least the layer "os".');
  return plans;
}

async function planPackages(
  name: string,
  below: string[],
  keyBelow: string,
  folder: string,
): Promise<LayerPlan> {
  const file = await readLayer(name, folder);
  const isBottom = file.suite !== undefined;
  const missing = file.requires.filter((required) => !below.includes(required));
  if (missing.length > 0 || isBottom !== (below.length === 0)) {
    const wanted = [...file.requires, name].map((word) => `"${word}"`).join(', ');
    throw new InfrabedError(
      'IB_LAYER_UNKNOWN',
      isBottom
        ? `Layer "${name}" is a bottom layer.`
        : `Layer "${name}" stands on layers that are not below it.`,
      { hint: `Give the layers from the bottom up, for example [${isBottom ? `"${name}"` : wanted}].` },
    );
  }
  const hook = join(folder, `${name}.sh`);
  const hookText = await readFile(hook, 'utf8').catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  });
  const key = sha256(canonicalJson({ builderVersion, keyBelow, name, file, hookText: hookText ?? null }));
  return { kind: 'packages', name, key, file, hook: hookText === undefined ? undefined : hook };
}

async function readLayer(name: string, folder: string): Promise<LayerFile> {
  const path = join(folder, `${name}.toml`);
  let text: string;
  try {
    if (!/^[a-z0-9][a-z0-9-]*$/.test(name))
      throw Object.assign(new Error('not a layer name'), { code: 'ENOENT' });
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    throw new InfrabedError('IB_LAYER_UNKNOWN', `There is no layer "${name}".`, {
      hint: `Known layers: ${(await layerNames(folder)).join(', ')}.`,
    });
  }
  try {
    return layerSchema.parse(parse(text));
  } catch (error) {
    throw new InfrabedError('IB_LAYER_UNKNOWN', `${path} does not describe a layer: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

async function planScript(
  layer: { name: string; script: string },
  index: number,
  keyBelow: string,
): Promise<LayerPlan> {
  if (index === 0)
    throw new InfrabedError('IB_LAYER_UNKNOWN', 'A script cannot be the bottom layer of an image.');
  const script = resolve(layer.script);
  const folderHash = createHash('sha256');
  await hashTree(dirname(script), '', folderHash);
  const key = sha256(
    canonicalJson({ builderVersion, keyBelow, script: basename(script), folder: folderHash.digest('hex') }),
  );
  return { kind: 'script', name: layer.name.replaceAll(/[^A-Za-z0-9._-]/g, '-'), key, script };
}

/** Names, kinds, modes and contents of everything below a folder, in a fixed order. */
async function hashTree(root: string, below: string, hash: ReturnType<typeof createHash>): Promise<void> {
  let entries;
  try {
    entries = await readdir(join(root, below), { withFileTypes: true });
  } catch (cause) {
    throw new InfrabedError('IB_LAYER_UNKNOWN', `The folder of a layer's script cannot be read: ${root}`, {
      cause,
    });
  }
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const path = join(below, entry.name);
    if (entry.isDirectory()) {
      hash.update(`d ${path}\0`);
      await hashTree(root, path, hash);
    } else if (entry.isSymbolicLink()) {
      hash.update(`l ${path}\0${await readlink(join(root, path))}\0`);
    } else if (entry.isFile()) {
      const executable = ((await stat(join(root, path))).mode & 0o111) !== 0;
      hash.update(`f ${path}\0${String(executable)}\0`).update(await readFile(join(root, path)));
    }
  }
}
