// Runs the test files one after another, unit tests first, shows what failed,
// and closes with the line "N passed, N failed" that counts every named test.
import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Parser } from 'tap-parser';

const root = fileURLToPath(new URL('..', import.meta.url));
const words = process.argv.slice(2);
const wanted = words.filter((word) => word !== '--vm');

/** Test files below a folder, sorted. */
function files(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.test.ts'))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}

const all = files(join(root, 'test'));
// Virtual machines need programs that nothing else does, and minutes a boot where they are emulated: `make test-vm` tries
// all of it, `--vm` adds one whole trial to the rest.
const isVm = (file) => file.startsWith('test/vm/');
const usual = all.filter(
  (file) => !isVm(file) || (words.includes('--vm') && file === 'test/vm/trial.test.ts'),
);
const chosen = wanted.length === 0 ? usual : all.filter((file) => wanted.some((word) => file.includes(word)));
const e2e = chosen.filter((file) => file.startsWith('test/e2e/'));
const vm = chosen.filter(isVm);
const unit = chosen.filter((file) => !e2e.includes(file) && !vm.includes(file));

const totals = { passed: 0, failed: 0, skipped: 0 };
const failures = [];

/** A file that prints nothing for this long hangs; it is ended and counted as failed. */
const silenceLimitMin = (file) => (isVm(file) ? 20 : 8);

function runFile(file) {
  return new Promise((resolve) => {
    const started = Date.now();
    const child = spawn(process.execPath, ['--import=tsx', '--enable-source-maps', file], {
      cwd: root,
      // tap's own limit of 30 s a file is one for a quiet machine; hangs are ended below.
      env: { TAP_TIMEOUT: '240', ...process.env, TAP: '1', TAP_DIAG: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const counts = { passed: 0, failed: 0, skipped: 0 };
    const failed = [];
    let stderr = '';
    let hung = false;
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(
        () => {
          hung = true;
          child.kill('SIGKILL');
        },
        silenceLimitMin(file) * 60_000,
      );
    };
    alive();
    const parser = new Parser();
    // Named tests are the parser's children of the first level; a file without them counts its assertions.
    parser.on('assert', (result) => {
      const named = result.name.replace(/ # time=.*/, '');
      if (result.skip || result.todo) counts.skipped++;
      else if (result.ok) counts.passed++;
      else {
        counts.failed++;
        failed.push(named);
      }
    });
    let tail = '';
    child.stdout.on('data', (chunk) => {
      alive();
      tail = (tail + chunk).slice(-2_000_000);
      parser.write(chunk);
    });
    child.stderr.on('data', (chunk) => {
      alive();
      stderr = (stderr + chunk).slice(-20_000);
    });
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      parser.end();
      if (counts.failed === 0 && (code !== 0 || counts.passed + counts.skipped === 0)) {
        counts.failed++;
        failed.push(
          hung ? `printed nothing for ${silenceLimitMin(file)} minutes` : `ended with ${signal ?? code}`,
        );
      }
      for (const key of Object.keys(totals)) totals[key] += counts[key];
      const seconds = ((Date.now() - started) / 1000).toFixed(1);
      console.log(
        `${counts.failed ? 'FAIL' : 'ok  '} ${file} (${counts.passed} passed, ${counts.failed} failed${counts.skipped ? `, ${counts.skipped} skipped` : ''}; ${seconds} s)`,
      );
      if (counts.failed) {
        failures.push({ file, failed });
        console.log(failedParts(tail));
        if (stderr) console.log(`--- standard error\n${stderr}`);
      }
      resolve();
    });
  });
}

/** What a file's output says of each assertion that failed: the line itself, what was expected, and where. */
function failedParts(output) {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  const parts = lines.flatMap((line, index) =>
    /^\s*not ok/.test(line) ? [lines.slice(index, index + 40).join('\n')] : [],
  );
  return parts.length > 0 ? parts.slice(0, 6).join('\n...\n') : lines.slice(-60).join('\n');
}

// One at a time: several start many processes of their own, and wait for them as long as a machine with nothing else
// to do would need.
for (const file of [...unit, ...e2e, ...vm]) await runFile(file);
for (const { file, failed } of failures) for (const name of failed) console.log(`failed: ${file}: ${name}`);
console.log(
  `${totals.passed} passed, ${totals.failed} failed${totals.skipped ? `, ${totals.skipped} skipped` : ''}`,
);
process.exit(totals.failed === 0 && totals.passed > 0 ? 0 : 1);
