/** `infrabed serve` with the operations of the tests, so that one that takes long can be interrupted by a real signal. */
import { silentHost } from '../../src/core/io.js';
import type { Face } from '../../src/cli/command.js';
import { serve } from '../../src/cli/commands/serve.js';
import { userOperations } from '../../src/web/api/users.js';
import { marks, things } from '../web/things.js';

const abort = new AbortController();
process.once('SIGTERM', () => abort.abort());
const print = (line: string): void => void process.stdout.write(`${line}\n`);
const face: Face = {
  io: silentHost,
  print,
  printJson: (value) => print(JSON.stringify(value)),
  signal: abort.signal,
  columns: 80,
  onSecondInterrupt: () => undefined,
  interactive: false,
  explain: (error) => print(String(error)),
  exitStatus: 0,
};
await serve(face, [...things, ...userOperations], { socketPath: process.argv[2] ?? '' });
for (const mark of marks) print(mark);
