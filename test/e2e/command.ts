/** The command line from its sources, for tests that need it as a process of its own. */
import { main } from '../../src/cli/main.js';

await main(process.argv.slice(2));
