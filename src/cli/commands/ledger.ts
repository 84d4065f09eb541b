/** `infrabed ledger verify`: is the record of a trial what was written then? */
import { stateDir } from '../../core/paths.js';
import { verifyBundleFiles, type FileCheck } from '../../record/bundle/files.js';
import { readPublicKey, sitePublicKey } from '../../record/ledger/site-key.js';
import { verifyLedger, type Verification } from '../../record/ledger/verify.js';
import { asRootToLook } from '../as-root.js';
import { namedBundle } from '../bundle-argument.js';
import { toYargs, type CliCommand, type CliNoun, type Face } from '../command.js';
import { printable } from '../../core/printable.js';

interface VerifyArguments {
  bundle: string;
  'public-key': string | undefined;
  json: boolean;
}

/** Against which key the seal was held. */
type Trust = 'given' | 'site' | 'none';

const verify: CliCommand<VerifyArguments> = {
  command: 'verify <bundle>',
  describe: 'Find any record of a trial that was altered, removed, reordered or added',
  builder: (yargs) =>
    yargs
      .positional('bundle', {
        type: 'string',
        demandOption: true,
        describe: 'folder of a bundle, or a trial',
      })
      .option('public-key', {
        type: 'string',
        describe: "the sealing site's keys/site.pub; default: this site's, for its own trials",
      })
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object' })
      .example('$0 ledger verify t-20260115-093000-abcd', 'a trial of this site')
      .example('$0 ledger verify ./bundle --public-key site.pub', 'a bundle from elsewhere'),
  async handler(args, face) {
    if (asRootToLook(face, args.bundle)) return;
    const { dir, ours } = await namedBundle(args.bundle);
    const { publicKey, trust } = await trustedKey(args['public-key'], ours);
    const result = await verifyLedger(dir, publicKey === undefined ? {} : { publicKey });
    // What a broken ledger says about files proves nothing.
    const files = result.ok ? await verifyBundleFiles(dir) : { listed: false, count: 0, problems: [] };
    const ok = result.ok && files.problems.length === 0;
    if (!ok) face.exitStatus = 3;
    if (args.json) face.printJson({ bundle: dir, ...result, ok, trust, files });
    else tell(face, dir, result, files, trust);
  },
};

async function trustedKey(
  file: string | undefined,
  ours: boolean,
): Promise<{ publicKey: string | undefined; trust: Trust }> {
  if (file !== undefined) return { publicKey: await readPublicKey(file), trust: 'given' };
  const publicKey = ours ? await sitePublicKey(stateDir()) : undefined;
  return { publicKey, trust: publicKey === undefined ? 'none' : 'site' };
}

const trustSentences: Readonly<Record<Trust, string>> = {
  given: 'sealed with the key that was given',
  site: "sealed with this site's key",
  none: 'sealed, but its key was compared with none that is trusted (--public-key does that)',
};

function tell(face: Face, dir: string, result: Verification, files: FileCheck, trust: Trust): void {
  const of = `${String(result.count)} records of ${printable(result.trial ?? 'no trial')} in ${dir}`;
  if (result.ok && files.problems.length === 0) {
    face.print(`ok: ${of}, ${trustSentences[trust]}.`);
    if (files.listed) face.print(`ok: ${String(files.count)} files have the hashes that the ledger holds.`);
    return;
  }
  face.print(`NOT OK: ${of}.`);
  for (const { line, problem } of result.problems) {
    face.print(`  ${line === null ? 'ledger' : `line ${String(line)}`}: ${printable(problem)}`);
  }
  const unshown = result.problemCount - result.problems.length;
  if (unshown > 0) face.print(`  and ${String(unshown)} more problems`);
  for (const problem of files.problems) face.print(`  file: ${printable(problem)}`);
}

export const ledgerNoun: CliNoun = {
  noun: 'ledger',
  describe: 'The record of a trial',
  verbs: (face) => [toYargs(verify, face)],
};
