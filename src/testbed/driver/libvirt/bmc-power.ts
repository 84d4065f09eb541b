/** How a virtual machine's BMC works its power, by the controller's own acts for whoever has the cluster, and its lines. */
import { join } from 'node:path';
import { asset } from '../../../core/paths.js';
import { bmcFolder, powerFileName, type BmcJoint } from '../container/bmc.js';
import { cleanEnvironment } from '../container/supervisor.js';
import { pidFileOf } from './hypervisor.js';
import { powerRequest, type VmContext, type VmPlace } from './place.js';

/** Of power, what vm-bmc-power.py hands to vm-act.py; only the generation is not in it. */
export function vmBmcJoint(
  context: VmContext,
  place: VmPlace,
  /** As whom the hypervisor runs machines. */
  owner: { uid: number; gid: number },
): BmcJoint {
  const script = asset('src/testbed/driver/libvirt/vm-bmc-power.py');
  const { clusterId: cluster, fence, mark } = place.holding;
  const pidFile = pidFileOf(context.hypervisor, place.domain);
  return {
    program: {
      argv: ['/usr/bin/python3', '-I', '-S', script, join(bmcFolder(place), powerFileName)],
      // libvirt removes it when the machine's process has ended.
      onFile: { path: pidFile, text: '' },
    },
    request: {
      ...powerRequest(context, place),
      pidFile,
      ownFolder: context.hypervisor.ownFolder ?? null,
      env: cleanEnvironment,
      cluster,
      fence,
      mark,
      via: 'bmc',
      isFirst: true,
    },
    lines: {
      serial: place.sockets.serial,
      kcs: { path: place.sockets.kcs, ...owner },
      events: { path: place.sockets.events, ...owner },
    },
  };
}
