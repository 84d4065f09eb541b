/** What a command of the face is: a yargs module whose handler gets the io host and nothing global. */
import type { ArgumentsCamelCase, Argv, CommandModule } from 'yargs';
import type { IoHost } from '../core/io.js';

export interface Face {
  io: IoHost;
  /** Prints one line of data to standard output. */
  print(line: string): void;
  /** Prints one JSON object on one line to standard output. */
  printJson(value: unknown): void;
  /** Aborts on the first Ctrl-C or SIGTERM. */
  signal: AbortSignal;
  /** Width to print at: the terminal's, at most 100, since longer lines are hard to read. */
  columns: number;
  /** Registers what a second Ctrl-C names as left behind, one sentence each. */
  onSecondInterrupt: (leftovers: () => string[]) => void;
  /** True when standard output is a terminal (colour, live progress). */
  interactive: boolean;
  /** Shows an error that does not end the command: code, sentence, hint. */
  explain(error: unknown): void;
  /** Exit status to end with; 0 unless set. */
  exitStatus: number;
}

/** Thrown to end a command that another process (sudo's) has done; the face has its exit status already. */
export class DoneElsewhere extends Error {}

export interface CliCommand<A> {
  /** yargs syntax: `list`, `show <trial>`. */
  command: string;
  describe: string;
  /** Declares options and at least one `.example(...)`. */
  builder: (yargs: Argv) => Argv<A>;
  /** Errors are thrown as InfrabedError and printed by main. */
  handler: (args: ArgumentsCamelCase<A>, face: Face) => Promise<void>;
}

/** Erases the argument type, so that commands of different arguments stand in one list. */
export function toYargs<A>(command: CliCommand<A>, face: Face): CommandModule<object, never> {
  const module: CommandModule<object, A> = {
    command: command.command,
    describe: command.describe,
    builder: command.builder,
    handler: (args) => command.handler(args, face),
  };
  return module as unknown as CommandModule<object, never>;
}

/** A noun with its verbs: `infrabed cluster up`. */
export interface CliNoun {
  noun: string;
  describe: string;
  verbs: (face: Face) => CommandModule<object, never>[];
}
