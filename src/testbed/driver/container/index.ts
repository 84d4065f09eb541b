/** System containers on this machine: what other rooms use of this backend. */
export { createContainerBackend, type ContainerBackendOptions } from './backend.js';
export { hostChecks, type HostCheck } from './host-checks.js';
export { ImageCache, imageCacheDir, type Image, type LayerRecord } from './image-cache.js';
export { dialThrough } from './dial.js';
export { currentLayers, mountedLayers } from './image-use.js';
export { layerNames, layerStack } from './image-layers.js';
export { powerActs, type PowerAct } from './power-log.js';
