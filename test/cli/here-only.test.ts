/** Which commands refuse to be typed where a server is named, and how `serve` reads where it is to listen. */
import t from 'tap';
import { refuseThroughServer } from '../../src/cli/here-only.js';
import { localActor } from '../../src/cli/perform.js';
import { tlsListener } from '../../src/cli/commands/serve.js';

t.test('a command that works on this machine alone says so where a server is named', (t) => {
  for (const words of [
    ['sweep'],
    ['cluster', 'ssh', 'n1'],
    ['task', 'admit', 'x'],
    ['serve'],
    ['doctor'],
    ['image', 'list'],
  ]) {
    t.throws(() => refuseThroughServer(words, 'unix:/x'), { code: 'IB_USAGE', hint: /./ }, words.join(' '));
    t.doesNotThrow(() => refuseThroughServer(words, undefined));
    t.doesNotThrow(() => refuseThroughServer(words, ''));
  }
  for (const words of [['user', 'list'], ['task', 'list'], ['run', 'x'], ['cluster', 'up'], []]) {
    t.doesNotThrow(() => refuseThroughServer(words, 'unix:/x'), words.join(' '));
  }
  t.end();
});

t.test('on this machine the actor is an operator, named as whom sudo came from', (t) => {
  const isRoot = process.getuid?.() === 0;
  t.same(localActor({ SUDO_USER: 'ada' }).role, 'operator');
  t.equal(localActor({ SUDO_USER: 'ada' }).name === 'ada', isRoot, 'only root believes it');
  t.not(localActor({}).name, '');
  t.end();
});

t.test('serve listens over TLS where address, certificate and key come together', (t) => {
  const files = { 'tls-cert': 'c', 'tls-key': 'k' };
  const none = { 'tls-listen': undefined, 'tls-cert': undefined, 'tls-key': undefined };
  t.equal(tlsListener(none), undefined);
  const wanted = { certFile: 'c', keyFile: 'k' };
  t.same(tlsListener({ ...files, 'tls-listen': 'host:7443' }), { ...wanted, host: 'host', port: 7443 });
  t.same(tlsListener({ ...files, 'tls-listen': '[::]:0' }), { ...wanted, host: '::', port: 0 });
  for (const listen of ['host', ':7443', '7443', 'host:', 'host:70000', '::1:7443', 'https://host:1']) {
    t.throws(() => tlsListener({ ...files, 'tls-listen': listen }), { code: 'IB_USAGE' }, listen);
  }
  t.throws(() => tlsListener({ ...none, ...files }), { code: 'IB_USAGE', hint: /no plain TCP/ });
  t.throws(() => tlsListener({ ...none, 'tls-listen': 'host:1' }), { code: 'IB_USAGE' });
  t.end();
});
