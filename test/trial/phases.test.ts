// What becomes of a trial whose controller died, by the last phase that it wrote of.
import t from 'tap';
import { phaseNames, type PhaseName } from '../../src/record/bundle/schema.js';
import { afterCrash, phaseRules } from '../../src/trial/run/phases.js';
import type { TrialRequest } from '../../src/trial/run/trial.js';
import { requestText, storedRequest } from '../../src/trial/run/progress.js';

const never = (): boolean => false;
const always = (): boolean => true;
const what = (phase: PhaseName, state: 'begun' | 'verified' | 'failed', acted = never): string => {
  const { what, from } = afterCrash({ phase, state }, acted);
  return `${what} ${from}`;
};

void t.test('every phase has its rule, in the order of a trial', (t) => {
  t.same(
    phaseRules.map(({ name }) => name),
    phaseNames,
  );
  t.end();
});

void t.test('a trial killed in its window is never gone on with, whatever is known', (t) => {
  t.equal(what('agent', 'begun'), 'infra_error agent');
  t.equal(what('bootstrap', 'verified'), 'infra_error agent', 'nor one that was about to open it');
  t.equal(what('agent', 'verified'), 'infra_error close', 'nor one whose agent had no end yet on the nodes');
  t.end();
});

void t.test('a trial that ended a phase stands at the start of the next', (t) => {
  t.equal(what('close', 'verified'), 'resume immediate');
  t.equal(what('running', 'verified', always), 'resume reboot', 'where nothing can have been done yet');
  t.match(afterCrash({ phase: 'immediate', state: 'verified' }, never), { from: 'running', begun: false });
  t.equal(what('seal', 'verified'), 'finish clean');
  t.equal(what('release', 'verified'), 'finish release');
  t.equal(afterCrash(undefined, never).what, 'infra_error');
  t.end();
});

void t.test('what must not be done twice is not, unless the record shows that it was not begun', (t) => {
  for (const phase of ['reboot', 'decommission'] as const) {
    t.equal(what(phase, 'begun', never), `resume ${phase}`);
    t.equal(what(phase, 'begun', always), `infra_error ${phase}`);
  }
  t.equal(what('running', 'begun', always), 'resume running', 'a gate that only looks has no such acts');
  t.end();
});

void t.test('a phase that failed by itself is not tried again', (t) => {
  t.equal(what('running', 'failed'), 'infra_error running');
  t.equal(what('clean', 'failed'), 'finish clean');
  t.end();
});

void t.test('a trial keeps what made its nodes, whichever backend goes on with it', (t) => {
  const asked = { task: { hash: 'h' }, admitted: true, agent: 'oracle', attempt: 1, network: 'none' };
  const request = { ...asked, keep: false, control: false, agentPaths: [] } as unknown as TrialRequest;
  const text = requestText(request, 'nonce', 'libvirt');
  t.equal(storedRequest({ id: 't-1', request: text }).backend, 'libvirt');
  const older = JSON.parse(text) as Record<string, unknown>;
  delete older['backend'];
  t.equal(storedRequest({ id: 't-1', request: JSON.stringify(older) }).backend, 'container');
  t.end();
});
