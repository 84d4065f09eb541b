/** The package manifest of an image: what is installed in it, exactly, and of which layers it is made. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { InfrabedError, errnoOf } from '../../../core/errors.js';

export interface InstalledPackage {
  name: string;
  version: string;
  architecture: string;
}

/** The packages of an image; `roots` are its layers from the bottom up. */
export async function installedPackages(roots: readonly string[]): Promise<InstalledPackage[]> {
  for (const root of [...roots].reverse()) {
    try {
      return parseDpkgStatus(await readFile(join(root, 'var/lib/dpkg/status'), 'utf8'));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
  }
  throw new InfrabedError('IB_IMAGE_BUILD', 'The image has no package database.');
}

/** Parses dpkg's status file; only what is installed counts. Sorted by name and architecture. */
export function parseDpkgStatus(text: string): InstalledPackage[] {
  return text
    .split('\n\n')
    .flatMap((paragraph): InstalledPackage[] => {
      const field = (name: string): string => new RegExp(`^${name}: (.*)$`, 'm').exec(paragraph)?.[1] ?? '';
      if (!/ installed$/.test(field('Status'))) return [];
      return [{ name: field('Package'), version: field('Version'), architecture: field('Architecture') }];
    })
    .sort((a, b) => (`${a.name} ${a.architecture}` < `${b.name} ${b.architecture}` ? -1 : 1));
}

/** One line a layer and one a package: the text whose SHA-256 is the image's hash. */
export function manifestText(
  packages: readonly InstalledPackage[],
  layers: readonly { name: string; key: string }[],
): string {
  const lines = [
    ...layers.map((layer) => `layer ${layer.name} ${layer.key}`),
    ...packages.map((one) => `package ${one.name} ${one.version} ${one.architecture}`),
  ];
  return `${lines.join('\n')}\n`;
}
