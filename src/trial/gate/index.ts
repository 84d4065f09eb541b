/** The gates, the window and the power-cycle, as a trial calls them. */
export type { Checker, CheckerMap, CheckContext, Gate, Judgement, Moment } from './checker.js';
export { runGate, type RunGateOptions } from './gate.js';
export { loadLocalChecker } from './local-checker.js';
export type { GateOptions } from './look.js';
export { rebootNodes, type RebootOptions, type RebootResult } from './reboot.js';
export { probeTimes, runRunningGate, type RunningGateOptions } from './running.js';
export { openToolGuard, type ToolGuard } from './tool-guard.js';
export { startWindow, type WindowOptions, type WindowWatch } from './window.js';
