// Names put together as an inventory writes ranges, and tables that fit the terminal.
import t from 'tap';
import { compactNames, fittedTable, shortened } from '../../src/cli/tables.js';

t.test('names that differ in their last number are put together', (t) => {
  const table: [string[], string][] = [
    [[], ''],
    [['local/n01'], 'local/n01'],
    [['local/n02', 'local/n01', 'local/n03'], 'local/n[01-03]'],
    [['local/n01', 'local/n03', 'local/n04', 'local/n08'], 'local/n[01,03-04,08]'],
    [['a/n9', 'a/n10'], 'a/n9 a/n10'],
    [['a/n01', 'b/n02'], 'a/n01 b/n02'],
    [['a/head', 'a/n1', 'a/n2'], 'a/head a/n[1-2]'],
    [['a/c220g2-011002', 'a/c220g2-011003'], 'a/c220g2-[011002-011003]'],
  ];
  for (const [names, want] of table) t.equal(compactNames(names), want, want);
  t.end();
});

t.test('a table gives way in one column', (t) => {
  const rows = [
    ['l-1\na purpose that goes on and on, for longer than there is room', 'ada'],
    ['l-2', 'grace'],
  ];
  const lines = fittedTable(['lease', 'owner'], rows, { width: 40, elastic: 0 }).split('\n');
  t.ok(lines.every((line) => line.length <= 40));
  t.match(lines.join('\n'), /on, for/);
  t.ok(fittedTable(['a', 'b'], [['x', 'y']], { width: 80, elastic: 0 }).split('\n')[0]!.length < 20);
  t.equal(shortened('abcdef', 4), 'abc…');
  t.equal(shortened('abcd', 4), 'abcd');
  t.end();
});
