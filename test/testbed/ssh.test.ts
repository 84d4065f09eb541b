/** SSH against a real sshd on loopback: host keys, exact results, limits, and what happens when things break. */
import t from 'tap';
import type { Test } from 'tap';
import fc from 'fast-check';
import { existsSync } from 'node:fs';
import { createServer, connect as tcpConnect } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Client } from 'ssh2';
import { waitFor } from '../../src/core/clock.js';
import { isInfrabedError } from '../../src/core/errors.js';
import { run, shellQuote } from '../../src/core/exec.js';
import { freshBootId, waitForFreshSession } from '../../src/testbed/ssh/boot-identity.js';
import { commandLine } from '../../src/testbed/ssh/command.js';
import { connect } from '../../src/testbed/ssh/connect.js';
import type { ConnectOptions } from '../../src/testbed/ssh/connect.js';
import { fanOut } from '../../src/testbed/ssh/fan-out.js';
import { generateKeyPair } from '../../src/testbed/ssh/keys.js';
import { ConnectionPool } from '../../src/testbed/ssh/pool.js';
import { LoopbackSshd } from './loopback-sshd.js';

const code = (wanted: string) => (error: unknown) => isInfrabedError(error) && error.code === wanted;

// Every login costs CPU time; on a busy machine the default of 30 s for a file is too short.
t.setTimeout(180_000);

async function sshd(test: Test, settings: readonly string[] = []): Promise<LoopbackSshd> {
  const daemon = new LoopbackSshd(settings);
  test.teardown(() => daemon.remove());
  await daemon.start();
  return daemon;
}

function optionsFor(daemon: LoopbackSshd, more: Partial<ConnectOptions> = {}): ConnectOptions {
  return {
    dial: daemon.dial,
    hostKey: daemon.host.publicKey,
    username: daemon.username,
    privateKey: daemon.user.privateKey,
    name: 'node0',
    ...more,
  };
}

function poolOn(
  test: Test,
  daemon: LoopbackSshd,
  more: { maxConnections?: number; sessionsPerConnection?: number } = {},
): ConnectionPool {
  const open = (signal: AbortSignal): Promise<Client> => connect(optionsFor(daemon, { signal }));
  const pool = new ConnectionPool({ name: 'node0', open, ...more });
  test.teardown(() => pool.close());
  return pool;
}

t.test('connecting', async (t) => {
  const daemon = await sshd(t);

  await t.test('the known host key and the right user key give a connection', async (t) => {
    const client = await connect(optionsFor(daemon));
    t.ok(client);
    client.end();
  });

  await t.test('another host key is refused and named so', async (t) => {
    const hostKey = generateKeyPair('other').publicKey;
    await t.rejects(connect(optionsFor(daemon, { hostKey })), { code: 'IB_SSH_HOST_KEY' });
  });

  await t.test('a host that has no key of the known type counts as another host', async (t) => {
    const hostKey = `ssh-rsa ${generateKeyPair('other').publicKey.split(' ')[1]!}`;
    await t.rejects(connect(optionsFor(daemon, { hostKey })), { code: 'IB_SSH_HOST_KEY' });
  });

  await t.test('a key that sshd does not accept is an authentication error', async (t) => {
    const { privateKey } = generateKeyPair('stranger');
    await t.rejects(connect(optionsFor(daemon, { privateKey })), { code: 'IB_SSH_AUTH' });
  });

  await t.test('a refused dial is an unreachable node', async (t) => {
    const dial = (): Promise<never> => Promise.reject(new Error('connection refused'));
    await t.rejects(connect(optionsFor(daemon, { dial })), {
      code: 'IB_NODE_UNREACHABLE',
      message: /refused/,
    });
  });

  await t.test('a dial that never ends is cut by the time-out, and its stream is destroyed', async (t) => {
    const mute = createServer((socket) => socket.on('error', () => undefined));
    await new Promise<void>((resolve) => mute.listen(0, '127.0.0.1', resolve));
    t.teardown(() => mute.close());
    const stream = tcpConnect((mute.address() as AddressInfo).port, '127.0.0.1');
    const dial = (): Promise<typeof stream> => Promise.resolve(stream);
    await t.rejects(connect(optionsFor(daemon, { dial, timeoutMs: 100 })), { code: 'IB_TIMEOUT' });
    t.ok(stream.destroyed);
    const again = tcpConnect((mute.address() as AddressInfo).port, '127.0.0.1');
    await t.rejects(
      connect(optionsFor(daemon, { dial: () => Promise.resolve(again), answerTimeoutMs: 50 })),
      {
        code: 'IB_NODE_UNREACHABLE',
        message: /Nothing answers/,
      },
    );
  });

  await t.test('an aborted signal cancels', async (t) => {
    await t.rejects(connect(optionsFor(daemon, { signal: AbortSignal.abort() })), { code: 'IB_CANCELLED' });
    const controller = new AbortController();
    const pending = connect(optionsFor(daemon, { signal: controller.signal }));
    controller.abort();
    await t.rejects(pending, { code: 'IB_CANCELLED' });
  });
});

t.test('commands', async (t) => {
  const daemon = await sshd(t);
  const pool = poolOn(t, daemon);

  await t.test('exit status, output and standard input are exact', async (t) => {
    const result = await pool.run({ argv: ['sh', '-c', 'cat; echo bad >&2; exit 7'], stdin: 'a\nb' });
    t.match(result, {
      exitCode: 7,
      signal: null,
      stdout: 'a\nb',
      stderr: 'bad\n',
      truncated: false,
      timedOut: false,
    });
  });

  await t.test('the signal that ended a program is told', async (t) => {
    t.match(await pool.run({ argv: ['sh', '-c', 'kill -TERM $$'] }), { exitCode: null, signal: 'SIGTERM' });
    t.match(await pool.run({ argv: ['sh', '-c', 'kill -KILL $$'] }), { exitCode: null, signal: 'SIGKILL' });
  });

  await t.test('a program that is not there gives 127', async (t) => {
    t.equal((await pool.run({ argv: ['no-such-program'] })).exitCode, 127);
  });

  await t.test('any arguments and variables arrive as they were given', async (t) => {
    const text = fc.string({ unit: 'binary' }).filter((word) => !word.includes('\0'));
    await fc.assert(
      fc.asyncProperty(fc.array(text, { maxLength: 5 }), text, async (words, value) => {
        const argv = ['sh', '-c', 'printf "%s\\0" "$@" "$VALUE"', 'sh', ...words];
        const { stdout } = await pool.run({ argv, env: { VALUE: value } });
        t.strictSame(stdout.split('\0').slice(0, -1), [...words, value]);
      }),
      { numRuns: 40 },
    );
  });

  await t.test(
    'output over the limit is dropped, and the program runs to its end all the same',
    async (t) => {
      const result = await pool.run({
        argv: ['sh', '-c', 'head -c 50000000 /dev/zero | tr "\\0" x; exit 3'],
        maxOutputBytes: 1000,
      });
      t.match(result, { exitCode: 3, truncated: true });
      t.equal(result.stdout.length, 1000);
    },
  );

  await t.test('a command over its time is killed with its children', async (t) => {
    const nap = `4${String(process.pid)}`;
    const argv = ['sh', '-c', `sleep ${nap} & sleep ${nap}; true`];
    const result = await pool.run({ argv, timeoutMs: 300 });
    t.match(result, { exitCode: null, timedOut: true });
    const left = await run('ps', ['-eo', 'args']);
    t.notMatch(left.stdout, `sleep ${nap}`);
  });

  await t.test('an aborted command is killed and cancelled', async (t) => {
    const controller = new AbortController();
    const pending = pool.run({ argv: ['sleep', `5${String(process.pid)}`], signal: controller.signal });
    setTimeout(() => controller.abort(), 150);
    await t.rejects(pending, { code: 'IB_CANCELLED' });
    t.notMatch((await run('ps', ['-eo', 'args'])).stdout, `sleep 5${String(process.pid)}`);
  });

  t.test('what cannot be a command is refused before it is sent', (t) => {
    t.throws(() => commandLine([]), { code: 'IB_USAGE' });
    t.throws(() => commandLine(['a\0b']), { code: 'IB_USAGE' });
    t.throws(() => commandLine(['true'], { 'A B': 'x' }), { code: 'IB_USAGE' });
    t.throws(() => commandLine(['a=b'], { A: 'x' }), { code: 'IB_USAGE' });
    t.equal(commandLine(['echo', "it's"], { A: 'b c' }), `exec env 'A=b c' echo ${shellQuote("it's")}`);
    t.end();
  });
});

t.test('the pool', async (t) => {
  await t.test('thirty commands at once stay below MaxSessions on few connections', async (t) => {
    const daemon = await sshd(t);
    const pool = poolOn(t, daemon);
    const results = await Promise.all(
      Array.from({ length: 30 }, (_, index) =>
        pool.run({ argv: ['sh', '-c', `sleep 0.1; exit ${String(index)}`] }),
      ),
    );
    t.strictSame(
      results.map((result) => result.exitCode),
      Array.from({ length: 30 }, (_, index) => index),
    );
    t.ok(pool.size <= 4);
  });

  await t.test('it adapts to a lower MaxSessions', async (t) => {
    const daemon = await sshd(t, ['MaxSessions 2']);
    const pool = poolOn(t, daemon);
    const results = await Promise.all(
      Array.from({ length: 12 }, () => pool.run({ argv: ['sleep', '0.05'] })),
    );
    t.ok(results.every((result) => result.exitCode === 0));
  });

  await t.test('an sshd that opens no session is an unreachable node, not an endless loop', async (t) => {
    const daemon = await sshd(t, ['MaxSessions 0']);
    const pool = poolOn(t, daemon);
    await t.rejects(pool.run({ argv: ['true'] }), {
      code: 'IB_NODE_UNREACHABLE',
      message: /opens no session/,
    });
  });

  await t.test('a command whose connection dies is not repeated', async (t) => {
    const daemon = await sshd(t);
    const pool = poolOn(t, daemon);
    const counter = `${daemon.folder}/count`;
    const pending = pool.run({ argv: ['sh', '-c', `echo x >>${counter}; sleep 20`] });
    const rejected = t.rejects(pending, { code: 'IB_NODE_UNREACHABLE', details: { mayHaveRun: true } });
    await waitFor('the command to run', () => existsSync(counter) || undefined, { timeoutMs: 30_000 });
    daemon.cut();
    await rejected;
    const after = await pool.run({ argv: ['cat', counter] });
    t.equal(after.stdout, 'x\n', 'and the next command has a new connection');
  });

  await t.test(
    'an idle connection that died silently is replaced without the command noticing',
    async (t) => {
      const daemon = await sshd(t);
      const pool = poolOn(t, daemon);
      await pool.run({ argv: ['true'] });
      for (const stream of daemon.streams) stream.pause().removeAllListeners('data');
      await new Promise((resolve) => setTimeout(resolve, 1100));
      t.equal((await pool.run({ argv: ['echo', 'again'] })).stdout, 'again\n');
      t.equal(daemon.dials, 2);
    },
  );

  await t.test('drop() ends what runs, and later commands connect anew', async (t) => {
    const daemon = await sshd(t);
    const pool = poolOn(t, daemon);
    const started = `${daemon.folder}/started`;
    const pending = pool.run({ argv: ['sh', '-c', `touch ${started}; exec sleep 20`] });
    const rejected = t.rejects(pending, { code: 'IB_NODE_UNREACHABLE' });
    await waitFor('the command to run', () => existsSync(started) || undefined, { timeoutMs: 30_000 });
    pool.drop();
    await rejected;
    t.equal(pool.size, 0);
    t.equal((await pool.run({ argv: ['echo', 'back'] })).stdout, 'back\n');
  });

  await t.test(
    'a pool that cannot connect rejects all that wait, and tries again for the next',
    async (t) => {
      const daemon = await sshd(t);
      const pool = poolOn(t, daemon);
      await daemon.stop();
      const waiting = await Promise.allSettled([pool.run({ argv: ['true'] }), pool.run({ argv: ['true'] })]);
      t.ok(waiting.every((one) => one.status === 'rejected' && code('IB_NODE_UNREACHABLE')(one.reason)));
      await daemon.start();
      t.equal((await pool.run({ argv: ['true'] })).exitCode, 0);
    },
  );

  await t.test('a waiter that is cancelled leaves the queue', async (t) => {
    const daemon = await sshd(t);
    const pool = poolOn(t, daemon, { maxConnections: 1, sessionsPerConnection: 1 });
    const first = pool.run({ argv: ['sleep', '0.4'] });
    const signal = AbortSignal.timeout(100);
    await t.rejects(pool.run({ argv: ['true'], signal }), { code: 'IB_CANCELLED' });
    t.equal((await first).exitCode, 0);
  });

  await t.test('a closed pool says so', async (t) => {
    const daemon = await sshd(t);
    const pool = poolOn(t, daemon);
    pool.close();
    await t.rejects(pool.run({ argv: ['true'] }), { code: 'IB_NODE_UNREACHABLE', message: /closed/ });
  });
});

t.test('fresh sessions', async (t) => {
  const daemon = await sshd(t);
  const own = (await run('cat', ['/proc/sys/kernel/random/boot_id'])).stdout.trim();

  await t.test('the boot identity is read over a connection of its own', async (t) => {
    t.equal(await freshBootId(optionsFor(daemon)), own);
  });

  await t.test('no connection is left, also to a node that never hangs up', async (t) => {
    const streams: Duplex[] = [];
    const options = optionsFor(daemon);
    const dial: typeof options.dial = async (signal) => {
      const stream = await options.dial(signal);
      streams.push(stream);
      return stream;
    };
    await freshBootId({ ...options, dial });
    t.match(streams, [{ destroyed: true }]);
    const client = await connect({ ...options, dial });
    client.end();
    client.destroy();
    t.match(streams[1], { destroyed: true }, 'after a goodbye, too');
  });

  await t.test('waiting ends soon after sshd comes', async (t) => {
    await daemon.stop();
    const waiting = waitForFreshSession(optionsFor(daemon), 20_000);
    setTimeout(() => void daemon.start(), 400);
    t.equal(await waiting, own);
  });

  await t.test('waiting ends with the last reason when nothing comes', async (t) => {
    const dial = (): Promise<never> => Promise.reject(new Error('no route to host'));
    await t.rejects(waitForFreshSession(optionsFor(daemon, { dial }), 200), {
      code: 'IB_TIMEOUT',
      message: /no route to host/,
    });
  });

  await t.test('waiting does not go on when another machine answers', async (t) => {
    const hostKey = generateKeyPair('other').publicKey;
    await t.rejects(waitForFreshSession(optionsFor(daemon, { hostKey }), 20_000), {
      code: 'IB_SSH_HOST_KEY',
    });
  });

  await t.test('waiting is cancelled by its signal', async (t) => {
    const dial = (): Promise<never> => Promise.reject(new Error('refused'));
    const signal = AbortSignal.timeout(150);
    await t.rejects(waitForFreshSession(optionsFor(daemon, { dial, signal }), 20_000), {
      code: 'IB_CANCELLED',
    });
  });
});

t.test('fan-out keeps the order and every outcome, and is bounded', async (t) => {
  let running = 0;
  let most = 0;
  const nodes = Array.from({ length: 20 }, (_, index) => `n${String(index)}`);
  const results = await fanOut(
    nodes,
    async (node) => {
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 5));
      running--;
      if (node === 'n3') throw new Error('broken');
      return node.toUpperCase();
    },
    { concurrency: 4 },
  );
  t.equal(most, 4);
  t.strictSame(
    results.map((one) => one.node),
    nodes,
  );
  t.match(results[3], { ok: false, error: new Error('broken') });
  t.match(results[4], { ok: true, value: 'N4' });
});
