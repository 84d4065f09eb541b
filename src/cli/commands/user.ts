/** `infrabed user`: who may ask the server, and by which token. */
import Table from 'cli-table3';
import { userAdd, userList, userRevoke, userToken, userWhoami } from '../../web/api/users.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';
import { perform } from '../perform.js';

interface AddArguments {
  name: string;
  operator: boolean;
  json: boolean;
}

const add: CliCommand<AddArguments> = {
  command: 'add <name>',
  describe: 'let somebody ask the server; prints a token, this once',
  builder: (yargs) =>
    yargs
      .positional('name', { type: 'string', demandOption: true, describe: 'name, as on this machine' })
      .option('operator', {
        type: 'boolean',
        default: false,
        describe: 'may do everything, with everybody’s',
      })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object: user and token' })
      .example('$0 user add ada', 'standard output is the token and nothing else'),
  handler: async (args, face) => {
    const role = args.operator ? 'operator' : 'user';
    const { user, token } = await perform(face, userAdd, { name: args.name, role });
    if (args.json) face.printJson({ user, token });
    else showToken(face, `${user.name} is ${role === 'operator' ? 'an operator' : 'a user'} now.`, token);
  },
};

const list: CliCommand<{ json: boolean }> = {
  command: 'list',
  describe: 'show everybody who has or had a token',
  builder: (yargs) =>
    yargs
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a user' })
      .example('$0 user list', 'names, roles, since when'),
  handler: async (args, face) => {
    const { users } = await perform(face, userList, {});
    if (args.json) {
      for (const user of users) face.printJson(user);
      return;
    }
    if (users.length === 0) {
      face.print('There are no users. "infrabed user add NAME" makes one.');
      return;
    }
    const table = new Table({ head: ['user', 'role', 'since', 'revoked'], style: { head: [], border: [] } });
    for (const { name, role, createdAt, revokedAt } of users) {
      table.push([name, role, minute(createdAt), revokedAt === null ? '' : minute(revokedAt)]);
    }
    face.print(table.toString());
  },
};

const revoke: CliCommand<{ name: string }> = {
  command: 'revoke <name>',
  describe: "make somebody's token worthless at once; leases stay",
  builder: (yargs) =>
    yargs
      .positional('name', { type: 'string', demandOption: true, describe: 'whose' })
      .example('$0 user revoke ada', 'then "infrabed lease list" shows what is still reserved'),
  handler: async (args, face) => {
    const { user } = await perform(face, userRevoke, { name: args.name });
    face.print(`${user.name} has no token any more.`);
  },
};

const token: CliCommand<{ name: string | undefined; json: boolean }> = {
  command: 'token [name]',
  describe: 'a new token in place of the old one, which is worthless at once',
  builder: (yargs) =>
    yargs
      .positional('name', { type: 'string', describe: 'whose; default: your own' })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object: user and token' })
      .example('$0 user token > new && mv new ~/.config/infrabed/token', 'with umask 077, now and then'),
  handler: async (args, face) => {
    const name = args.name ?? (await perform(face, userWhoami, {})).name;
    const { user, token } = await perform(face, userToken, { name });
    if (args.json) face.printJson({ user, token });
    else showToken(face, `The old token of ${user.name} is worthless now.`, token);
  },
};

const whoami: CliCommand<{ json: boolean }> = {
  command: 'whoami',
  describe: 'who you are to the server, and whether your token is good',
  builder: (yargs) =>
    yargs
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object: name and role' })
      .example('$0 user whoami', 'without INFRABED_SERVER: who works on this machine'),
  handler: async (args, face) => {
    const who = await perform(face, userWhoami, {});
    if (args.json) face.printJson(who);
    else face.print(`${who.name} (${who.role})`);
  },
};

/** The token alone goes to standard output, so that it can be sent to a file. */
function showToken(face: Face, what: string, token: string): void {
  const advice = 'The token is shown this once. It belongs into ~/.config/infrabed/token, mode 600.';
  face.io.notify({ type: 'info', message: `${what} ${advice}` });
  face.print(token);
}

function minute(iso: string): string {
  return iso.slice(0, 16).replace('T', ' ');
}

export const userNoun: CliNoun = {
  noun: 'user',
  describe: 'who may ask the server',
  verbs: (face) => [
    toYargs(add, face),
    toYargs(list, face),
    toYargs(revoke, face),
    toYargs(token, face),
    toYargs(whoami, face),
  ],
};
