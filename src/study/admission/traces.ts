/** The search for what would give a task away: lines of its hidden scripts, found on a node the agent can reach. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import { lastLines } from '../../core/exec.js';
import { asset } from '../../core/paths.js';
import type { Cluster } from '../../testbed/cluster/cluster.js';

/** Folders of a package that an agent must find nothing of. */
const hiddenFolders = ['environment', 'solution', 'mutants', 'checks', 'tests'] as const;
/** Lines that any script may have. */
const commonplace = /^(#!|set -|import |from \S+ import )/;
/** Shorter lines are too common to tell anything. */
const shortest = 24;

/**
 * The commands and comments of a script, one line each: what a shell history, a log or a left-over script would show.
 * Here-documents are left out: a script writes those into files on purpose.
 */
export function needlesOf(script: string): string[] {
  const needles: string[] = [];
  let end: string | undefined;
  for (const line of script.split('\n')) {
    if (end !== undefined) {
      if (line.trim() === end) end = undefined;
      continue;
    }
    end = /<<-?\s*["']?([A-Za-z_][A-Za-z0-9_]*)["']?/.exec(line)?.[1];
    const text = line.trim();
    if (text.length >= shortest && text.includes(' ') && !commonplace.test(text)) needles.push(text);
  }
  return needles;
}

/** Needles of all hidden scripts of a package, each once. */
export async function taskNeedles(taskDir: string): Promise<string[]> {
  const needles = new Set<string>();
  for (const folder of hiddenFolders) {
    for (const file of await scriptsBelow(join(taskDir, folder))) {
      for (const needle of needlesOf(await readFile(file, 'utf8'))) needles.add(needle);
    }
  }
  return [...needles];
}

async function scriptsBelow(folder: string): Promise<string[]> {
  let entries;
  try {
    entries = await readdir(folder, { recursive: true, withFileTypes: true });
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []; // not every package has every folder
    throw error;
  }
  return entries
    .filter((entry) => entry.isFile() && /\.(sh|py|mjs)$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
}

const answer = z.object({ found: z.array(z.tuple([z.string(), z.string()])), files: z.number() });

/** Where on the node the needles were found: `node:place: needle`. @throws InfrabedError IB_NODE_FAILED. */
export async function searchTraces(
  cluster: Cluster,
  node: string,
  needles: readonly string[],
): Promise<string[]> {
  const script = await readFile(asset('src/study/admission/search-traces.py'), 'utf8');
  const result = await cluster.exec(node, {
    argv: ['/usr/bin/python3', '-I', '-c', script],
    stdin: JSON.stringify({ needles }),
    timeoutMs: 120_000,
    maxOutputBytes: 4 * 1024 * 1024,
  });
  if (result.exitCode !== 0) {
    throw new InfrabedError(
      'IB_NODE_FAILED',
      `The search for traces on ${node} failed: ${lastLines(result.stderr, 2)}`,
    );
  }
  return answer
    .parse(JSON.parse(result.stdout))
    .found.map(([place, needle]) => `${node}:${place}: ${needle}`);
}
