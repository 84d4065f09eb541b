/** The module that ipmi_sim loads: compiled once for its sources and the headers that are installed, then kept. */
import { mkdir, readFile, readdir, rename, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { InfrabedError, errnoOf, isInfrabedError } from '../../../core/errors.js';
import { lastLines, run } from '../../../core/exec.js';
import { sha256 } from '../../../core/ids.js';
import { asset } from '../../../core/paths.js';

/** What the module is compiled with. */
export const bmcHeader = '/usr/include/OpenIPMI/lanserv.h';
const compileTimeoutMs = 120_000;
const install = 'Install the packages openipmi, libopenipmi-dev and gcc: "make setup" does.';

/** Where it is kept in a folder of the backend, whose other entries have no such names. */
export const bmcModuleFolder = (folder: string): string => join(folder, '.bmc-module');

/** Path of the module in `folder`. @throws InfrabedError IB_HOST_UNFIT when compiler, headers or ipmi_sim are missing. */
export async function bmcModule(folder: string, signal?: AbortSignal): Promise<string> {
  if (!existsSync('/usr/bin/ipmi_sim'))
    throw new InfrabedError('IB_HOST_UNFIT', 'ipmi_sim is not installed.', { hint: install });
  const sources = await moduleSources();
  const path = join(folder, `${sha256(await contents([bmcHeader, ...sources])).slice(0, 16)}.so`);
  if (existsSync(path)) return path;
  await mkdir(folder, { recursive: true, mode: 0o755 });
  const fresh = `${path}.${randomBytes(4).toString('hex')}.new`;
  const code = sources.filter((source) => source.endsWith('.c'));
  try {
    const options = ['-shared', '-fPIC', '-O2', '-Wall', '-o', fresh];
    const limits = { timeoutMs: compileTimeoutMs, allowFailure: true, ...(signal ? { signal } : {}) };
    const { exitCode, stderr } = await run('cc', [...options, ...code, '-ldl'], limits);
    if (exitCode !== 0)
      throw new InfrabedError('IB_HOST_UNFIT', `The BMC module did not compile: ${lastLines(stderr, 3)}`, {
        hint: install,
      });
    // Whoever compiles it at the same time makes the same.
    await rename(fresh, path);
  } catch (error) {
    if (!isInfrabedError(error, 'IB_PROGRAM_MISSING')) throw error;
    throw new InfrabedError('IB_HOST_UNFIT', 'There is no C compiler (cc) for the BMC module.', {
      hint: install,
      cause: error,
    });
  } finally {
    await rm(fresh, { force: true });
  }
  return path;
}

async function moduleSources(): Promise<string[]> {
  const folder = asset('src/testbed/driver/bmc/module');
  return (await readdir(folder)).sort().map((name) => join(folder, name));
}

async function contents(paths: readonly string[]): Promise<string> {
  try {
    return (await Promise.all(paths.map((path) => readFile(path, 'utf8')))).join('\0');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    throw new InfrabedError('IB_HOST_UNFIT', `${bmcHeader} is not installed.`, {
      hint: install,
      cause: error,
    });
  }
}
