/** Delivers notices to the hook and the webhook of the settings: at least once each, with the notice's id to tell a repetition. */
import { z } from 'zod';
import type { Selectable } from 'kysely';
import type { Clock } from '../../core/clock.js';
import { InfrabedError, messageOf } from '../../core/errors.js';
import { run } from '../../core/exec.js';
import { redactor } from '../../core/log.js';
import type { Settings } from '../../core/settings.js';
import type { NoticesTable } from '../store/schema.js';
import type { Store } from '../store/store.js';

const channels = ['hook', 'webhook'] as const;
type Channel = (typeof channels)[number];
const toldSchema = z.array(z.enum(channels));

/** A hook or webhook that does not end in this time has failed. */
const channelTimeoutMs = 30_000;
/** While a controller delivers a notice no other one takes it up; one that dies meanwhile leaves it to the next. */
const claimMs = 3 * channelTimeoutMs;
const firstRetryMs = 10_000;
const longestRetryMs = 60 * 60 * 1000;
/** What nobody took in a week is kept in the store, but not tried any more. */
const giveUpAfterMs = 7 * 24 * 60 * 60 * 1000;
const batch = 50;

/** What a hook reads on its standard input, and a webhook in its body. */
export interface NoticeMessage {
  /** The same in every repetition. */
  id: string;
  kind: string;
  subject: string;
  /** ISO 8601, UTC. */
  at: string;
  [field: string]: unknown;
}

export interface Delivery {
  delivered: number;
  /** One sentence a notice that will be tried again. */
  failed: string[];
}

/**
 * Tries every notice that is due. A channel that failed is tried again later, ten seconds at first and an hour at most
 * between tries; one that has the notice is not told again, unless this process dies before that is written down.
 */
export async function deliverNotices(
  store: Store,
  settings: Settings['notices'],
  clock: Clock,
  signal?: AbortSignal,
): Promise<Delivery> {
  const delivery: Delivery = { delivered: 0, failed: [] };
  for (const notice of await dueNotices(store, clock)) {
    if (signal?.aborted) break;
    if (!(await claim(store, notice, clock))) continue;
    const failures = await tell(notice, settings, signal);
    await writeDown(store, notice, failures, settings, clock);
    if (failures.size === 0) delivery.delivered++;
    else delivery.failed.push(`Notice ${notice.id}: ${[...failures.values()].join(' ')}`);
  }
  return delivery;
}

function dueNotices(store: Store, clock: Clock): Promise<Selectable<NoticesTable>[]> {
  return store.db
    .selectFrom('notices')
    .selectAll()
    .where('delivered_at', 'is', null)
    .where('next_try_at', '<=', clock.now())
    .orderBy('created_at')
    .limit(batch)
    .execute();
}

async function claim(store: Store, notice: Selectable<NoticesTable>, clock: Clock): Promise<boolean> {
  const { numUpdatedRows } = await store.db
    .updateTable('notices')
    .set({ next_try_at: clock.now() + claimMs, attempts: notice.attempts + 1 })
    .where('id', '=', notice.id)
    .where('attempts', '=', notice.attempts)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

function wantedChannels(settings: Settings['notices']): Channel[] {
  return channels.filter((channel) => settings[channel] !== null);
}

/** Returns what went wrong, by channel. */
async function tell(
  notice: Selectable<NoticesTable>,
  settings: Settings['notices'],
  signal: AbortSignal | undefined,
): Promise<Map<Channel, string>> {
  const { hook, webhook } = settings;
  const message = messageIn(notice);
  const told = new Set(toldSchema.parse(JSON.parse(notice.told)));
  const failures = new Map<Channel, string>();
  const attempt = async (channel: Channel, work: () => Promise<void>): Promise<void> => {
    if (told.has(channel)) return;
    try {
      await work();
    } catch (error) {
      failures.set(channel, `${channel}: ${redactor.redact(messageOf(error))}`);
    }
  };
  if (hook !== null) await attempt('hook', () => runHook(hook, message, signal));
  if (webhook !== null) await attempt('webhook', () => callWebhook(webhook, message, signal));
  return failures;
}

function messageIn(notice: Selectable<NoticesTable>): NoticeMessage {
  const { id, kind, subject, created_at: at, payload } = notice;
  return {
    ...z.record(z.string(), z.unknown()).parse(JSON.parse(payload)),
    id,
    kind,
    subject,
    at: new Date(at).toISOString(),
  };
}

async function runHook(
  hook: readonly string[],
  message: NoticeMessage,
  signal: AbortSignal | undefined,
): Promise<void> {
  const [program = '', ...args] = hook;
  await run(program, args, {
    input: `${JSON.stringify(message)}\n`,
    env: { INFRABED_NOTICE: message.id, INFRABED_NOTICE_KIND: message.kind },
    timeoutMs: channelTimeoutMs,
    ...(signal === undefined ? {} : { signal }),
  });
}

async function callWebhook(
  url: string,
  message: NoticeMessage,
  signal: AbortSignal | undefined,
): Promise<void> {
  // Such addresses often hold a token.
  redactor.add(url);
  const limit = AbortSignal.timeout(channelTimeoutMs);
  let status: number;
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'infrabed-notice': message.id },
      body: JSON.stringify(message),
      redirect: 'error',
      signal: signal === undefined ? limit : AbortSignal.any([limit, signal]),
    });
    status = response.status;
    await response.body?.cancel();
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? ` (${messageOf(error.cause)})` : '';
    throw new InfrabedError('IB_SERVER', `The webhook could not be called: ${messageOf(error)}${cause}.`, {
      cause: error,
    });
  }
  if (status < 200 || status > 299)
    throw new InfrabedError('IB_SERVER', `The webhook answered with status ${String(status)}.`);
}

async function writeDown(
  store: Store,
  notice: Selectable<NoticesTable>,
  failures: ReadonlyMap<Channel, string>,
  settings: Settings['notices'],
  clock: Clock,
): Promise<void> {
  const now = clock.now();
  const retryMs = Math.min(firstRetryMs * 2 ** notice.attempts, longestRetryMs);
  const isOver = now - notice.created_at > giveUpAfterMs;
  const told = new Set(toldSchema.parse(JSON.parse(notice.told)));
  for (const channel of wantedChannels(settings)) if (!failures.has(channel)) told.add(channel);
  await store.db
    .updateTable('notices')
    .set({
      told: JSON.stringify([...told]),
      // With nobody to be told it is done: whoever is named later wants no news of last month.
      ...(failures.size === 0 ? { delivered_at: now } : {}),
      error: failures.size === 0 ? null : [...failures.values()].join(' '),
      next_try_at: isOver ? Number.MAX_SAFE_INTEGER : now + retryMs,
    })
    .where('id', '=', notice.id)
    .execute();
}
