/** Virtual BMCs: one supervised ipmi_sim a node. It knows nothing of what its node is made of. See docs/bmc.md. */
export { bmcPort, controllerAccount, siteAccount, type BmcPlan, type MachineLines } from './config.js';
export { bmcFiles, generatePasswords, supervisorConfig, type PowerProgram } from './files.js';
export { bmcHeader, bmcModule, bmcModuleFolder } from './module.js';
export { waitForBmc } from './status.js';
export { whenReady } from './when-ready.js';
