/** Answers have no number in SSH: they belong to the requests in their order, whoever gives them. */

type Expected<K> = { from: 'node'; kind: K } | { from: 'us'; send: () => void };

export class ReplyQueue<K> {
  private readonly queue: Expected<K>[] = [];

  /** A request that wants an answer was forwarded. */
  expect(kind: K): void {
    this.queue.push({ from: 'node', kind });
  }

  /** Gives an answer of ours, as soon as those before it are given. */
  answer(send: () => void): void {
    this.queue.push({ from: 'us', send });
    this.flush();
  }

  /** The node answered: to what? undefined when it was asked nothing; then the answer must not be passed on. */
  take(pass: (kind: K) => void): void {
    const next = this.queue[0];
    if (next?.from !== 'node') return;
    this.queue.shift();
    pass(next.kind);
    this.flush();
  }

  /** Forgets what was expected. Returns how many answers were. */
  clear(): number {
    return this.queue.splice(0).length;
  }

  get waiting(): number {
    return this.queue.length;
  }

  private flush(): void {
    for (let next = this.queue[0]; next?.from === 'us'; next = this.queue[0]) {
      this.queue.shift();
      next.send();
    }
  }
}
