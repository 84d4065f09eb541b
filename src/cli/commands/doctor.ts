/** `infrabed doctor`: can this machine run nodes, and what is to be done where it cannot? */
import { stateDir } from '../../core/paths.js';
import { hostChecks, type HostCheck } from '../../testbed/driver/container/index.js';
import { vmChecks } from '../../testbed/driver/libvirt/index.js';
import type { CliCommand } from '../command.js';

interface DoctorArguments {
  json: boolean;
}

const marks: Record<HostCheck['state'], string> = { ok: 'ok  ', warn: 'warn', fail: 'FAIL' };

export const doctorCommand: CliCommand<DoctorArguments> = {
  command: 'doctor',
  describe: 'check what this machine needs to run nodes, and say what to do where something is missing',
  builder: (yargs) =>
    yargs
      .option('json', { type: 'boolean', default: false, describe: 'one JSON object a check' })
      .example('$0 doctor', 'a line a check; status 3 if nodes cannot run here'),
  async handler(args, face) {
    const checks = [...(await hostChecks(stateDir())), ...(await vmChecks(stateDir()))];
    const width = Math.max(...checks.map((check) => check.name.length));
    for (const check of checks) {
      if (args.json) {
        face.printJson(check);
        continue;
      }
      face.print(`${marks[check.state]}  ${check.name.padEnd(width)}  ${check.detail}`);
      if (check.state !== 'ok' && check.hint !== '') face.print(`${' '.repeat(width + 8)}-> ${check.hint}`);
    }
    if (checks.some((check) => check.state === 'fail')) face.exitStatus = 3;
  },
};
