/** The command line: the explicit list of commands, errors as sentences, exit statuses. */
import { setMaxListeners } from 'node:events';
import yargs from 'yargs';
import { InfrabedError, isInfrabedError, messageOf } from '../core/errors.js';
import { redactor } from '../core/log.js';
import { DoneElsewhere, type CliNoun, type Face } from './command.js';
import { refuseThroughServer } from './here-only.js';
import { TerminalHost } from './terminal-host.js';
import { nouns, commands } from './commands/index.js';
import { version } from './version.js';

/** Runs one command line (without node and script) and sets the exit status. */
export async function main(argv: readonly string[]): Promise<void> {
  const host = new TerminalHost(process.stderr, {
    quiet: argv.includes('--quiet'),
    answerYes: argv.includes('--yes'),
  });
  const { signal, secondPress } = interruptions(host);
  const face: Face = {
    io: host,
    print: (line) => void process.stdout.write(`${line}\n`),
    printJson: (value) => void process.stdout.write(`${JSON.stringify(value)}\n`),
    signal,
    onSecondInterrupt: secondPress,
    interactive: process.stdout.isTTY,
    columns: Math.min(100, process.stdout.columns || 100),
    exitStatus: 0,
    explain: (error) => void explain(error, argv.includes('--debug')),
  };
  // A closed pipe (`| head`) is the reader's choice, not our error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
    process.exit(face.exitStatus);
  });
  try {
    await parse(argv, face);
  } catch (error) {
    if (!(error instanceof DoneElsewhere)) face.exitStatus = explain(error, argv.includes('--debug'));
  } finally {
    host.close();
  }
  process.exitCode = face.exitStatus;
  // Nothing may keep a finished command alive; what must end has been awaited by its owner.
  process.exit();
}

async function parse(argv: readonly string[], face: Face): Promise<void> {
  let parser = yargs([...argv])
    .scriptName('infrabed')
    .usage('$0 <command>\n\nA testbed for studying how AI agents run infrastructure.')
    .version(version())
    .option('quiet', { type: 'boolean', describe: 'no progress on standard error', global: true })
    .option('debug', { type: 'boolean', describe: 'show the stack of an error', global: true, hidden: true })
    .strict()
    .middleware(({ _: words }) => refuseThroughServer(words.map(String), process.env['INFRABED_SERVER']))
    .demandCommand(1, 'Which command? See infrabed --help.')
    .recommendCommands()
    .wrap(Math.min(100, process.stderr.columns || 100))
    .exitProcess(false)
    .fail((message: string | null, error: Error | undefined) => {
      if (error instanceof InfrabedError || error instanceof DoneElsewhere) throw error;
      if (error && !message) throw error;
      if (message?.startsWith('Not enough non-option arguments')) {
        throw new InfrabedError('IB_USAGE', 'Something that the command needs is missing.', {
          hint: `Run "infrabed ${argv.join(' ')} --help".`,
        });
      }
      throw new InfrabedError('IB_USAGE', message ?? messageOf(error), {
        hint: 'Run the command with --help.',
      });
    });
  for (const command of commands) parser = parser.command(command(face));
  for (const noun of nouns) parser = parser.command(nounModule(noun, face));
  await parser.parseAsync();
}

function nounModule(noun: CliNoun, face: Face): Parameters<ReturnType<typeof yargs>['command']>[0] {
  return {
    command: `${noun.noun} <verb>`,
    describe: noun.describe,
    builder: (inner: ReturnType<typeof yargs>) => {
      let sub = inner;
      for (const verb of noun.verbs(face)) sub = sub.command(verb);
      return sub.demandCommand(1, `Which verb? See infrabed ${noun.noun} --help.`);
    },
    handler: () => undefined,
  } as unknown as Parameters<ReturnType<typeof yargs>['command']>[0];
}

function explain(error: unknown, debug: boolean): number {
  const known = isInfrabedError(error)
    ? error
    : new InfrabedError('IB_INTERNAL', `An error inside infrabed: ${messageOf(error)}`, {
        cause: error,
        hint: 'This is a defect; run it again with --debug for its place and report it.',
      });
  process.stderr.write(`${known.code}: ${redactor.redact(known.message)}\n`);
  if (known.hint) process.stderr.write(`  ${known.hint}\n`);
  if (debug) process.stderr.write(`${redactor.redact(stackOf(error))}\n`);
  return known.exitStatus;
}

function stackOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const below = error.cause === undefined ? '' : `\ncaused by: ${stackOf(error.cause)}`;
  return `${error.stack ?? error.message}${below}`;
}

/** The first Ctrl-C or SIGTERM asks for an orderly end; the second says what is left and ends at once. */
function interruptions(host: TerminalHost): {
  signal: AbortSignal;
  secondPress: (leftovers: () => string[]) => void;
} {
  const controller = new AbortController();
  // Every wait of every trial side by side listens to this one signal, which is no leak.
  setMaxListeners(0, controller.signal);
  let leftovers: () => string[] = () => [];
  const onSignal = (): void => {
    if (!controller.signal.aborted) {
      host.notify({
        type: 'warning',
        message: 'Stopping and cleaning up; press Ctrl-C again to leave at once.',
      });
      controller.abort(new InfrabedError('IB_CANCELLED', 'Cancelled.'));
      return;
    }
    const left = leftovers();
    host.close();
    process.stderr.write(
      left.length === 0
        ? 'Left at once; nothing was held.\n'
        : `Left at once. Still there:\n${left.map((line) => `  ${line}\n`).join('')}  "infrabed sweep" removes it.\n`,
    );
    process.exit(3);
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  process.on('SIGHUP', onSignal);
  return {
    signal: controller.signal,
    secondPress: (list) => {
      leftovers = list;
    },
  };
}
