/** A virtual machine as libvirt describes one: a pure function of what the machine is. */
import type { BootOverride } from '../driver.js';

export interface DomainDisk {
  path: string;
  format: 'qcow2' | 'raw';
  /** Serial number, by which the system in the machine knows it. */
  serial: string;
  /** I/O operations a second, reads and writes together, that the hypervisor lets through. */
  iopsSec?: number;
}

export interface Domain {
  name: string;
  uuid: string;
  accelerator: 'kvm' | 'tcg';
  memoryMiB: number;
  cpus: number;
  /** The system's own disk first. */
  disks: readonly DomainDisk[];
  /** Directly started kernel; absent: the firmware starts the boot loader of the first disk. */
  kernel?: { image: string; initrd: string; arguments: string };
  mac: string;
  /** Name of the network card's end on the hypervisor, at most 15 characters. */
  tap: string;
  /** What the serial port says is appended to this file, and served at this UNIX socket. */
  console: { log: string; socket: string };
  /** UNIX socket of the BMC's in-band interface. */
  kcs: string;
  /** UNIX socket of whoever has to hear that the system restarted the machine. */
  events: string;
  /** From where the firmware boots instead. libvirt has no override of its own, so it is part of the description. */
  override?: BootOverride['device'];
}

/** Translated code per machine without KVM, MiB. Without a limit it takes a GiB before it is ever reused. */
const translationCacheMiB = 128;

/** Locally administered, as QEMU's own prefix is, and unique within a cluster. */
export function macAddress(index: number): string {
  return `52:54:00:4d:00:${(index + 1).toString(16).padStart(2, '0')}`;
}

/** The text that `virsh define` takes (libvirt, "Domain XML format"). */
export function domainXml(domain: Domain): string {
  const { accelerator, disks } = domain;
  const type = accelerator === 'kvm' ? 'kvm' : 'qemu';
  return [
    element('domain', { type, 'xmlns:qemu': 'http://libvirt.org/schemas/domain/qemu/1.0' }, [
      element('name', {}, domain.name),
      element('uuid', {}, domain.uuid),
      element('memory', { unit: 'MiB' }, String(domain.memoryMiB)),
      element('vcpu', {}, String(domain.cpus)),
      element('os', {}, bootLines(domain)),
      element('features', {}, [
        element('acpi'),
        element('apic'),
        ...(accelerator === 'kvm'
          ? []
          : [element('tcg', {}, [element('tb-cache', { unit: 'MiB' }, String(translationCacheMiB))])]),
      ]),
      element('cpu', { mode: accelerator === 'kvm' ? 'host-passthrough' : 'maximum' }),
      element('clock', { offset: 'utc' }),
      element('on_poweroff', {}, 'destroy'),
      // An override holds for the next boot: with one, a restart has to go by way of a new description.
      element('on_reboot', {}, 'restart'),
      element('on_crash', {}, 'destroy'),
      element('devices', {}, [
        ...disks.map(diskLine),
        element('interface', { type: 'ethernet' }, [
          element('mac', { address: domain.mac }),
          element('target', { dev: domain.tap }),
          element('model', { type: 'virtio' }),
          element('driver', { name: 'qemu' }),
          ...(bootsFromNetwork(domain) ? [] : [element('rom', { enabled: 'no' })]),
        ]),
        element('serial', { type: 'unix' }, [
          element('source', { mode: 'bind', path: domain.console.socket }),
          element('log', { file: domain.console.log, append: 'on' }),
          element('target', { port: '0' }),
        ]),
        element('memballoon', { model: 'none' }),
        element('controller', { type: 'usb', model: 'none' }),
      ]),
      linesToBmc(domain),
    ]),
    '',
  ].join('\n');
}

/**
 * libvirt knows no device that a BMC outside of QEMU stands behind, and tells only who stays connected of a restart. The
 * sockets need not be there: QEMU tries again each second, and the machine starts meanwhile.
 */
function linesToBmc({ kcs, events }: Domain): string {
  const line = (id: string, path: string): string[] => [
    '-chardev',
    `socket,id=${id},path=${path.replaceAll(',', ',,')},reconnect=1`,
  ];
  const words = [
    ...line('bmc', kcs),
    ...['-device', 'ipmi-bmc-extern,id=bmc0,chardev=bmc'],
    ...['-device', 'isa-ipmi-kcs,bmc=bmc0'],
    ...line('events', events),
    ...['-mon', 'chardev=events,mode=control'],
  ];
  return element(
    'qemu:commandline',
    {},
    words.map((value) => element('qemu:arg', { value })),
  );
}

const bootsFromNetwork = (domain: Domain): boolean => domain.override === 'pxe';

function bootLines(domain: Domain): string[] {
  const type = element('type', { arch: 'x86_64', machine: 'q35' }, 'hvm');
  const { kernel, override } = domain;
  // Firmware and boot loader speak on the console, too.
  const spoken = element('bios', { useserial: 'yes' });
  if (bootsFromNetwork(domain)) return [type, element('boot', { dev: 'network' }), spoken];
  if (override === 'cdrom' || override === 'bios') return [type, element('boot', { dev: 'cdrom' }), spoken];
  if (kernel === undefined || override === 'disk') return [type, element('boot', { dev: 'hd' }), spoken];
  return [
    type,
    element('kernel', {}, kernel.image),
    element('initrd', {}, kernel.initrd),
    element('cmdline', {}, kernel.arguments),
  ];
}

/** The host is told nothing of flushes: a testbed's machine need not survive a power cut of the hypervisor. */
function diskLine({ path, format, serial, iopsSec }: DomainDisk, index: number): string {
  return element('disk', { type: 'file', device: 'disk' }, [
    element('driver', { name: 'qemu', type: format, cache: 'unsafe', discard: 'unmap' }),
    element('source', { file: path }),
    element('target', { dev: `vd${String.fromCharCode(97 + index)}`, bus: 'virtio' }),
    element('serial', {}, serial),
    ...(iopsSec === undefined
      ? []
      : [element('iotune', {}, [element('total_iops_sec', {}, String(iopsSec))])]),
  ]);
}

function element(
  name: string,
  attributes: Record<string, string> = {},
  content?: string | readonly string[],
): string {
  const words = Object.entries(attributes).map(([key, value]) => ` ${key}="${escapeXml(value)}"`);
  const opening = `<${name}${words.join('')}`;
  if (content === undefined) return `${opening}/>`;
  const inside = typeof content === 'string' ? escapeXml(content) : `\n${content.join('\n')}\n`;
  return `${opening}>${inside}</${name}>`;
}

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
};

function escapeXml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (sign) => entities[sign] ?? sign);
}
