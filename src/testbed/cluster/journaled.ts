/** Writes every command of the controller into the journal: the intent before it is sent, the outcome after. */
import type { Clock } from '../../core/clock.js';
import { isInfrabedError } from '../../core/errors.js';
import type { Journal } from '../../core/journal.js';
import type { CommandResult, NodeCommand } from '../driver/driver.js';

/** By which way a command reaches its node. */
export type Way = 'pristine' | 'own' | 'ssh';

const maxArguments = 64;
const maxArgumentLength = 500;

/** The arguments as far as they are kept; what was cut says so. */
export function cappedArgv(argv: readonly string[]): string[] {
  const kept = argv
    .slice(0, maxArguments)
    .map((word) =>
      word.length > maxArgumentLength
        ? `${word.slice(0, maxArgumentLength)}[${String(word.length - maxArgumentLength)} more characters]`
        : word,
    );
  if (argv.length > maxArguments) kept.push(`[${String(argv.length - maxArguments)} more arguments]`);
  return kept;
}

export interface JournaledCommands {
  run(
    node: string,
    way: Way,
    command: NodeCommand,
    act: () => Promise<CommandResult>,
  ): Promise<CommandResult>;
}

/** `node.exec` and `node.exec.end` records, paired by `command`. */
export function journaledCommands(journal: Journal, actor: string, clock: Clock): JournaledCommands {
  let count = 0;
  return {
    async run(node, way, command, act) {
      const id = ++count;
      const startedAt = clock.now();
      const end = (payload: Record<string, unknown>): void =>
        journal.record({
          kind: 'node.exec.end',
          actor,
          node,
          payload: { command: id, ...payload, durationMs: clock.now() - startedAt },
        });
      journal.record({
        kind: 'node.exec',
        actor,
        node,
        payload: {
          command: id,
          way,
          argv: cappedArgv(command.argv),
          ...(command.stdin === undefined ? {} : { stdinBytes: Buffer.byteLength(command.stdin) }),
        },
      });
      try {
        const result = await act();
        const { exitCode, signal, timedOut, truncated } = result;
        end({ exitCode, signal, timedOut, truncated });
        return result;
      } catch (error) {
        end({ error: isInfrabedError(error) ? error.code : 'IB_INTERNAL' });
        throw error;
      }
    },
  };
}
