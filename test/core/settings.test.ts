import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { defaultSettings, loadSettings, parseSettings } from '../../src/core/settings.js';

void t.test('without a file everything has its default, and a file changes only what it names', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'infrabed-settings-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  t.strictSame(await loadSettings(folder), defaultSettings);
  writeFileSync(
    join(folder, 'settings.yaml'),
    'lease: { warning_sec: 60 }\nlimits:\n  users:\n    ada: { node_hours_ahead: 48 }\npriority: { users: { ada: 5 } }\n',
  );
  const settings = await loadSettings(folder);
  t.equal(settings.lease.warning_sec, 60);
  t.equal(settings.lease.grace_sec, defaultSettings.lease.grace_sec);
  t.strictSame(settings.limits.users['ada'], { node_hours_ahead: 48, leases: null });
  t.equal(settings.priority.users['ada'], 5);
  t.strictSame(parseSettings('# nothing but a comment\n', 'x'), defaultSettings);
});

void t.test('what is wrong is refused with file and key', (t) => {
  for (const [text, says] of [
    ['lease: { warnign_sec: 60 }', /warnign_sec/],
    ['lease: { cleaning_gap_sec: 10, grace_sec: 60 }', /cleaning_gap_sec must not be shorter than grace_sec/],
    ['limits: { default: { leases: 0 } }', /limits\.default\.leases/],
    ['notices: { webhook: "ftp://example.org" }', /notices\.webhook/],
    ['lease: [', /line 1/],
    ['- 1', /expected object/],
  ] as const) {
    t.throws(() => parseSettings(text, '/x/settings.yaml'), {
      code: 'IB_SETTINGS',
      message: new RegExp(`/x/settings\\.yaml[\\s\\S]*${says.source}`),
    });
  }
  t.end();
});
