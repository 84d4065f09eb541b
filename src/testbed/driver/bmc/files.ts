/** What lies in a BMC's folder when it is made, and what bmcd is told of all BMCs of a cluster. */
import { randomBytes } from 'node:crypto';
import { controllerAccount, emulatorCommands, lanConf, type BmcPlan } from './config.js';
import { sensors } from './sensors.js';

/** How a node's power is worked: an argument list that gets state, on, off, reset or soft as one word more. */
export interface PowerProgram {
  argv: readonly string[];
  /** A file whose content proves that the node is on, so that the program need not be asked. */
  onFile?: { path: string; text: string };
}

export interface BmcPasswords {
  controller: string;
  site: string;
}

/** 80 bits in 16 letters and digits, the most that IPMI 1.5 takes. */
export function generatePasswords(): BmcPasswords {
  const one = (): string =>
    [...randomBytes(16)].map((byte) => 'abcdefghijklmnopqrstuvwxyz234567'[byte % 32]).join('');
  return { controller: one(), site: one() };
}

/** Names (in the BMC's folder) and contents; all are the controller's alone (mode 0600), and so is the folder (0700). */
export function bmcFiles(
  plan: BmcPlan,
  modulePath: string,
  passwords: BmcPasswords,
): { name: string; content: string }[] {
  return [
    { name: 'lan.conf', content: lanConf(plan, modulePath, passwords.site) },
    { name: 'sim.emu', content: emulatorCommands(plan) },
    { name: 'password', content: `${passwords.controller}\n` },
    { name: 'admin-password', content: `${passwords.site}\n` },
    ...sensors.map(({ file, initial }) => ({ name: file, content: `${String(initial)}\n` })),
  ];
}

/** The configuration file of bmcd.py. It ends when that file is removed. */
export function supervisorConfig(
  bmcs: readonly { plan: BmcPlan; power: PowerProgram }[],
  modulePath: string,
  /** Path of the network namespace that the BMCs are in; null: that of bmcd itself. */
  netns: string | null,
): unknown {
  return {
    netns,
    ipmiSim: '/usr/bin/ipmi_sim',
    module: modulePath,
    bmcs: bmcs.map(({ plan: { name, folder, address, port, lines }, power }) => ({
      name,
      folder,
      address,
      port,
      account: controllerAccount,
      power,
      ...lines,
    })),
  };
}
