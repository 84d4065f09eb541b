import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { errorCatalogue, InfrabedError, isInfrabedError } from '../../src/core/errors.js';
import { packageRoot } from '../../src/core/paths.js';

t.test('every code stands in docs/errors.md, and every code there exists', (t) => {
  const text = readFileSync(join(packageRoot, 'docs', 'errors.md'), 'utf8');
  const documented = [...text.matchAll(/^\| `(IB_[A-Z_]+)` *\| (\d) +\|/gm)].map((match) => [
    match[1],
    Number(match[2]),
  ]);
  t.same(Object.fromEntries(documented), errorCatalogue);
  t.equal(documented.length, Object.keys(errorCatalogue).length, 'no code twice');
  t.end();
});

t.test('an error carries code, sentence, hint, cause and exit status', (t) => {
  const cause = new Error('below');
  const error = new InfrabedError('IB_USAGE', 'No.', { hint: 'Do this.', cause });
  t.match(error, { code: 'IB_USAGE', message: 'No.', hint: 'Do this.', exitStatus: 2, cause });
  t.ok(isInfrabedError(error, 'IB_USAGE'));
  t.notOk(isInfrabedError(error, 'IB_STORE'));
  t.notOk(isInfrabedError(cause));
  t.end();
});
