/** Builds one layer of an image into a folder: mmdebstrap for the bottom, a chroot in an overlay for the others. */
import { createWriteStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { throwIfAborted } from '../../../core/clock.js';
import { InfrabedError } from '../../../core/errors.js';
import { lastLines, run, start } from '../../../core/exec.js';
import type { IoHost } from '../../../core/io.js';
import { asset } from '../../../core/paths.js';
import { hostMirror } from './image-mirror.js';
import type { LayerPlan } from './image-layers.js';

export interface BuildContext {
  io: IoHost;
  /** Everything that the tools print goes into this file. */
  logPath: string;
  signal?: AbortSignal;
}

/** How often a build tells that it is alive. */
const progressIntervalMs = 1000;

/**
 * Builds `plan` into `folder`/root. `lowers` are the finished layers below it, from the bottom up.
 * @throws InfrabedError IB_IMAGE_BUILD with the last lines of what failed.
 */
export async function buildLayer(
  plan: LayerPlan,
  lowers: readonly string[],
  folder: string,
  context: BuildContext,
): Promise<void> {
  const root = join(folder, 'root');
  await mkdir(root, { recursive: true, mode: 0o755 });
  if (plan.kind === 'packages' && plan.file.suite !== undefined) {
    await buildBottom(plan, plan.file.suite, root, context);
    return;
  }
  for (const step of upperSteps(plan)) await runInOverlay(plan.name, step, lowers, folder, context);
  await rm(join(folder, 'work'), { recursive: true, force: true });
}

type PackagesPlan = Extract<LayerPlan, { kind: 'packages' }>;

async function buildBottom(
  plan: PackagesPlan,
  suite: string,
  root: string,
  context: BuildContext,
): Promise<void> {
  const { file, hook } = plan;
  const units = (['enable', 'disable', 'mask'] as const)
    .filter((verb) => file[verb].length > 0)
    .map((verb) => `--customize-hook=chroot "$1" systemctl ${verb} ${file[verb].join(' ')}`);
  await build(plan.name, context, 'mmdebstrap', [
    '--mode=root',
    '--variant=minbase',
    '--verbose',
    `--include=${file.packages.join(',')}`,
    '--aptopt=APT::Install-Recommends "false"',
    '--dpkgopt=path-exclude=/usr/share/man/*',
    '--dpkgopt=path-exclude=/usr/share/locale/*',
    ...(hook === undefined ? [] : [`--customize-hook=${hook} "$1" after`]),
    ...units,
    suite,
    root,
    ...(await hostMirror(suite)),
  ]);
}

/** The steps of a layer that stands on others; arguments of image-layer.sh. */
function upperSteps(plan: LayerPlan): string[][] {
  if (plan.kind === 'script') return [['script', dirname(plan.script), basename(plan.script)]];
  const { file } = plan;
  return [
    ['packages', plan.hook ?? '', ...file.packages],
    ...(['enable', 'disable', 'mask'] as const)
      .filter((verb) => file[verb].length > 0)
      .map((verb) => ['units', verb, ...file[verb]]),
  ];
}

async function runInOverlay(
  name: string,
  step: readonly string[],
  lowers: readonly string[],
  folder: string,
  context: BuildContext,
): Promise<void> {
  for (const part of ['work', 'mount']) await mkdir(join(folder, part), { recursive: true });
  const stack = [...lowers].reverse().join(':');
  const paths = [stack, join(folder, 'root'), join(folder, 'work'), join(folder, 'mount')];
  await build(name, context, 'unshare', [
    '--mount',
    '--propagation=private',
    asset('src/testbed/driver/container/image-layer.sh'),
    ...paths,
    ...step,
  ]);
}

/** Runs a build tool in a process namespace that dies with us, telling what it does at least each second. */
async function build(
  name: string,
  context: BuildContext,
  program: string,
  args: readonly string[],
): Promise<void> {
  throwIfAborted(context.signal);
  const log = createWriteStream(context.logPath, { flags: 'a' });
  const argv = ['--pdeathsig=KILL', 'unshare', '--pid', '--fork', '--kill-child=KILL', program, ...args];
  const child = start('setpriv', argv, { stdio: ['ignore', 'pipe', 'pipe'] });
  const progress = new BuildProgress(name, context.io);
  const onAbort = (): void => {
    child.kill('SIGKILL');
  };
  context.signal?.addEventListener('abort', onAbort, { once: true });
  for (const stream of [child.stdout, child.stderr]) {
    if (!stream) continue;
    createInterface({ input: stream }).on('line', (line) => {
      log.write(`${line}\n`);
      progress.line(line);
    });
  }
  const timer = setInterval(() => progress.tell(), progressIntervalMs);
  try {
    const status = await new Promise<number | string>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => resolve(code ?? signal ?? 'no status'));
    });
    throwIfAborted(context.signal);
    if (status !== 0) throw await buildFailed(name, status, progress, context, program);
  } finally {
    clearInterval(timer);
    context.signal?.removeEventListener('abort', onAbort);
    await new Promise<void>((resolve) => log.end(() => resolve()));
  }
}

async function buildFailed(
  name: string,
  status: number | string,
  progress: BuildProgress,
  context: BuildContext,
  program: string,
): Promise<InfrabedError> {
  const missing = await run('which', [program], { allowFailure: true });
  return new InfrabedError(
    'IB_IMAGE_BUILD',
    `The image layer "${name}" could not be built (${program} ended with ${String(status)}): ${lastLines(progress.tail(), 5)}`,
    {
      hint:
        missing.exitCode === 0
          ? `The whole output is in ${context.logPath}. A mirror that cannot be reached is the usual reason; run the command again once it can.`
          : `The program ${program} is missing: run "make setup".`,
      details: { layer: name, log: context.logPath, output: progress.tail() },
    },
  );
}

/** Counts packages in the output of apt and dpkg, and keeps its end for error messages. */
export class BuildProgress {
  private readonly lines: string[] = [];
  private total = 0;
  private unpacked = 0;
  private configured = 0;
  private message = 'starting';

  constructor(
    private readonly name: string,
    private readonly io: IoHost,
  ) {}

  line(line: string): void {
    if (line.trim() === '') return;
    this.lines.push(line);
    if (this.lines.length > 40) this.lines.shift();
    const newly = /(\d+) newly installed/.exec(line);
    if (newly) this.total += Number(newly[1]);
    const step = /^(Unpacking|Setting up) (\S+)/.exec(line);
    if (step?.[1] === 'Unpacking') this.unpacked += 1;
    if (step?.[1] === 'Setting up') this.configured += 1;
    this.message = (step ? `${step[1] ?? ''} ${step[2] ?? ''}` : line.trim()).slice(0, 100);
  }

  tell(): void {
    const total = this.total * 2;
    this.io.notify({
      type: 'progress',
      scope: `image ${this.name}`,
      message: this.message,
      ...(total > 0 ? { done: Math.min(total, this.unpacked + this.configured), total } : {}),
    });
  }

  tail(): string {
    return this.lines.slice(-20).join('\n');
  }
}
