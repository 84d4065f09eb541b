/** The event stream of `ansible-runner run -j`: one JSON object a line, of which a few fields matter. */
import { z } from 'zod';

const resultSchema = z.looseObject({
  msg: z.unknown().optional(),
  stderr: z.unknown().optional(),
  stdout: z.unknown().optional(),
  module_stderr: z.unknown().optional(),
  module_stdout: z.unknown().optional(),
  /** Of a loop: one result an item. */
  results: z.array(z.unknown()).optional(),
});

const eventSchema = z.looseObject({
  event: z.string(),
  event_data: z
    .looseObject({
      play: z.string().optional(),
      name: z.string().optional(),
      task: z.string().optional(),
      host: z.string().optional(),
      ignore_errors: z.boolean().nullish(),
      res: resultSchema.optional(),
      ok: z.record(z.string(), z.number()).optional(),
      changed: z.record(z.string(), z.number()).optional(),
    })
    .default({}),
});
export type AnsibleEvent = z.output<typeof eventSchema>;

/** The event in a line, or undefined for a line that is none (Ansible's own warnings). */
export function parseEvent(line: string): AnsibleEvent | undefined {
  if (!line.startsWith('{')) return undefined;
  try {
    return eventSchema.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}

export interface TaskFailure {
  play: string;
  task: string;
  host: string;
  /** The last lines of what the module or SSH said. */
  message: string;
  unreachable: boolean;
}

/** What a play did on one host. */
export interface HostTally {
  ok: number;
  changed: number;
  failed: number;
}

/** What one event means; the state is the caller's. */
export type Meaning =
  | { type: 'play'; play: string }
  | { type: 'task'; play: string; task: string }
  | { type: 'result'; host: string; changed: boolean }
  | { type: 'failure'; failure: TaskFailure }
  | { type: 'nothing' };

export function meaningOf({ event, event_data: data }: AnsibleEvent): Meaning {
  const play = data.play ?? data.name ?? 'a play';
  const task = data.task ?? 'a task';
  const host = data.host ?? 'a host';
  switch (event) {
    case 'playbook_on_play_start':
      return { type: 'play', play };
    case 'playbook_on_task_start':
    case 'playbook_on_handler_task_start':
      return { type: 'task', play, task };
    case 'runner_on_ok':
      return { type: 'result', host, changed: data.res?.['changed'] === true };
    case 'runner_on_failed':
    case 'runner_on_unreachable':
      if (data.ignore_errors === true) return { type: 'nothing' };
      return {
        type: 'failure',
        failure: {
          play,
          task,
          host,
          message: failureMessage(data.res),
          unreachable: event.endsWith('unreachable'),
        },
      };
    default:
      return { type: 'nothing' };
  }
}

const shownLines = 4;

/** The part of a result that says what went wrong: the module's own words, or an item's, or what was printed. */
export function failureMessage(result: z.output<typeof resultSchema> | undefined): string {
  if (result === undefined) return 'nothing was said';
  const item = result.results
    ?.map((entry) => resultSchema.safeParse(entry).data)
    .find((entry) => isFailed(entry));
  if (item !== undefined) return failureMessage({ ...item, results: undefined });
  // "MODULE FAILURE" and "non-zero return code" only point at the streams.
  const said = [result.stderr, result.module_stderr, result.stdout, result.module_stdout, result.msg].map(
    lines,
  );
  const message = lines(result.msg);
  const generic = message.some((line) => /^(MODULE FAILURE|non-zero return code)/.test(line));
  const chosen = message.length > 0 && !generic ? message : said.find((list) => list.length > 0);
  return (chosen ?? ['nothing was said']).slice(-shownLines).join(' | ').slice(0, 600);
}

function isFailed(result: z.output<typeof resultSchema> | undefined): boolean {
  return result?.['failed'] === true;
}

function lines(value: unknown): string[] {
  const text = typeof value === 'string' ? value : Array.isArray(value) ? value.map(String).join('\n') : '';
  return text
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => line !== '');
}
