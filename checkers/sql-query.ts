/** One SQL query to PostgreSQL or PgBouncer, by the socket or over TCP, and what it gives or how it is refused. */
import { readFile } from 'node:fs/promises';
import { isAbsolute, join, normalize } from 'node:path';
import { z } from 'zod';
import { InfrabedError } from '../src/core/errors.js';
import { defineChecker, type CheckContext, type Judgement } from '../src/trial/gate/checker.js';
import { brief, fail, pass, pattern } from './expectation.js';
import { scriptText } from './node-script.js';

const inside = (path: string): boolean => isAbsolute(path) || !normalize(path).startsWith('..');
const cell = z
  .union([z.string(), z.number(), z.boolean().transform((value) => (value ? 't' : 'f'))])
  .transform(String);

const parameters = z
  .strictObject({
    query: z.string().min(1).optional().describe('The SQL; one statement gives the rows that are judged.'),
    query_file: z
      .string()
      .refine((path) => !isAbsolute(path) && inside(path), 'must lie inside the package')
      .optional()
      .describe('Script of the package that holds the SQL, instead of `query`.'),
    database: z.string().min(1).describe('Name of the database ("pgbouncer" for its admin console).'),
    user: z.string().min(1).describe('Role that logs in.'),
    to: z
      .string()
      .optional()
      .describe('Name of the node that is asked over TCP; left out: the Unix socket of `on`.'),
    address: z.string().optional().describe('Address for TCP, such as "127.0.0.1", or folder of the socket.'),
    port: z.number().int().min(1).max(65535).default(5432).describe('Port (6432 for PgBouncer as a rule).'),
    password_file: z
      .string()
      .refine(inside, 'must lie inside the package or be absolute')
      .optional()
      .describe('File whose first line is the password: absolute on the node, relative in the package.'),
    password_key: z
      .string()
      .optional()
      .describe('Where the file holds KEY=VALUE lines: the key whose value is the password.'),
    as: z.string().default('root').describe('System user that runs psql (matters for peer authentication).'),
    sslmode: z.enum(['disable', 'prefer', 'require']).default('prefer').describe('As in libpq.'),
    expect_rows: z
      .array(z.array(cell))
      .optional()
      .describe('Exactly these rows, in this order; values as text.'),
    min_rows: z.number().int().min(0).optional().describe('At least so many rows.'),
    max_rows: z.number().int().min(0).optional().describe('At most so many rows.'),
    expect_error: pattern
      .optional()
      .describe('It must be refused or fail, with a message that matches, such as "authentication failed".'),
  })
  .refine((table) => (table.query === undefined) !== (table.query_file === undefined), {
    error: 'needs either query or query_file',
  })
  .refine((table) => table.expect_error === undefined || table.expect_rows === undefined, {
    error: 'expect_error and expect_rows exclude each other',
  });
type Parameters = z.output<typeof parameters>;

const evidence = z.strictObject({
  /** 0 done, 1 psql itself, 2 no connection, 3 the query failed; null when it was ended. */
  exitCode: z.number().nullable(),
  timedOut: z.boolean(),
  truncated: z.boolean(),
  /** Cells as text, null for NULL. At most 1000 rows. */
  rows: z.array(z.array(z.string().nullable())),
  rowCount: z.number(),
  error: z.string(),
});
type Evidence = z.output<typeof evidence>;

/** The script's own exit status for "there is no psql in the image": no answer of the database. */
const noClient = 100;

async function gather(context: CheckContext, wanted: Parameters): Promise<Evidence> {
  const query = wanted.query ?? (await readFile(join(context.taskDir, wanted.query_file ?? ''), 'utf8'));
  const password = await findPassword(context, wanted);
  if (password === undefined) return { ...nothing, error: `no password in ${String(wanted.password_file)}` };
  const host =
    wanted.address ??
    (wanted.to === undefined ? '/var/run/postgresql' : context.cluster.node(wanted.to).address);
  const settings = [host, String(wanted.port), wanted.user, wanted.database, wanted.as, wanted.sslmode];
  const result = await context.cluster.exec(context.node, {
    argv: ['bash', '-c', await scriptText('sql-query.sh'), 'sql-query', ...settings],
    // The password goes in by the first line of standard input: command lines are seen by everybody on the node.
    stdin: `${password}\n${query}\n`,
    timeoutMs: context.commandTimeoutMs,
    maxOutputBytes: 1024 * 1024,
    signal: context.signal,
  });
  if (result.exitCode === noClient)
    throw new InfrabedError('IB_CHECKER_FAILED', `The image of ${context.node} has no psql.`, {
      hint: 'Ask from a node whose layers bring the client, such as "postgres".',
    });
  const rows = parseRows(result.stdout);
  const { exitCode, timedOut, truncated } = result;
  return {
    exitCode,
    timedOut,
    truncated,
    rows: rows.slice(0, 1000),
    rowCount: rows.length,
    error: brief(result.stderr, 1000),
  };
}

const nothing = { exitCode: null, timedOut: false, truncated: false, rows: [], rowCount: 0 };

/** The password, '' where none is wanted, undefined where its file or key is not there. */
async function findPassword(
  { cluster, node, taskDir }: CheckContext,
  wanted: Parameters,
): Promise<string | undefined> {
  const { password_file: path, password_key: key } = wanted;
  if (path === undefined) return '';
  let text: string;
  if (isAbsolute(path)) {
    const state = await cluster.read(node, path, 64 * 1024);
    if (state.type !== 'file') return undefined;
    text = state.content;
  } else text = await readFile(join(taskDir, path), 'utf8');
  const lines = text.split('\n').map((line) => line.trim());
  if (key === undefined) return lines[0] === '' ? undefined : lines[0];
  const value = lines.find((line) => line.replace(/\s*=.*/, '') === key)?.replace(/^[^=]*=\s*/, '');
  return value?.replace(/^(["'])(.*)\1$/, '$2');
}

/** psql's unaligned output: \x1f between cells, \x1e between rows, \x1d for NULL, a line break behind the last row. */
export function parseRows(text: string): (string | null)[][] {
  if (text === '') return [];
  const ends = text.endsWith('\n') || text.endsWith('\x1e');
  const records = (ends ? text.slice(0, -1) : text).split('\x1e');
  return records.map((record) => record.split('\x1f').map((value) => (value === '\x1d' ? null : value)));
}

function judge(seen: Evidence, wanted: Parameters): Judgement {
  if (seen.timedOut) return fail('the database did not answer in time');
  if (wanted.expect_error !== undefined) return judgeRefusal(seen, wanted.expect_error);
  if (seen.exitCode !== 0) return fail(`the query failed: ${brief(seen.error) || 'no message'}`);
  if (seen.truncated) return fail('the query gave more than is kept');
  const count = `${String(seen.rowCount)} row${seen.rowCount === 1 ? '' : 's'}`;
  if (wanted.expect_rows !== undefined && JSON.stringify(seen.rows) !== JSON.stringify(wanted.expect_rows))
    return fail(
      `the query gave ${brief(JSON.stringify(seen.rows))}, not ${brief(JSON.stringify(wanted.expect_rows))}`,
    );
  if (wanted.min_rows !== undefined && seen.rowCount < wanted.min_rows)
    return fail(`the query gave ${count}, fewer than ${String(wanted.min_rows)}`);
  if (wanted.max_rows !== undefined && seen.rowCount > wanted.max_rows)
    return fail(`the query gave ${count}, more than ${String(wanted.max_rows)}`);
  return pass(`the query gave ${seen.rowCount === 1 ? brief(JSON.stringify(seen.rows[0])) : count}`);
}

function judgeRefusal(seen: Evidence, expected: string): Judgement {
  if (seen.exitCode === 0) return fail(`the query went through, though it was to fail with /${expected}/`);
  if (!new RegExp(expected, 'm').test(seen.error))
    return fail(`it failed with "${brief(seen.error)}", which does not match /${expected}/`);
  return pass(`refused: ${brief(seen.error)}`);
}

export const sqlQuery = defineChecker<Parameters, Evidence>({
  name: 'sql-query',
  summary: 'A SQL query to PostgreSQL or PgBouncer gives certain rows, or is refused.',
  with: parameters,
  evidence,
  programs: ['psql', 'runuser'],
  gather,
  judge,
});
