/** The files of one virtual BMC: lan.conf (how it is reached, accounts, module) and sim.emu (what it is made of). */
import { createHash } from 'node:crypto';
import { InfrabedError } from '../../../core/errors.js';
import { asset } from '../../../core/paths.js';
import { fullSensorRecord, sensors } from './sensors.js';

/** The controller's own account; its password belongs to a generation of the lease. In slot 2. */
export const controllerAccount = 'infrabed';
/** The site's administrator, whose password a task may hand to the agent. In slot 3. */
export const siteAccount = 'admin';

/** RMCP's own port (ASF 2.0). */
export const bmcPort = 623;
/** Small enough to be filled by a task: 512 records of 16 bytes. */
export const selRecords = 512;

export interface BmcPlan {
  /** Of the node. */
  name: string;
  /** The BMC's own, on the controller: everything about it lies there. */
  folder: string;
  address: string;
  netmask: string;
  port: number;
  /** Of a virtual machine. */
  lines?: MachineLines;
}

/** Paths of UNIX sockets (machine_lines.py). */
export interface MachineLines {
  /** The machine's serial port, which it serves: for serial over LAN. */
  serial: string;
  /** In-band IPMI: what the machine's `ipmi-bmc-extern` connects to. Its owner is as whom the hypervisor runs machines. */
  kcs: OwnedSocket;
  /** Where the machine's QEMU connects a monitor to, for us to hear that its system restarted it. */
  events: OwnedSocket;
}

interface OwnedSocket {
  path: string;
  uid: number;
  gid: number;
}

/** What a reader of the serial port that came late can still get from the BMC. */
const historyBytes = 16_384;

/**
 * lan.conf without the controller's account, which bmcd adds at each start from its password file.
 * @throws InfrabedError IB_USAGE for what cannot be written into that file.
 */
export function lanConf(plan: BmcPlan, modulePath: string, sitePassword: string): string {
  const lines = [
    `name ${quoted(plan.name)}`,
    'set_working_mc 0x20',
    '  startlan 1',
    `    addr ${plan.address} ${String(plan.port)}`,
    '    priv_limit admin',
    // Neither none nor straight: no session without a password, and no password in the clear.
    ...['callback', 'user', 'operator', 'admin'].map((level) => `    allowed_auths_${level} md5`),
    `    guid ${guid(plan)}`,
    `    lan_config_program ${quoted(`/bin/sh ${asset('src/testbed/driver/bmc/lan-config.sh')} ${plan.address} ${plan.netmask} ${mac(plan)}`)}`,
    '  endlan',
    `  loadlib ${quoted(modulePath)} ${quoted(plan.folder)}`,
    // The addresses stand for sockets that it inherits (module/lines.c).
    ...(plan.lines === undefined
      ? []
      : [
          '  serial kcs 127.0.0.1 1 codec VM',
          `  sol "tcp:127.0.0.1:1" 115200 history=${String(historyBytes)}`,
        ]),
    `  user 3 true "${siteAccount}" "${checkedPassword(sitePassword)}" admin 10`,
  ];
  return `${lines.join('\n')}\n`;
}

/** sim.emu: one management controller with event log, sensors and FRU data. */
export function emulatorCommands(plan: BmcPlan): string {
  const lines = [
    'mc_setbmc 0x20',
    // Device 0, no device SDRs, firmware 1.0, all kinds of device support but a bridge.
    'mc_add 0x20 0 no-device-sdrs 0x01 1 0 0x9f 0x000000 0x0001 persist_sdr',
    // 0x0a: can be reserved, and adds events.
    `sel_enable 0x20 ${String(selRecords)} 0x0a`,
    ...sensors.flatMap((sensor) => [
      `sensor_add 0x20 0 ${String(sensor.number)} ${hex(sensor.type)} 0x01 poll 1000 file ${quoted(`${plan.folder}/${sensor.file}`)} div=${String(sensor.divisor)}`,
      // Upper critical and non-critical only, both readable.
      `sensor_set_threshold 0x20 0 ${String(sensor.number)} settable 011000 0x00 ${hex(sensor.upperCritical)} ${hex(sensor.upperNonCritical)} 0x00 0x00 0x00`,
      `sensor_set_event_support 0x20 0 ${String(sensor.number)} enable scanning per-state 000000011000000 000000011000000 000000011000000 000000011000000`,
      `main_sdr_add 0x20 ${fullSensorRecord(sensor).map(hex).join(' ')}`,
    ]),
    // An empty FRU inventory area: its common header (FRU Information Storage Definition 1.0, section 8).
    'mc_add_fru_data 0x20 0 0x40 data 0x01 0x00 0x00 0x00 0x00 0x00 0x00 0xff',
    'mc_enable 0x20',
  ];
  return `${lines.join('\n')}\n`;
}

const hex = (byte: number): string => `0x${byte.toString(16).padStart(2, '0')}`;

/** The same for the same BMC at each start. */
function guid({ name, folder }: BmcPlan): string {
  return createHash('sha256').update(`${folder}\n${name}`).digest('hex').slice(0, 32);
}

/** Locally administered, and the same at each start. */
function mac(plan: BmcPlan): string {
  return `02:${guid(plan).slice(0, 10).match(/../g)?.join(':') ?? ''}`;
}

function quoted(text: string): string {
  if (/["$\n]/.test(text))
    throw new InfrabedError('IB_USAGE', `${JSON.stringify(text)} cannot be used for a virtual BMC.`, {
      hint: 'A path of the state folder may have no quotes, dollar signs or line breaks.',
    });
  return `"${text}"`;
}

/** Its parser knows no spaces and no quotes in a password; ours are never made of such. */
function checkedPassword(password: string): string {
  if (/^[A-Za-z0-9]{8,16}$/.test(password)) return password;
  throw new InfrabedError(
    'IB_INTERNAL',
    'The password of a virtual BMC has to be 8 to 16 letters and digits.',
  );
}
