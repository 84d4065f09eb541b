/** Which backend of this machine a task runs on where nobody says. */
import type { HostBackend } from '../../testbed/driver/index.js';
import type { TaskPackage } from '../task/schema.js';

/** The cheapest one that has what the task needs; what this machine has nothing for is refused by the trial itself. */
export function backendFor(task: TaskPackage): HostBackend {
  const { type } = task.definition.environment;
  return type === 'vm' || type === 'vm-cluster' ? 'libvirt' : 'container';
}
