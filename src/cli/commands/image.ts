/** `infrabed image`: the layers that nodes are made of, in the cache of this machine. */
import { stateDir } from '../../core/paths.js';
import {
  currentLayers,
  ImageCache,
  imageCacheDir,
  layerNames,
  layerStack,
  mountedLayers,
  type LayerRecord,
} from '../../testbed/driver/container/index.js';
import { asRoot, asRootToLook } from '../as-root.js';
import { toYargs, type CliCommand, type CliNoun } from '../command.js';

const cache = (): ImageCache => new ImageCache(imageCacheDir(stateDir()));
const json = { type: 'boolean', default: false, describe: 'one JSON object a layer' } as const;

/** What a layer is to the next cluster. */
type Use = 'mounted' | 'current' | 'unused';

async function uses(): Promise<(record: LayerRecord) => Use> {
  const mounted = await mountedLayers(stateDir());
  const current = await currentLayers();
  return ({ key }) => (mounted.has(key) ? 'mounted' : current.has(key) ? 'current' : 'unused');
}

const list: CliCommand<{ json: boolean }> = {
  command: 'list',
  describe: 'layers in the cache: mounted by a node, current, or unused',
  builder: (yargs) => yargs.option('json', json).example('$0 image list', 'name, key, packages, size, use'),
  async handler(args, face) {
    if (asRootToLook(face)) return;
    const useOf = await uses();
    const records = await cache().list();
    for (const record of records) {
      if (args.json) face.printJson({ ...record, use: useOf(record) });
      else face.print(describe(record, useOf(record)));
    }
    if (records.length === 0 && !args.json)
      face.print('No layer is built yet: "infrabed image build os" builds one.');
  },
};

function describe(record: LayerRecord, use: Use): string {
  const sizeMb = `${String(Math.round(record.sizeBytes / 1e6))} MB`;
  const built = new Date(record.builtMs).toISOString().slice(0, 16).replace('T', ' ');
  const packages = `${String(record.packages)} packages`;
  return [
    record.name.padEnd(16),
    record.key.slice(0, 12),
    packages.padEnd(13),
    sizeMb.padStart(7),
    built,
    use,
  ].join('  ');
}

const build: CliCommand<{ layer: string[]; json: boolean }> = {
  command: 'build [layer..]',
  describe: 'build layers, with those they stand on, before they are needed',
  builder: (yargs) =>
    yargs
      .positional('layer', {
        type: 'string',
        array: true,
        default: [] as string[],
        describe: 'names of playbooks/images; all where none is given',
      })
      .option('json', { ...json, describe: 'one JSON object an image' })
      .example('$0 image build', 'everything that a task may ask for')
      .example('$0 image build postgres', 'this layer and os below it'),
  async handler(args, face) {
    if (asRoot(face)) return;
    for (const layer of args.layer.length > 0 ? args.layer : await layerNames()) {
      const layers = await layerStack(layer);
      const image = await cache().prepare(layers, face.io, face.signal);
      if (args.json) face.printJson({ layers, imageHash: image.hash, keys: image.keys });
      else face.print(`${layers.join(' + ')}: ${image.hash}`);
    }
  },
};

const prune: CliCommand<{ all: boolean; json: boolean }> = {
  command: 'prune',
  describe: 'remove layers that no node has mounted and no file describes any more',
  builder: (yargs) =>
    yargs
      .option('all', {
        type: 'boolean',
        default: false,
        describe: 'current layers too, unless a node has them mounted',
      })
      .option('json', json)
      .example(
        '$0 image prune',
        "outdated layers and tasks' own layers go; they are built again when needed",
      ),
  async handler(args, face) {
    if (asRoot(face)) return;
    const keep = await mountedLayers(stateDir());
    if (!args.all) for (const key of await currentLayers()) keep.add(key);
    const removed = await cache().prune(keep);
    for (const record of removed) {
      if (args.json) face.printJson(record);
      else face.print(`removed ${describe(record, 'unused')}`);
    }
    if (removed.length === 0 && !args.json) face.print('Nothing to remove.');
  },
};

export const imageNoun: CliNoun = {
  noun: 'image',
  describe: 'The images that container nodes run',
  verbs: (face) => [toYargs(list, face), toYargs(build, face), toYargs(prune, face)],
};
