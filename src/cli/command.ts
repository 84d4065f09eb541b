/** What a command of the face is: a yargs module whose handler gets the io host and nothing global. */
import type { Argv, CommandModule } from 'yargs';
import type { IoHost } from '../core/io.js';

export interface Face {
  io: IoHost;
  /** Prints one line of data to standard output. */
  print(line: string): void;
  /** Prints one JSON object on one line to standard output. */
  printJson(value: unknown): void;
  /** Aborts on the first Ctrl-C or SIGTERM. */
  signal: AbortSignal;
  /** True when standard output is a terminal (colour, live progress). */
  interactive: boolean;
  /** Exit status to end with; 0 unless set. */
  exitStatus: number;
}

export interface CliCommand<A> {
  /** yargs syntax: `list`, `show <trial>`. */
  command: string;
  describe: string;
  /** Declares options and at least one `.example(...)`. */
  builder: (yargs: Argv) => Argv<A>;
  /** Errors are thrown as InfrabedError and printed by main. */
  handler: (args: A, face: Face) => Promise<void>;
}

/** Erases the argument type, so that commands of different arguments stand in one list. */
export function toYargs<A>(command: CliCommand<A>, face: Face): CommandModule<object, A> {
  return {
    command: command.command,
    describe: command.describe,
    builder: command.builder,
    handler: (args) => command.handler(args, face),
  };
}

/** A noun with its verbs: `infrabed cluster up`. */
export interface CliNoun {
  noun: string;
  describe: string;
  verbs: (face: Face) => CommandModule<object, never>[];
}
