/** The same work on many nodes with bounded concurrency, every node's outcome kept. */
import pLimit from 'p-limit';

/** What came of one node. */
export type FanOutResult<T> =
  { node: string; ok: true; value: T } | { node: string; ok: false; error: unknown };

/**
 * Runs `work` for each node, at most `concurrency` (default 16) at once, and waits for all of them: the failure of one
 * stops no other. Results stand in the order of `nodes`.
 */
export async function fanOut<T>(
  nodes: readonly string[],
  work: (node: string) => Promise<T>,
  options: { concurrency?: number } = {},
): Promise<FanOutResult<T>[]> {
  const limit = pLimit(options.concurrency ?? 16);
  return Promise.all(
    nodes.map((node) =>
      limit(async (): Promise<FanOutResult<T>> => {
        try {
          return { node, ok: true, value: await work(node) };
        } catch (error) {
          return { node, ok: false, error };
        }
      }),
    ),
  );
}
