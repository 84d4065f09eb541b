/** The failpoints of the store: before and after every write that another process can see, named by its tables. */
import { failpoint } from '../../core/failpoint.js';

const writing = /^\s*(insert|update|delete)\b(?:\s+or\s+\w+)?(?:\s+into|\s+from)?\s+"?(\w+)"?/i;
/** Written every few seconds whatever happens: where it falls would differ from run to run. */
const heartbeat = /^\s*update\s+"?controllers"?\s+set\s+"?heartbeat_at"?\s*=/i;

/** What a statement writes, or undefined for one that reads. */
export function writeOf(statement: string): { table: string; kind: string } | undefined {
  if (heartbeat.test(statement)) return undefined;
  const [, kind, table] = writing.exec(statement) ?? [];
  return kind === undefined || table === undefined ? undefined : { table, kind: kind.toLowerCase() };
}

/** One connection's: what stands in its transaction becomes visible at the commit, so that is where its point is. */
export class WritePoints {
  private readonly written = new Set<string>();

  /** Runs a statement with its points around it. */
  around<T>(statement: string, inTransaction: boolean, run: () => T): T {
    const name = this.nameOf(statement, inTransaction);
    if (name === undefined) return run();
    failpoint(`${name}.before`);
    const result = run();
    failpoint(`${name}.after`);
    return result;
  }

  private nameOf(statement: string, inTransaction: boolean): string | undefined {
    if (statement === 'commit') {
      const tables = [...this.written].sort().join('+');
      this.written.clear();
      return tables === '' ? undefined : `store.commit.${tables}`;
    }
    if (statement === 'begin' || statement === 'rollback') this.written.clear();
    const write = writeOf(statement);
    if (write === undefined) return undefined;
    if (!inTransaction) return `store.${write.table}.${write.kind}`;
    this.written.add(write.table);
    return undefined;
  }
}
