/** Which package mirror an image is built from: the host's own where it serves the suite, else mmdebstrap's default. */
import { run } from '../../../core/exec.js';
import { isInfrabedError } from '../../../core/errors.js';

/** A line of `apt-get indextargets`, as we ask for it. */
interface Target {
  uri: string;
  release: string;
  component: string;
  origin: string;
}

/**
 * The `deb` lines of the host for this Debian suite, its updates and its security fixes; empty where the host's own
 * mirror does not serve the suite (another release, Ubuntu), which leaves the choice to mmdebstrap.
 */
export async function hostMirror(suite: string): Promise<string[]> {
  const format = '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)';
  try {
    const { stdout } = await run('apt-get', ['indextargets', '--format', format, 'Created-By: Packages']);
    return mirrorLines(stdout, suite);
  } catch (error) {
    if (isInfrabedError(error, 'IB_PROGRAM_MISSING') || isInfrabedError(error, 'IB_PROGRAM_FAILED'))
      return [];
    throw error;
  }
}

/** The same as a pure function of apt's answer. Lines of other vendors that happen to share the suite's name are left out. */
export function mirrorLines(answer: string, suite: string): string[] {
  const targets = answer.split('\n').flatMap((line): Target[] => {
    const [uri, release, component, origin] = line.trim().split(/\s+/);
    return uri && release && component ? [{ uri, release, component, origin: origin ?? '' }] : [];
  });
  const wanted = [suite, `${suite}-updates`, `${suite}-security`];
  // An origin that apt has not fetched yet shows as the unexpanded "$(ORIGIN)"; the signature decides then.
  const ours = targets.filter(
    (target) =>
      wanted.includes(target.release) &&
      target.component === 'main' &&
      (target.origin === 'Debian' || target.origin.startsWith('$')) &&
      /^https?:/.test(target.uri),
  );
  if (!ours.some((target) => target.release === suite)) return [];
  return [...new Set(ours.map((target) => `deb ${target.uri} ${target.release} main`))];
}
