// The agent's side of the gateway benchmark: one ssh2 connection, one measurement, its figures as JSON.
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import ssh2, { type Client, type ClientChannel, type SFTPWrapper } from 'ssh2';

interface Job {
  /** A port of 127.0.0.1, or the path of a socket. */
  to: number | string;
  user: string;
  keyFile: string;
  what: 'exec' | 'output' | 'input' | 'upload' | 'download';
  /** Times for `exec`, bytes otherwise. */
  amount: number;
  /** File on the node for sftp. */
  path: string;
}

function dial(to: number | string): Socket {
  return typeof to === 'string' ? connect(to) : connect({ port: to, host: '127.0.0.1', noDelay: true });
}

function login(job: Job): Promise<Client> {
  const client = new ssh2.Client();
  return new Promise((resolve, reject) => {
    client.once('ready', () => resolve(client)).once('error', reject);
    client.connect({
      sock: dial(job.to),
      username: job.user,
      privateKey: readFileSync(job.keyFile),
      algorithms: { cipher: ['aes128-gcm@openssh.com'] },
    });
  });
}

function exec(client: Client, command: string, feed?: (channel: ClientChannel) => void): Promise<number> {
  return new Promise((resolve, reject) => {
    client.exec(command, (error, channel) => {
      if (error) {
        reject(error);
        return;
      }
      let bytes = 0;
      channel.on('data', (data: Buffer) => (bytes += data.length));
      channel.stderr.resume();
      channel.once('close', () => resolve(bytes));
      if (feed) feed(channel);
      else channel.end();
    });
  });
}

/** Writes `amount` bytes, at the pace at which they are taken. */
function pump(channel: NodeJS.WritableStream, amount: number): void {
  const block = Buffer.alloc(256 * 1024, 'x');
  let left = amount;
  const more = (): void => {
    while (left > 0) {
      left -= block.length;
      if (!channel.write(block)) {
        channel.once('drain', more);
        return;
      }
    }
    channel.end();
  };
  more();
}

function sftp(client: Client): Promise<SFTPWrapper> {
  return new Promise((resolve, reject) => {
    client.sftp((error, session) => (error ? reject(error) : resolve(session)));
  });
}

async function transfer(client: Client, job: Job): Promise<void> {
  const session = await sftp(client);
  await new Promise<void>((resolve, reject) => {
    const done = (error: Error | null | undefined): void => (error ? reject(error) : resolve());
    if (job.what === 'upload') session.fastPut(`${job.path}.local`, job.path, done);
    else session.fastGet(job.path, '/dev/null', done);
  });
}

async function measure(client: Client, job: Job): Promise<number[]> {
  const times: number[] = [];
  const rounds = job.what === 'exec' ? job.amount : 1;
  const command = {
    exec: 'true',
    output: `head -c ${String(job.amount)} /dev/zero`,
    input: 'cat > /dev/null',
  };
  for (let round = 0; round < rounds; round += 1) {
    const before = performance.now();
    if (job.what === 'upload' || job.what === 'download') await transfer(client, job);
    else if (job.what === 'input') await exec(client, command.input, (channel) => pump(channel, job.amount));
    else await exec(client, command[job.what]);
    times.push(performance.now() - before);
  }
  return times;
}

const job = JSON.parse(process.argv[2] ?? '') as Job;
const client = await login(job);
const times = await measure(client, job);
client.end();
process.stdout.write(JSON.stringify(times));
