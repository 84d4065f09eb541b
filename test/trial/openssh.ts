// OpenSSH's own clients as the tests start them, and what came of it.
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { start } from '../../src/core/exec.js';

/** An ssh_config for the host `node0` by the given route, with `key` and `known` in `dir`. */
export function hostConfig(dir: string, user: string, route: string): string {
  const lines = [
    'Host node0',
    `User ${user}`,
    route,
    `IdentityFile ${join(dir, 'key')}`,
    'IdentitiesOnly yes',
    'IdentityAgent none',
    `UserKnownHostsFile ${join(dir, 'known')}`,
    'GlobalKnownHostsFile none',
    'StrictHostKeyChecking yes',
    'LogLevel ERROR',
  ];
  return `${lines.join('\n  ')}\n`;
}

export interface Outcome {
  code: number | null;
  signal: string | null;
  stdout: Buffer;
  stderr: string;
}

/** Runs a client program to its end. */
export function client(program: string, args: string[], input?: Buffer | string): Promise<Outcome> {
  return outcomeOf(start(program, args, { env: { ...process.env, LC_TEST: 'passed' } }), input);
}

/** Feeds a started program and waits for its end. */
export function outcomeOf(child: ChildProcess, input?: Buffer | string): Promise<Outcome> {
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout?.on('data', (data: Buffer) => out.push(data));
  child.stderr?.on('data', (data: Buffer) => err.push(data));
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(input ?? '');
  return new Promise((resolve) => {
    child.once('close', (code, signal) => {
      resolve({ code, signal, stdout: Buffer.concat(out), stderr: Buffer.concat(err).toString() });
    });
  });
}

/** Runs ssh with the given ssh_config. */
export const ssh = (config: string, args: string[], input?: Buffer | string): Promise<Outcome> =>
  client('ssh', ['-F', config, ...args], input);
