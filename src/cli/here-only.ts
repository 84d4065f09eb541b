/** Commands that work on the machine they are typed on, and so not through a server: said in one place. */
import { InfrabedError } from '../core/errors.js';

/** By the words of the command, from the longest fitting one: what a person can do instead. */
const hereOnly: ReadonlyMap<string, string> = new Map([
  ['cluster ssh', "Log in to the server's machine, where the cluster is."],
  ['doctor', 'It looks at this machine: run it without INFRABED_SERVER.'],
  ['image', "Images lie on the server's machine: log in there."],
  ['ledger', 'It reads a bundle on this machine: run it without INFRABED_SERVER.'],
  ['resume', 'The server resumes by itself when it starts.'],
  ['serve', 'A server owns a state folder of this machine: run it without INFRABED_SERVER.'],
  ['sweep', 'The server does this by itself when it starts.'],
  ['task admit', "Trials run on the server's machine: log in there."],
  [
    'trial regrade',
    "Bundles lie on the server's machine: log in there, or run it without INFRABED_SERVER for a folder here.",
  ],
]);

/**
 * For all commands, before their handlers.
 * @throws InfrabedError IB_USAGE when INFRABED_SERVER is set and the command would not go there.
 */
export function refuseThroughServer(words: readonly string[], server: string | undefined): void {
  if (!server) return;
  const [noun = '', verb = ''] = words;
  const hint = hereOnly.get(`${noun} ${verb}`) ?? hereOnly.get(noun);
  if (hint === undefined) return;
  const command = hereOnly.has(noun) ? noun : `${noun} ${verb}`;
  throw new InfrabedError(
    'IB_USAGE',
    `"infrabed ${command}" does not go through a server, and INFRABED_SERVER is set.`,
    {
      hint,
    },
  );
}
