/** How the image's owners get into a cluster's uid range: idmapped mounts where the kernel can, else a shifted copy. */
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isInfrabedError, messageOf } from '../../../core/errors.js';
import { run } from '../../../core/exec.js';
import { withLock } from '../../../core/lock.js';
import { asset } from '../../../core/paths.js';
import { rangeSize } from './uid-range.js';

export type UidMapping = 'idmapped' | 'shifted-copy';

export interface MappingProbe {
  mapping: UidMapping;
  /** Why not idmapped; empty otherwise. */
  why: string;
}

/** The one range that all clusters share where layers have to be copied. */
export const sharedUidBase = 0x7fff * rangeSize;

let probed: Promise<MappingProbe> | undefined;

/** Tries an idmapped layer below an overlay for real, once a process. INFRABED_UID_MAPPING overrides the result. */
export function probeMapping(): Promise<MappingProbe> {
  const wanted = process.env['INFRABED_UID_MAPPING'];
  if (wanted === 'idmapped' || wanted === 'shifted-copy') {
    return Promise.resolve({ mapping: wanted, why: 'INFRABED_UID_MAPPING says so.' });
  }
  probed ??= probe();
  return probed;
}

async function probe(): Promise<MappingProbe> {
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-mapping-'));
  try {
    await run(
      '/usr/bin/python3',
      ['-I', '-S', asset('src/testbed/driver/container/mapping-probe.py'), folder],
      { timeoutMs: 20_000 },
    );
    return { mapping: 'idmapped', why: '' };
  } catch (error) {
    if (!isInfrabedError(error, 'IB_PROGRAM_FAILED')) throw error;
    return { mapping: 'shifted-copy', why: messageOf(error) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Copies of the layers with shifted owners, made once beside each layer. Returns their root folders. */
export async function shiftedCopies(roots: readonly string[]): Promise<string[]> {
  const copies: string[] = [];
  for (const root of roots) {
    const copy = `${root}-shifted`;
    if (!existsSync(copy)) {
      await withLock(`${root}-shifted.lock`, async () => {
        if (existsSync(copy)) return;
        await rm(`${copy}.new`, { recursive: true, force: true });
        const script = asset('src/testbed/driver/container/shift-owners.py');
        await run('/usr/bin/python3', ['-I', '-S', script, root, `${copy}.new`, String(sharedUidBase)]);
        await rename(`${copy}.new`, copy);
      });
    }
    copies.push(copy);
  }
  return copies;
}
