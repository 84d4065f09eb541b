/** Reads a task package: parses task.toml, reports everything that is wrong with it at once, hashes it. */
import { createHash } from 'node:crypto';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { basename, join, relative, resolve, sep } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import { errnoOf, InfrabedError } from '../../core/errors.js';
import { adoptForeign } from './foreign.js';
import { invalidTask, type TaskProblem } from './problem.js';
import { taskSchema, type TaskDefinition, type TaskPackage } from './schema.js';
import { schemaProblems } from './schema-problems.js';
import { semanticProblems, type KnownCheckers } from './semantics.js';
import { indexLines, type LineIndex } from './toml-lines.js';

export type { KnownCheckers } from './semantics.js';

export interface LoadOptions {
  /** Checkers by name: with them `uses` and `with` of every check are examined too. */
  checkers?: KnownCheckers;
}

/**
 * Loads a package.
 * @throws InfrabedError IB_TASK_UNKNOWN without a task.toml, IB_TASK_INVALID naming every problem.
 */
export async function loadTask(dir: string, options: LoadOptions = {}): Promise<TaskPackage> {
  const root = resolve(dir);
  const text = await readToml(root);
  const files = await listFiles(root);
  const instruction = files.includes('instruction.md')
    ? await readFile(join(root, 'instruction.md'), 'utf8')
    : '';
  const parsed = parseToml(root, text);
  const foreign = parsed['checks'] === undefined && files.includes('tests/test.sh');
  const { raw, assumed } = foreign
    ? adoptForeign(parsed, basename(root), instruction)
    : { raw: parsed, assumed: [] };
  const lines = indexLines(text);
  const definition = validate(root, raw, lines);
  const problems = semanticProblems({
    definition,
    files: new Set(files),
    instruction,
    lines,
    foreign,
    ...options,
  });
  if (problems.length > 0) throw invalidTask(root, problems);
  return {
    dir: root,
    definition,
    shortName: definition.task.name.replace(/^.*\//, ''),
    instruction,
    hash: await hashFiles(root, files),
    foreign,
    assumed,
  };
}

async function readToml(root: string): Promise<string> {
  try {
    return await readFile(join(root, 'task.toml'), 'utf8');
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT' && errnoOf(error) !== 'ENOTDIR') throw error;
    throw new InfrabedError('IB_TASK_UNKNOWN', `There is no task package at ${root}: it has no task.toml.`, {
      hint: 'Run "infrabed task list" for the tasks there are, or "infrabed task new" to make one.',
      cause: error,
    });
  }
}

function parseToml(root: string, text: string): Record<string, unknown> {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const reason = (error.message.split('\n')[0] ?? '').replace(/^Invalid TOML document: /, '');
    const message = `is not TOML: ${reason} (column ${String(error.column)})`;
    throw invalidTask(root, [{ file: 'task.toml', line: error.line, key: null, message }], error);
  }
}

function validate(root: string, raw: unknown, lines: LineIndex): TaskDefinition {
  const result = taskSchema.safeParse(raw);
  if (result.success) return result.data;
  const problems: TaskProblem[] = schemaProblems(result.error, raw, lines, { file: 'task.toml' });
  throw invalidTask(root, problems, result.error);
}

const ignored = new Set(['.git', 'node_modules']);

/** Every file and link of the package, relative, sorted. */
async function listFiles(root: string): Promise<string[]> {
  const found: string[] = [];
  const walk = async (folder: string): Promise<void> => {
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (ignored.has(entry.name)) continue;
      if (entry.isDirectory()) await walk(path);
      else if (entry.isFile() || entry.isSymbolicLink())
        found.push(relative(root, path).split(sep).join('/'));
    }
  };
  await walk(root);
  return found.sort();
}

/** SHA-256 over path, executable bit and content of every file but admission.json. */
async function hashFiles(root: string, files: readonly string[]): Promise<string> {
  const hash = createHash('sha256');
  for (const file of files) {
    if (file === 'admission.json') continue;
    const path = join(root, file);
    const state = await lstat(path);
    const content = state.isSymbolicLink() ? Buffer.from(await readlink(path)) : await readFile(path);
    const kind = state.isSymbolicLink() ? 'link' : (state.mode & 0o100) === 0 ? 'file' : 'executable';
    hash.update(`${kind} ${String(content.length)} ${file}\n`).update(content);
  }
  return hash.digest('hex');
}
