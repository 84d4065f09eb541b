#!/usr/bin/env node
// The command. Runs the built code; a clone that was not built is told what to do.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const entry = new URL('../dist/src/cli/main.js', import.meta.url);
if (!existsSync(fileURLToPath(entry))) {
  process.stderr.write('infrabed is not built yet. Run "make setup" in this folder first.\n');
  process.exit(3);
}
const { main } = await import(entry.href);
await main(process.argv.slice(2));
