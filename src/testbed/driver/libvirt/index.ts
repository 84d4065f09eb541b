/** Virtual machines of libvirt on this machine: what other rooms use of this backend. */
export { createLibvirtBackend } from './backend.js';
export { vmChecks } from './host-checks.js';
