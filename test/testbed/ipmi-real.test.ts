/** The IPMI driver against ipmitool and ipmi_sim as they are, with a network in between that loses packets. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { waitFor } from '../../src/core/clock.js';
import { nullJournal } from '../../src/core/journal.js';
import { createBmc, createIpmiPower, openSol, type IpmiBmc } from '../../src/testbed/driver/ipmi/index.js';
import { ipmiSuite } from './ipmi-suite.js';
import { SimBmc, simGuid } from './ipmi-sim.js';
import { firstCommand, UdpRelay } from './udp-relay.js';

t.setTimeout(900_000);

const quick = { replySec: 1, sends: 1 };

function bmcOf(sim: SimBmc, options: Partial<Parameters<typeof createBmc>[0]> = {}): IpmiBmc {
  return createBmc({
    name: 'node0',
    address: '127.0.0.1',
    port: sim.port,
    username: 'infrabed',
    passwordFile: sim.passwordFile,
    reach: (argv) => argv,
    journal: nullJournal,
    ...options,
  });
}

async function simOf(t: Test, options: Parameters<typeof SimBmc.start>[0] = {}): Promise<SimBmc> {
  const sim = await SimBmc.start(options);
  t.teardown(() => sim.remove());
  return sim;
}

t.test('ipmi_sim passes the suite', async (t) => {
  const sim = await simOf(t);
  const bmc = bmcOf(sim, { expectedGuid: simGuid });
  const wrong = join(sim.folder, 'wrong-password');
  await writeFile(wrong, 'not-the-secret\n', { mode: 0o600 });
  await ipmiSuite(t, {
    bmc,
    power: createIpmiPower(bmc, { steadyMs: 100 }),
    stranger: bmcOf(sim, { passwordFile: wrong }),
    isOn: async () => (await sim.power()).trim() === '1',
  });

  await t.test('a password that ipmi_sim does not know is refused by it, not by us', async (t) => {
    const stranger = bmcOf(sim, { passwordFile: wrong });
    await t.rejects(stranger.read(['mc', 'info']), {
      code: 'IB_BMC_AUTH',
      message: /RAKP 2 HMAC is invalid/,
    });
    const nobody = bmcOf(sim, { username: 'nobody' });
    await t.rejects(nobody.powerState(), { code: 'IB_BMC_AUTH', message: /unauthorized name/ });
  });

  await t.test('the address of another machine', async (t) => {
    const other = bmcOf(sim, { expectedGuid: 'b'.repeat(32) });
    await t.rejects(other.act(['chassis', 'power', 'on']), { code: 'IB_BMC', message: /another machine/ });
  });

  await t.test('an override that the BMC does not keep as it was set is found out', async (t) => {
    // ipmi_sim alone keeps the device of boot parameter 5 and nothing else of it.
    await t.rejects(bmc.setBootOverride({ device: 'pxe', persistent: true, efi: true }), {
      code: 'IB_BMC',
      message: /reads back as none/,
    });
  });

  await t.test('a BMC that ends is unknown, and known again when it is back', async (t) => {
    const patient = bmcOf(sim, { timing: quick });
    t.equal(await patient.powerState(), 'off');
    await sim.end();
    t.equal(await patient.powerState(), 'unknown');
    await t.rejects(patient.read(['mc', 'info']), { code: 'IB_BMC_UNREACHABLE' });
    await sim.begin();
    t.equal(await patient.powerState(), 'off');
  });
});

t.test('an address where no BMC is', async (t) => {
  const sim = await simOf(t);
  const nowhere = bmcOf(sim, { address: '127.0.0.99', timing: quick });
  t.equal(await nowhere.powerState(), 'unknown');
  await t.rejects(nowhere.users(), { code: 'IB_BMC_UNREACHABLE' });
  const nameless = bmcOf(sim, { address: 'bmc.invalid', timing: quick });
  await t.rejects(nameless.users(), { code: 'IB_BMC_UNREACHABLE' });
});

t.test('a password with quotes and spaces', async (t) => {
  const sim = await simOf(t);
  const password = `a 'b" $c\\ d`;
  // Set User Password (section 22.30), in a file: not on the command line.
  const bytes = [...Buffer.alloc(16).fill(password, 0, password.length)].map(
    (byte) => `0x${byte.toString(16)}`,
  );
  bytes.fill('0', password.length);
  const commands = join(sim.folder, 'set-password');
  await writeFile(commands, `raw 0x06 0x47 0x02 0x02 ${bytes.join(' ')}\necho set\n`, { mode: 0o600 });
  t.match(await bmcOf(sim).act(['exec', commands]), /^set/m);
  await t.rejects(bmcOf(sim).powerState(), { code: 'IB_BMC_AUTH' }, 'the old one is not accepted any more');
  await writeFile(sim.passwordFile, `${password}\n`, { mode: 0o600 });
  t.equal(await bmcOf(sim).powerState(), 'off');
});

t.test('a network that loses packets', async (t) => {
  const sim = await simOf(t);
  const relay = await UdpRelay.start(sim.port);
  t.teardown(() => relay.close());
  const cacheFile = join(sim.folder, 'suite.json');
  await writeFile(cacheFile, '{"cipherSuite":3}\n');
  const bmc = bmcOf(sim, { port: relay.port, cacheFile, timing: quick });

  await t.test('the reply to an act is lost: it is sent once, and said to have maybe happened', async (t) => {
    relay.copies = ({ direction, type, number }) =>
      direction === 'to-client' && type === 'in-session' && number === firstCommand ? 0 : 1;
    await t.rejects(bmc.act(['raw', '0x00', '0x02', '0x01']), {
      code: 'IB_BMC_UNREACHABLE',
      details: { maybeDone: true },
    });
    t.same(await sim.acts(), ['power 1']);
  });

  await t.test('power reads back that a lost act was carried out', async (t) => {
    let isLost = false;
    relay.copies = ({ direction, type, number }) => {
      // The reply of the act alone: until it was asked for, status replies come through.
      if (direction !== 'to-client' || type !== 'in-session' || number !== firstCommand || isLost) return 1;
      reads += 1;
      isLost = reads === 3;
      return isLost ? 0 : 1;
    };
    let reads = 0;
    await createIpmiPower(bmc, { steadyMs: 100 }).off();
    t.ok(isLost, 'a reply was lost');
    t.same(await sim.acts(), ['power 1', 'power 0']);
  });

  await t.test('the close of a session is lost: what was asked for counts', async (t) => {
    relay.copies = ({ direction, type, number }) =>
      direction === 'to-bmc' && type === 'in-session' && number > firstCommand ? 0 : 1;
    t.equal(await bmc.powerState(), 'off');
    t.match(await bmc.act(['raw', '0x00', '0x02', '0x01']), /^\s*$/);
    t.same((await sim.acts()).slice(2), ['power 1']);
  });

  await t.test('the request itself is lost: nothing happened, and nothing is said to have', async (t) => {
    relay.copies = ({ direction, type, number }) =>
      direction === 'to-bmc' && type === 'in-session' && number === firstCommand ? 0 : 1;
    await t.rejects(bmc.act(['raw', '0x00', '0x02', '0x00']), {
      code: 'IB_BMC_UNREACHABLE',
      message: /may have been carried out/,
    });
    t.same((await sim.acts()).slice(3), []);
  });

  await t.test('no session comes about: the act was not sent, and is sent once there is one', async (t) => {
    let lost = 0;
    relay.copies = ({ type }) => {
      if (type !== 'rakp' || lost === 4) return 1;
      lost += 1;
      return 0;
    };
    await bmc.act(['raw', '0x00', '0x02', '0x00']);
    t.same((await sim.acts()).slice(3), ['power 0']);
  });

  await t.test('replies that come twice', async (t) => {
    relay.copies = ({ direction }) => (direction === 'to-client' ? 2 : 1);
    t.equal(await bmc.powerState(), 'off');
    t.equal((await bmc.users())[1]?.name, 'infrabed');
  });

  await t.test('a BMC that is silent behind its address', async (t) => {
    relay.copies = () => 0;
    t.equal(await bmc.powerState(), 'unknown');
    await t.rejects(createIpmiPower(bmc).on(), { code: 'IB_BMC_UNREACHABLE' });
    t.equal((await sim.acts()).length, 4);
  });
});

interface SerialLine {
  port: number;
  write: (text: string) => void;
  server: Server;
}

/** The machine's serial line, as a hypervisor gives it out. */
async function serialLine(t: Test): Promise<SerialLine> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    port: address.port,
    server,
    write: (text) => {
      for (const socket of sockets) socket.write(text);
    },
  };
}

t.test('serial over LAN', async (t) => {
  const line = await serialLine(t);
  const sim = await simOf(t, { solPort: line.port });
  const folder = await mkdtemp(join(tmpdir(), 'infrabed-sol-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'console.log');
  const bmc = bmcOf(sim);
  const says = (text: string): Promise<boolean> =>
    waitFor(
      `the console to say ${text}`,
      async () => {
        // Repeated: ipmi_sim connects to the line, and again after a break, in its own time.
        line.write(`${text}\r\n`);
        return (await readFile(file, 'utf8')).includes(text) ? true : undefined;
      },
      { timeoutMs: 120_000, intervalMs: 500 },
    );

  await t.test('what the machine says after power-on is in the file', async (t) => {
    const sol = await openSol(bmc, file);
    t.teardown(() => sol.close());
    await createIpmiPower(bmc, { steadyMs: 100 }).on();
    await says('first words');
    t.notMatch(await readFile(file, 'utf8'), /SOL Session operational/, 'ipmitool itself is not in it');
  });

  await t.test('closed in an orderly way, it can be opened again at once', async (t) => {
    const sol = await openSol(bmc, file);
    await says('second words');
    await sol.close();
    t.match(await readFile(file, 'utf8'), /first words[^]*second words/, 'appended');
    t.equal(sol.reopened, 0);
  });

  await t.test(
    'a session that somebody left active is ended first; the loser opens its own again',
    async (t) => {
      const left = await openSol(bmc, join(folder, 'left.log'));
      t.teardown(() => left.close());
      const sol = await openSol(bmc, file);
      t.teardown(() => sol.close());
      await says('third words');
      await left.close();
    },
  );

  await t.test('deactivated by another, it is opened again', async (t) => {
    const sol = await openSol(bmc, file);
    t.teardown(() => sol.close());
    await bmc.read(['sol', 'deactivate']);
    await waitFor('the console to be opened again', () => (sol.reopened > 0 ? true : undefined), {
      timeoutMs: 120_000,
      intervalMs: 200,
    });
    await says('fourth words');
  });
});
