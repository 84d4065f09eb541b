/** Every checker by the name that `uses` gives. Only the faces import this map; they hand it down. */
import type { Checker, CheckerMap } from '../src/trial/gate/checker.js';
import { bmcAlerting } from './bmc-alerting.js';
import { bmcBootOverride } from './bmc-boot-override.js';
import { bmcUserAbsent } from './bmc-user-absent.js';
import { bmcWatchdog } from './bmc-watchdog.js';
import { fileAbsent } from './file-absent.js';
import { fileContent } from './file-content.js';
import { harborTest } from './harbor-test.js';
import { httpProbe } from './http-probe.js';
import { noDrift } from './no-drift.js';
import { nodesReachable } from './nodes-reachable.js';
import { packageState } from './package-state.js';
import { pingPath } from './ping-path.js';
import { portOpen } from './port-open.js';
import { processAbsent } from './process-absent.js';
import { selContains } from './sel-contains.js';
import { shell } from './shell.js';
import { sqlQuery } from './sql-query.js';
import { unitState } from './unit-state.js';

const all: readonly Checker[] = [
  bmcAlerting,
  bmcBootOverride,
  bmcUserAbsent,
  bmcWatchdog,
  fileAbsent,
  fileContent,
  harborTest,
  httpProbe,
  noDrift,
  nodesReachable,
  packageState,
  pingPath,
  portOpen,
  processAbsent,
  selContains,
  shell,
  sqlQuery,
  unitState,
];

export const checkers: CheckerMap = new Map(all.map((checker) => [checker.name, checker]));
