/**
 * The io host: the only way in which anything below the faces speaks to a person.
 * The terminal, the dashboard and the tests are three hosts.
 */

/** Something worth telling while work goes on. `scope` says what it is about ("trial t-...", "image os"). */
export type IoEvent =
  | { type: 'phase'; scope: string; phase: string; state: 'begin' | 'end' | 'failed'; detail?: string }
  | { type: 'progress'; scope: string; message: string; done?: number; total?: number }
  | { type: 'info' | 'warning'; message: string };

export interface Question {
  /** Stable name, for hosts that answer by configuration. */
  id: string;
  message: string;
  /** The answer where nobody can be asked. */
  default: boolean;
}

export interface IoHost {
  notify(event: IoEvent): void;
  ask(question: Question): Promise<boolean>;
}

/** A host that says nothing and gives every question its default. */
export const silentHost: IoHost = {
  notify: () => undefined,
  ask: (question) => Promise.resolve(question.default),
};
