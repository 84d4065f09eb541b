/** The command line from its sources, for tests that kill it. */
import { main } from '../../src/cli/main.js';

await main(process.argv.slice(2));
